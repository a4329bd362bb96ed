"""The verbs of copies: ``backup`` and ``restore``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spillable_stream.channel.figures import size_text
from spillable_stream.cli.app import AsJson, confirm, ending, print_object
from spillable_stream.cli.arguments import ChannelPath, Yes
from spillable_stream.cli.shown_progress import shown_progress
from spillable_stream.counted import counted

__all__ = ["backup", "restore"]

_Copy = Annotated[str, typer.Argument(metavar="COPY", help="The backup: a directory, or an address in a store.")]
_To = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Its place, missing or empty: a directory, or an address in a store.",
    ),
]
_New = Annotated[bool, typer.Option("--new-identity", help="Create a second channel, with a UUID of its own.")]


def backup(path: ChannelPath, copy: _Copy, as_json: AsJson = False) -> None:
    """Copy a channel, in use or not, as it is at one moment: all events of both tiers, groups, options and producers.

    Again to the same place, it copies only the events that came since. A backup counts when it is whole and was read
    again; one that was interrupted leaves the one before in place.

    Example: `spillable backup /data/orders s3://backups/orders`

    Exit status: 0 it is created; 1 it is not, and the one before still counts; 2 no such channel or place.
    """
    from spillable_stream.archive.backup import backup as back_up

    with ending(path, as_json, lambda: f"{copy} has this backup whole, or the one before; run it again"):
        with shown_progress("backup") as progress:
            report = back_up(path, copy, progress=progress)
        if as_json:
            print_object(asdict(report) | {"copy": copy, "source": path})
            return
        kept = f", {counted(report.kept_files, 'file')} already there" if report.kept_files else ""
        typer.echo(f"{copy}: backup {report.number} has {path} up to the event {report.last_id}")
        typer.echo(f"copied {counted(report.copied_events, 'event')}, {size_text(report.copied_bytes)}{kept}")
        if report.delayed_events:
            typer.echo(f"delayed until they are due: {counted(report.delayed_events, 'event')}")


def restore(copy: _Copy, path: _To, new_identity: _New = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Create a channel from a backup, and verify it. It keeps the original's UUID, or gets its own with --new-identity.

    Nothing is ever overwritten: PATH is missing or empty. While the original is where it was, --new-identity is needed.
    What another restore to an address began and did not finish is replaced: on a terminal it asks, elsewhere it needs
    --yes.

    Example: `spillable restore s3://backups/orders /data/orders`

    Exit status: 0 the channel is there; 1 it is not; 2 there is no backup, no channel can be at PATH, or no --yes.
    """
    from spillable_stream.archive.restore import restore as make_channel

    def may_replace(what: str) -> bool:
        confirm(path, f"{what}. Remove it, and restore there?", yes)
        return True

    with ending(path, as_json, lambda: f"{path} is there and whole, or not at all: then run it again"):
        with shown_progress("restore") as progress:
            report = make_channel(copy, path, new_identity=new_identity, progress=progress, may_replace=may_replace)
        if as_json:
            print_object(asdict(report) | {"path": path})
            return
        identity = "as a second channel" if report.is_new else "as its successor"
        said = f"{path}: restored {identity}, {report.channel}, as it was at {report.taken_at}"
        typer.echo(f"{said}: {counted(report.events, 'event')}, up to the event {report.last_id}")
        if report.delayed_events:
            typer.echo(f"delayed until they are due: {counted(report.delayed_events, 'event')}")
