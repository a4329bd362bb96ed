"""The verbs that describe a channel: ``describe`` and ``stats``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillable_stream.channel.figures import age_text, size_text
from spillable_stream.cli.app import AsJson, ending, print_object
from spillable_stream.cli.arguments import ChannelPath
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.channel.stats import ChannelStats, TierStats

__all__ = ["describe", "stats"]

_Options = Annotated[bool, typer.Option("--options", help="Print every option with its value and where that is from.")]
_Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A configuration file to compare with.")]


def stats(path: ChannelPath, as_json: AsJson = False) -> None:
    """Say what a channel holds: events and bytes in each tier, fill, drain order, groups with their lag, losses.

    With --json it is `ChannelStats`, Flume's counters as "flume", and a directory in memory as "directory_in_memory".

    Example: `spillable stats /data/orders --json`

    Exit status: 0 done; 1 it failed; 2 no such channel.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path, as_json), Channel(path, create=False, readonly=True) as channel:
        found = channel.stats()
        if as_json:
            more = {"directory_in_memory": _directory_in_memory(channel), "flume": found.flume_counters()}
            print_object({"path": path, **asdict(found), **more})
            return
        _print_facts([*_stats_facts(found), *_warnings(channel)])
        _print_groups(found)


def describe(path: ChannelPath, options: _Options = False, config: _Config = None, as_json: AsJson = False) -> None:
    """Describe a channel: what it is, its options, schema, tiers, groups and files.

    With --options every option is printed with its source: default, file, environment or stored. Where there is no
    channel, they are those that a new one would get.

    Example: `spillable describe /data/orders --options`

    Exit status: 0 done; 1 it failed; 2 no such channel.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path, as_json):
        if config is not None and not options:
            raise OptionError("--config is compared with the options: give --options, too")
        if options:
            _describe_options(path, config, as_json)
            return
        with Channel(path, create=False, readonly=True) as channel:
            if as_json:
                print_object(_described(path, channel))
            else:
                _print_channel(path, channel)


def _described(path: str, channel: Channel) -> dict[str, Any]:
    """Return what `describe` says, as plain values."""
    found = channel.stats()
    return {
        "path": path,
        "channel": channel.uuid,
        "typed": channel.typed,
        "schema": [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in channel.schema],
        "options": dict(channel.options),
        "tiers": {"memory": asdict(found.memory), "disk": asdict(found.disk)},
        "groups": {name: asdict(group) for name, group in found.groups.items()},
        "files": {"data": found.data_files, "memory": found.memory_files, "segments": found.segments},
        "directoryInMemory": _directory_in_memory(channel),
        "firstId": found.kept.first_id,
        "lastId": found.last_id,
    }


def _print_channel(path: str, channel: Channel) -> None:
    from spillable_stream.options import CHANNEL, OPTIONS

    found = channel.stats()
    columns = ", ".join(f"{f.name}: {f.type}" for f in channel.schema)
    stored: dict[str, object] = dict(channel.options)
    changed = {o.name: stored[o.keyword] for o in OPTIONS if CHANNEL in o.scopes and stored[o.keyword] != o.default}
    _print_facts(
        [
            ("channel", path),
            ("UUID", channel.uuid),
            ("kind", "typed" if channel.typed else "events"),
            ("schema", columns),
            ("options", ", ".join(f"{name} = {value}" for name, value in changed.items()) or "all at their defaults"),
            ("files", f"{found.data_files} data, {found.memory_files} memory, {found.segments} segments"),
            *_stats_facts(found),
            *_warnings(channel),
        ]
    )
    _print_groups(found)


def _directory_in_memory(channel: Channel) -> Path | None:
    """Return the directory of a channel for which it ends with this host; None if it does not."""
    from spillable_stream.log.host_memory import directory_in_memory
    from spillable_stream.log.identity_file import read_identity
    from spillable_stream.storage.filesystem import FileSystem

    if not isinstance(channel.path, Path):
        return None
    fs = FileSystem()
    return directory_in_memory(fs, read_identity(fs, channel.path))


def _warnings(channel: Channel) -> list[tuple[str, str]]:
    """Return the lines of what is not well about where a channel is."""
    if (directory := _directory_in_memory(channel)) is None:
        return []
    return [("warning", f"{directory} is on a file system in memory: the events end with the host")]


def _stats_facts(found: ChannelStats) -> list[tuple[str, str]]:
    """Return the lines of `stats`: a word and what it says."""
    from spillable_stream.state.ranges import listed

    facts = [
        ("events", f"{found.channel_size:,} of {found.channel_capacity:,} ({found.channel_fill_percentage:.1f}%)"),
        ("memory", _tier(found.memory)),
        ("disk", _tier(found.disk)),
        ("IDs", _ids(found)),
    ]
    if found.kept.events:
        facts.append(("kept", f"{counted(found.kept.events, 'event')} that every group has taken"))
    if (delayed := found.delayed).next_due is not None:
        due = datetime.fromtimestamp(delayed.next_due, UTC).isoformat(" ", "milliseconds")
        facts.append(("delayed", f"{counted(delayed.events, 'event')}, the next due at {due}"))
    if found.oldest_age_seconds is not None:
        facts.append(("oldest", age_text(found.oldest_age_seconds)))
    if len(found.drain_order) > 1:
        facts.append(("drain order", _drain_order(found.drain_order)))
    if found.spilled_transactions:
        overflow = "; puts go to disk now" if found.overflow_active else ""
        facts.append(("spilled", f"{counted(found.spilled_transactions, 'transaction')}{overflow}"))
    if found.lost:
        facts.append(("lost", listed(found.lost)))
    if found.doubtful:
        facts.append(("doubtful", listed(found.doubtful)))
    if found.without_owner:
        facts.append(("without owner", ", ".join(found.without_owner)))
    return facts


def _ids(found: ChannelStats) -> str:
    if not found.last_id:
        return "no event yet"
    if found.kept.first_id > found.last_id:
        return f"none; the last was {found.last_id}"
    first, last = found.kept.first_id, found.last_id
    return str(first) if first == last else f"{first} to {last}"


def _tier(tier: TierStats) -> str:
    return f"{tier.events:,} of {counted(tier.event_capacity, 'event')}, {size_text(tier.payload_bytes)}"


_SHOWN_RUNS = 6


def _drain_order(runs: list[int]) -> str:
    words = [f"{-run:,} on disk" if run < 0 else f"{run:,} in memory" for run in runs[:_SHOWN_RUNS]]
    more = f", and {len(runs) - _SHOWN_RUNS:,} more runs" if len(runs) > _SHOWN_RUNS else ""
    return ", ".join(words) + more


def _print_facts(facts: Iterable[tuple[str, str]]) -> None:
    for word, text in facts:
        typer.echo(f"{word + ':':<14} {text}")


def _print_groups(found: ChannelStats) -> None:
    from spillable_stream.channel.worker_status import worker_text

    for name, group in found.groups.items():
        flight = f", {group.in_flight:,} in flight" if group.in_flight else ""
        expired = f", {group.expired_events:,} expired" if group.expired_events else ""
        typer.echo(f"{'group:':<14} {name} at {group.position}, {group.lag:,} behind{flight}{expired}")
    for worker in found.workers:
        typer.echo(f"{'worker:':<14} {worker.group} {worker.state} · {worker_text(worker)}")


def _describe_options(path: str, config: str | None, as_json: bool) -> None:
    """Print every option with its value, its source, and what other sources say."""
    from spillable_stream.channel.option_sources import sourced_options

    found = sourced_options(path, config)
    if as_json:
        print_object({"path": path, "options": {o.name: asdict(o) for o in found}})
        return
    width = max(len(o.name) for o in found)
    for option in found:
        note = f"  ({option.note})" if option.note else ""
        typer.echo(
            f"{option.name:<{width}}  {'-' if option.value is None else option.value!s:<12} {option.source}{note}"
        )
