"""The verbs of groups: ``groups list``, ``groups create``, ``groups drop`` and ``groups seek``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.channel.place import PLACES, parse_place
from spillable_stream.channel.seek_target import event_id
from spillable_stream.cli.app import AsJson, confirm, ending, print_object
from spillable_stream.cli.arguments import ChannelPath, Yes, decoded
from spillable_stream.cli.output import say
from spillable_stream.cli.wrong_calls import VerbGroup
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError
from spillable_stream.names import check_group
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.channel.seek_target import SeekTarget

__all__ = ["groups"]

_FILE_WIDTH = 200  # where the output is not a terminal
_GroupName = Annotated[str, typer.Argument(metavar="GROUP", callback=decoded, help="The group's name.")]
_Place = Annotated[str, typer.Argument(metavar="PLACE", help=f"{PLACES}.")]
_From = Annotated[str, typer.Option("--from", metavar="PLACE", help="Where it begins: earliest, latest, or an ID.")]

groups: typer.Typer = typer.Typer(
    cls=VerbGroup, help="List, create, drop and move the groups of a channel.", no_args_is_help=True
)


@groups.command("list")
def list_groups(path: ChannelPath, as_json: AsJson = False) -> None:
    """List the groups with their positions, how far each is behind, and who owns it.

    Example: `spillable groups list /data/orders`

    Exit status: 0 done; 1 it failed; 2 no such channel.
    """
    from rich.console import Console
    from rich.table import Table

    from spillable_stream.channel.channel import Channel
    from spillable_stream.engine.owner_note import said_owner

    with ending(path, as_json), Channel(path, create=False, readonly=True) as channel:
        found = channel.stats().groups
        owners = {name: channel.port().owner_of(name).note for name in found}
        if as_json:
            said = {name: {**asdict(group), "owner": owners[name]} for name, group in found.items()}
            print_object({"path": path, "groups": said})
            return
        table = Table("group", "position", "lag", "in flight", "last owner", box=None)
        for name, group in found.items():
            table.add_row(
                name, str(group.position), f"{group.lag:,}", f"{group.in_flight:,}", said_owner(owners[name]) or "-"
            )
        width = None if sys.stdout.isatty() else _FILE_WIDTH
        Console(width=width, markup=False, emoji=False).print(table)  # an owner's note is anything


@groups.command("create")
def create_group(path: ChannelPath, group: _GroupName, start: _From = "earliest", yes: Yes = False) -> None:
    """Create a group, for which events wait from then on. One that exists stays as it is.

    Events wait for the first group of a channel. If that begins behind some of them, they leave: it asks first.

    Example: `spillable groups create /data/orders audit --from latest`

    Exit status: 0 it is there; 1 it failed, or the answer was no; 2 no such channel, no group can have this name, or
    --yes is missing.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path), Channel(path, create=False) as channel:
        if start not in ("earliest", "latest") and event_id(start) is None:
            raise OptionError(
                f"a group can't begin at {shown(start)}: give earliest, latest or an ID, and move it with 'groups seek'"
            )
        check_group(group)
        if left := _given_up(channel, start):
            lost = f"{counted(left, 'event')} that nobody has taken"
            confirm(path, f"Create {group!r} as the first group, and let {lost} leave the channel?", yes)
        position = channel.port().create_group(group, start)
        typer.echo(f"{path}: the group {group!r} takes the event {position + 1} next")


@groups.command("drop")
def drop_group(path: ChannelPath, group: _GroupName, yes: Yes = False) -> None:
    """Forget a group, so that it holds back no event. Events that no other group needs leave the channel.

    Example: `spillable groups drop /data/orders audit --yes`

    Exit status: 0 done; 1 it failed, or the answer was no; 2 no such channel or group, or --yes is missing.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path), Channel(path, create=False) as channel:
        found = channel.port().group(group)
        lag = channel.stats().groups[group].lag
        confirm(
            path,
            f"Drop the group {group!r} at {found.position}, which has yet to take {counted(lag, 'event')}?",
            yes or not lag,
        )
        channel.drop_group(group)
        typer.echo(f"{path}: the group {group!r} is dropped")


@groups.command("seek")
def seek_group(path: ChannelPath, group: _GroupName, place: _Place, yes: Yes = False) -> None:
    """Move a group: it takes every event from there on, also those that it has taken before.

    A move forward passes over events that the group has yet to take, and they may leave the channel: it asks first. A
    Spark query that reads as the group needs a new checkpoint then.

    Example: `spillable groups seek /data/orders audit 2026-01-31T09:30`

    Exit status: 0 done; 1 it failed, or the answer was no; 2 no such channel, group or place, or --yes is missing.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path), Channel(path, create=False) as channel:
        target = parse_place(place)
        channel.port().group(group)
        passed = _passed_over(channel, group, target)
        confirm(
            path,
            f"Move the group {group!r} forward over {counted(passed, 'event')} that it has yet to take?",
            yes or not passed,
        )
        before = _next_of(channel, group)
        typer.echo(f"{path}: the group {group!r} takes the event {channel.seek(group, target)} next")
        if channel.port().query_note(group) and _next_of(channel, group) != before:
            say(
                f"a Spark query reads as {group!r}, and its checkpoint no longer fits: seek back to {before}, or "
                "give it a new checkpointLocation"
            )


def _given_up(channel: Channel, start: str) -> int:
    """Return how many events leave if the first group begins at a place; 0 if there is a group that holds them."""
    stats = channel.stats()
    if stats.groups:
        return 0
    return min(stats.channel_size, max(0, channel.port().starting_position(start) + 1 - stats.first_id))


def _next_of(channel: Channel, group: str) -> str:
    """Return the place of the first event that a group has yet to take."""
    with channel.port().snapshot() as state:
        next_id = state.groups[group].position + 1
        return str(next_id) if next_id <= state.last_id else "latest"


def _passed_over(channel: Channel, group: str, target: SeekTarget) -> int:
    """Return how many events that a group has yet to take come before a place."""
    from spillable_stream.channel.seek_target import time_of
    from spillable_stream.state.ranges import count_of

    with channel.port().snapshot() as state:
        found, last_id = state.groups[group], state.last_id
    if isinstance(target, str):
        end = last_id if target == "latest" else 0
    else:
        wanted = event_id(target)
        end = (channel.port().first_id_since(time_of(target)) if wanted is None else wanted) - 1  # type: ignore[arg-type]
    return count_of(found.ahead.gaps(found.position + 1, min(end, last_id)))
