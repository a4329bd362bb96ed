"""The verbs about single events: ``tap`` and ``send``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from spillable_stream.cli.app import UNKNOWN, ending, fail, until_signal
from spillable_stream.cli.arguments import decoded, refuse_empty
from spillable_stream.cli.flow_options import (
    ClassMap,
    SystemProperties,
    conf_file_option,
    headers,
    loaded_configuration,
    pairs,
)
from spillable_stream.cli.input_source import InputSource, lines_of
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["send", "tap"]

_Rows: TypeAlias = "Iterator[dict[str, object]]"
_Put: TypeAlias = "Callable[[pa.RecordBatch], object]"
_COLUMNAR = "`spillable put` reads it"


def tap(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH|AGENT:COMPONENT", help="A channel, or a component of an agent that runs here."),
    ],
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many events.")] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Show each n-th event.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="HEADER=VALUE", callback=decoded, help="Only such events.")
    ] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the first event that is kept.")] = False,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="End at the last event.")] = False,
) -> None:
    """Print events as they come, a JSON object a line. Take nothing, and hold back nothing.

    A component is a source, which shows what comes to its interceptors, an interceptor as `r1.i1`, which shows what
    leaves it, a channel, or a sink, which shows what it has written.

    Example: `spillable tap /data/c1 --where level=ERROR`

    Example: `spillable tap a1:r1.i1 --every 100`

    Exit status: 0 it ended as asked, 1 an event can't be read, 2 there is no such channel or component, or the options
    do not go together.
    """
    from spillable_stream.flow.tap import shown_row

    if (is_component := _is_component(path)) and (from_start or no_follow):
        fail(
            path,
            OptionError("--from-start and --no-follow are for a channel's PATH; leave them out for a component"),
            False,
            UNKNOWN,
        )
    has_no_end = limit is None and not no_follow
    with ending(path), until_signal() if has_no_end else nullcontext():
        rows = _component_rows if is_component else _channel_rows
        with rows(path, every, headers(where), from_start, not no_follow) as found:
            for row in _limited(found, limit):
                typer.echo(shown_row(row))


def _limited(rows: _Rows, limit: int | None) -> _Rows:
    """Yield rows until there were so many events; one that says how many were skipped is none."""
    shown = 0
    for row in rows:
        yield row
        shown += row.keys() != {"skipped"}
        if shown == limit:
            return


def _is_component(path: str) -> bool:
    agent, colon, component = path.partition(":")
    return bool(agent and colon and component) and "/" not in path and not Path(path).exists()


@contextmanager
def _channel_rows(path: str, every: int, where: dict[str, str], from_start: bool, follow: bool) -> Iterator[_Rows]:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.flow.tap import tap as tapped

    with Channel(path, readonly=True) as channel:
        yield tapped(channel, from_start=from_start, follow=follow, every=every, where=where)


@contextmanager
def _component_rows(path: str, every: int, where: dict[str, str], *_: bool) -> Iterator[_Rows]:
    from spillable_stream.flow.tap_server import tap_component

    agent, _colon, component = path.partition(":")
    yield tap_component(agent, component, every=every, where=where)


def send(
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="The channel: its directory, or its address in a store.")
    ] = "",
    conf_file: Annotated[list[str] | None, conf_file_option("A configuration instead of a PATH.")] = None,
    name: Annotated[str, typer.Option("--name", "-n", metavar="AGENT", callback=decoded, help="The agent in it.")] = "",
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="SOURCE", callback=decoded, help="The source whose interceptors and channels to use."
        ),
    ] = "",
    define: SystemProperties = None,
    mapped: ClassMap = None,
    filename: Annotated[
        str,
        typer.Option("--filename", "-F", callback=refuse_empty("a file"), help="The file; standard input by default."),
    ] = "-",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="HEADER=VALUE", callback=decoded, help="A header of all events."),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Lines of a transaction, at most.")] = 1000,
) -> None:
    """Put the lines of a file, or of standard input, into a channel: each an event.

    With a configuration they go through the interceptors and the selector of a source, into its channels.

    Example: `spillable send /data/c1 --filename app.log --header host=web1`

    Example: `echo "ERROR disk full" | spillable send -f flume.conf -n a1 --source r1`

    Exit status: 0 all are stored, 1 it failed, 2 there is no such channel, source or file, or neither was said.
    """
    if bool(path) == bool(conf_file) or bool(conf_file) != bool(name and source):
        fail(path, OptionError("give a PATH, or --conf-file, --name and --source"), False, UNKNOWN)
    count, done = 0, "sent" if conf_file else "stored"
    with ending(path, interrupted=lambda: f"at least {counted(count, 'event', 'are')} {done}"):
        put = _put_into(path) if path else _put_through(conf_file or [], name, source, define, mapped)
        with put as put_batch, closing(InputSource(filename, compressed=True, columnar=_COLUMNAR)) as lines:
            for batch in _batches(lines, headers(header), batch_size):
                put_batch(batch)
                count += batch.num_rows
        typer.echo(f"{counted(count, 'event', 'are')} {done}")


@contextmanager
def _put_into(path: str) -> Iterator[_Put]:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.flow.pieces import put_in_pieces

    with Channel(path, create=False) as channel:
        most = channel.options["transaction_capacity"]

        def put(batch: pa.RecordBatch, _first: int) -> None:
            with channel.put_transaction() as transaction:
                transaction.put_batch(batch)

        def put_all(batch: pa.RecordBatch) -> None:
            for start in range(0, batch.num_rows, most):
                put_in_pieces(batch.slice(start, most), put)

        yield put_all


@contextmanager
def _put_through(
    files: list[str], name: str, source: str, define: list[str] | None, mapped: list[str] | None
) -> Iterator[_Put]:
    from spillable_stream.flow.assembly import opened_processor
    from spillable_stream.flow.configuration_files import runnable
    from spillable_stream.flow.pieces import put_in_pieces
    from spillable_stream.flow.sources.held import fitting

    loaded = loaded_configuration(files, name, define, mapped, False)
    with opened_processor(runnable(loaded, name), source, pairs(define)) as processor:

        def put(batch: pa.RecordBatch) -> None:
            for piece in fitting(processor, batch):
                put_in_pieces(piece, lambda some, _first: processor.process(some))

        yield put


def _batches(source: InputSource, headers: dict[str, str], most: int) -> Iterator[pa.RecordBatch]:
    """Yield lines as events, as they come."""
    import pyarrow as pa

    from spillable_stream.flow.sources.event_columns import event_batch

    for lines in lines_of(source):
        bodies = pa.array([line.removesuffix(b"\r") for line in lines], pa.binary())
        for first in range(0, len(bodies), most):
            yield event_batch(bodies[first : first + most], headers)
