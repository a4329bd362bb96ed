"""Everything that a channel says, as plain values."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from spillable_stream import Channel
from spillable_stream.channel.stats import ChannelStats
from spillable_stream.engine import deliveries
from spillable_stream.log.event_reader import ReadBatch
from tests.support.delays import deliver_all, deliveries_of

CLOCK_MS = 1_800_000_000_000
"""When channels with delayed events were made, and are looked at, in milliseconds since 1970: what waits is not due."""


def dump(path: Path, address: Callable[[Path], Path | str] = lambda path: path) -> dict[str, Any]:
    """Return what the channel at ``path`` holds; a copy is opened, nothing at ``path`` changes.

    Args:
        path: where its files, or its objects, are.
        address: returns by which address a channel is opened whose files are at a path.
    """
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "channel"
        shutil.copytree(path, copy)
        with (
            mock.patch.object(deliveries, "wall_clock_ms", lambda: CLOCK_MS),  # of the open, too
            Channel(address(copy), create=False, checkpoint_on_close=False) as channel,
        ):
            return _contents(channel)


def _contents(channel: Channel) -> dict[str, Any]:
    stats = channel.stats()
    groups = {}
    for name in sorted([*stats.groups, "new"]):
        with channel.take_transaction(name) as tx:
            table = tx.take_batch(10_000)
            rows = table.to_pylist() if table is not None else []
            groups[name] = {
                "position": stats.groups[name].position if name in stats.groups else None,
                "events": [{k: _plain(v) for k, v in row.items()} for row in rows],
            }
            tx.rollback()
    return {
        "channel": channel.uuid,
        "schema": channel.schema.to_string(),
        "options": {k: v for k, v in channel.options.items() if k != "checkpoint_on_close"},
        "first": stats.first_id,
        "last": stats.last_id,
        "stored": stats.channel_size,
        "sinks": dict(stats.sinks),
        "groups": groups,
        **_kept(stats),
        **_expired(stats),
        **_due_where_shipped(channel),
        **_delayed(channel, stats),
    }


def _kept(stats: ChannelStats) -> dict[str, Any]:
    """Return what is kept, and what groups missed of it; {} for a channel that keeps nothing."""
    if not stats.kept.events:
        return {}
    expired = {name: [list(r) for r in group.removed] for name, group in stats.groups.items()}
    automatic = [name for name, group in stats.groups.items() if group.is_automatic]
    return {"kept": [stats.kept.first_id, stats.kept.events], "expired": expired, "automatic": automatic}


def _expired(stats: ChannelStats) -> dict[str, Any]:
    """Return how many expired events groups have passed over; {} for a channel where none has."""
    expired = {name: group.expired_events for name, group in stats.groups.items() if group.expired_events}
    return {"expired_events": expired} if expired else {}


def _due_where_shipped(channel: Channel) -> dict[str, Any]:
    """Return when events are due where they are shipped to; {} for a channel that is no spool."""
    dues = [[read.first_id, list(read.dues_ms)] for read in _read_all(channel) if read.dues_ms]
    return {"dues": dues} if dues else {}


def _delayed(channel: Channel, stats: ChannelStats) -> dict[str, Any]:
    """Return what waits, and how it is delivered in the end; {} for a channel in which nothing does."""
    if not stats.delayed.events:
        return {}
    deliveries_of(channel).clock_ms = lambda: CLOCK_MS + 400 * 86_400_000
    deliver_all(channel)
    bodies = [body for read in _read_all(channel) for body in read.batch.column("body").to_pylist()]
    found = {"events": stats.delayed.events, "next_due": stats.delayed.next_due}
    return {"delayed": {**found, "delivered": list(map(_plain, bodies[-stats.delayed.events :]))}}


def _read_all(channel: Channel) -> list[ReadBatch]:
    consumer = channel.consumer("new")
    claimed = consumer.claim(10_000)
    try:
        return consumer.read(claimed)
    finally:
        consumer.release(claimed)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{value[:40].hex()} ({len(value)} bytes)"
    return json.loads(json.dumps(value, default=str))
