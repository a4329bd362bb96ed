"""The verbs of dead letters: ``dead-letters list``, ``dead-letters show`` and ``dead-letters replay``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.cli.app import AsJson, ending, print_object
from spillable_stream.cli.arguments import A_CHANNEL, group_name, refuse_empty
from spillable_stream.cli.wrong_calls import VerbGroup
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError
from spillable_stream.shown_value import printable

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.workers.letter_headers import Reason

__all__ = ["dead_letters"]

_Path = Annotated[
    str, typer.Argument(metavar="PATH", callback=refuse_empty(A_CHANNEL), help="The channel of dead letters.")
]
_Id = Annotated[int, typer.Argument(metavar="ID", min=1, help="The dead letter's write-order ID.")]
_To = Annotated[
    str, typer.Argument(metavar="TO", callback=refuse_empty(A_CHANNEL), help="The channel to put them back into.")
]
_Group = Annotated[
    str, typer.Option("--group", "-g", callback=group_name, help="The group that takes the dead letters.")
]
_Count = Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the first ones to list.")]

_ATTEMPTS = re.compile("[0-9]{1,18}")  # a header may say anything

dead_letters: typer.Typer = typer.Typer(
    cls=VerbGroup,
    help="List, show and put back the events that producers, workers and the flow put aside.",
    no_args_is_help=True,
)


@dead_letters.command("list")
def list_letters(path: _Path, group: _Group = "default", count: _Count = 20, as_json: AsJson = False) -> None:
    """List the dead letters that a group has yet to take: why each was put aside, and where it comes from.

    Example: `spillable dead-letters list /data/orders-dead`

    Exit status: 0 done; 1 it failed; 2 no such channel.
    """
    from spillable_stream.workers.letter_headers import reason_of

    with ending(path, as_json), _opened(path) as channel:
        found = [letter for letter, _ in zip(_letters(channel, group), range(count), strict=False)]
        if as_json:
            print_object({"path": path, "letters": [{"id": i, "headers": h} for i, h, _ in found]})
            return
        for line in _lines([(event_id, reason_of(headers)) for event_id, headers, _ in found]):
            typer.echo(line)


@dead_letters.command("show")
def show_letter(path: _Path, letter: _Id, as_json: AsJson = False) -> None:
    """Show one dead letter: all of its headers, and its body.

    Example: `spillable dead-letters show /data/orders-dead 17`

    Exit status: 0 done; 1 it failed, or the event has left; 2 no such channel or event.
    """
    from spillable_stream.cli.event_text import json_row

    with ending(path, as_json), _opened(path) as channel:
        batch = next(channel.read(letter, letter), None)
        if batch is None:
            raise OptionError(f"{path} has no event {letter}")
        (row,) = batch.to_pylist(maps_as_pydicts="lossy")
        if as_json:
            typer.echo(json_row({"id": letter, "headers": row["headers"] or {}, "body": row["body"]}).decode())
            return
        for name, value in (row["headers"] or {}).items():
            typer.echo("\n".join(map(printable, f"{name}: {value}".split("\n"))))
        typer.echo()
        typer.echo(row["body"])


@dead_letters.command("replay")
def replay_letters(path: _Path, to: _To, group: _Group = "default", as_json: AsJson = False) -> None:
    """Put all dead letters back into a channel, each once, in order, without the headers that were added to them.

    One that was interrupted is continued by the same command.

    Example: `spillable dead-letters replay /data/orders-dead /data/orders`

    Exit status: 0 all are put back; 1 it failed, and the same command continues; 2 no such channel.
    """
    from spillable_stream.dead_letters import replay

    with ending(path, as_json, lambda: "what was put back stays; the same command continues"):
        count = replay(path, to, group=group)
        if as_json:
            print_object({"path": path, "to": to, "events": count})
        else:
            typer.echo(f"{to}: {counted(count, 'event')} put back")


@contextmanager
def _opened(path: str) -> Iterator[Channel]:
    """Open a channel of dead letters, only to look.

    Raises:
        SchemaError: it holds rows, which no dead letter is.
    """
    from spillable_stream.channel.channel import Channel
    from spillable_stream.workers.letters import not_for_letters

    with Channel(path, create=False, readonly=True) as channel:
        if channel.typed:
            raise not_for_letters(path)
        yield channel


def _lines(letters: Iterable[tuple[int, Reason]]) -> Iterator[str]:
    """Yield why events are dead letters: a line for each with a reason, and one for those between that have none."""
    for has_reason, group in groupby(letters, lambda letter: bool(letter[1].error or letter[1].origin)):
        run = list(group)
        if has_reason:
            yield from (f"{event_id}: {_line(reason)}" for event_id, reason in run)
        elif len(run) == 1:
            yield f"{run[0][0]}: an event without a reason: no worker, producer or flow put it here"
        else:
            which = f"{run[0][0]} to {run[-1][0]}: {counted(len(run), 'event')}"
            yield f"{which} without a reason: no worker, producer or flow put them here"


def _line(reason: Reason) -> str:
    origin = f"from {reason.origin}" + (f" event {reason.event}" if reason.event else "")
    tries = f", {counted(int(reason.attempts), 'attempt')}" if _ATTEMPTS.fullmatch(reason.attempts) else ""
    return printable(f"{reason.error.partition(chr(10))[0]} ({origin}{tries})")


def _letters(channel: Channel, group: str) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Yield the dead letters that a group has yet to take, in order: ID, headers and body."""
    known = group in channel.stats().groups
    for batch in channel.read(group=group if known else None):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield row["write_order_id"], row["headers"] or {}, row["body"]
