"""The verbs about single events: ``tap`` and ``send``."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import IO, TYPE_CHECKING, Annotated

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, ChannelPath, app, fail
from spillable_stream.cli.flow_options import pairs
from spillable_stream.errors import SpillableError

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["send", "tap"]

_READ_BYTES = 1 << 20


@app.command()
def tap(
    path: ChannelPath,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many events.")] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Show each n-th event.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="HEADER=VALUE", help="Only such events.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the first event that is kept.")] = False,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="End at the last event.")] = False,
) -> None:
    """Print the events of a channel as they come, a JSON object a line. Nothing is taken or held back.

    Example: `spillable tap /data/c1 --where level=ERROR`

    Exit status: 0 it ended as asked, 1 an event can't be read.
    """
    from spillable_stream.channel.channel import Channel
    from spillable_stream.flow.tap import tap as tapped

    try:
        with Channel(path, readonly=True) as channel:
            rows = tapped(channel, from_start=from_start, follow=not no_follow, every=every, where=pairs(where))
            for row in islice(rows, limit):
                typer.echo(json.dumps(row, default=_shown))
    except SpillableError as e:
        fail(path, e, False, UNHEALTHY)
    except (BrokenPipeError, KeyboardInterrupt):
        raise typer.Exit(HEALTHY) from None


def _shown(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@app.command()
def send(
    path: ChannelPath,
    filename: Annotated[str, typer.Option("--filename", "-F", help="The file; standard input by default.")] = "-",
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="KEY=VALUE", help="A header of all events.")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Lines of a transaction, at most.")] = 1000,
) -> None:
    """Put the lines of a file, or of standard input, into a channel: each an event.

    Example: `spillable send /data/c1 --filename app.log --header host=web1`

    Exit status: 0 all are stored, 1 it failed.
    """
    from spillable_stream.channel.channel import Channel

    try:
        with Channel(path, create=False) as channel:
            if filename == "-":
                count = _send(channel, sys.stdin.buffer, pairs(header), batch_size)
            else:
                with open(filename, "rb") as file:
                    count = _send(channel, file, pairs(header), batch_size)
    except (SpillableError, OSError) as e:
        fail(path, e, False, UNHEALTHY)
    typer.echo(f"{count:,} events are stored")


def _send(channel: Channel, lines: IO[bytes], headers: dict[str, str], batch_size: int) -> int:
    """Put lines, and return how many there were."""
    from spillable_stream.flow.sources.event_columns import event_batch
    from spillable_stream.flow.sources.lines import split_lines

    count, held = 0, b""
    while True:
        data = lines.read(_READ_BYTES)
        held += data or (b"\n" if held else b"")
        split = split_lines(held, drop_cr=True)
        for first in range(0, len(split.starts), batch_size):
            bodies = split.bodies.slice(first, batch_size)
            with channel.put_transaction() as transaction:
                transaction.put_batch(event_batch(bodies, headers))
            count += len(bodies)
        held = held[split.size_bytes :]
        if not data:
            return count
