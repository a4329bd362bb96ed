"""The verb ``put``: loads files and standard input into a channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.channel.due_time import due_ms
from spillable_stream.channel.ttl import ttl_us
from spillable_stream.cli.app import AsJson, ending, print_object
from spillable_stream.cli.arguments import ChannelPath, decoded, refuse_empty, time_span
from spillable_stream.cli.csv_rows import csv_delimiter
from spillable_stream.cli.input_source import STANDARD_INPUT, are_of_events
from spillable_stream.cli.load_input import Format, Input, format_of, open_input
from spillable_stream.cli.output import say
from spillable_stream.cli.shown_progress import shown_progress
from spillable_stream.counted import counted
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from spillable_stream.channel.channel import Channel
    from spillable_stream.cli.numbered_load import Load

__all__ = ["put"]

_File = Annotated[
    str,
    typer.Argument(
        metavar="[FILE | -]",
        callback=refuse_empty("a file, or - for standard input"),
        help="What to load; - for standard input.",
    ),
]
_Typed = Annotated[bool, typer.Option("--typed", help="Create a typed channel of the columns, or add new ones to it.")]
_Format = Annotated[Format | None, typer.Option("--format", help="The format; by default what the name ends with.")]
_Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="CHARACTER", help="The character between values of CSV, as ';' or tab."),
]
_Name = Annotated[
    str | None,
    typer.Option("--name", callback=decoded, help="The load's name, so that standard input can be given again."),
]


_Ttl = Annotated[
    float | None,
    typer.Option(
        "--ttl",
        metavar="TIME",
        parser=time_span(),
        help="For how long the events count, as 90 or 2h; by default forever.",
    ),
]

_DeliverAfter = Annotated[
    float | None,
    typer.Option(
        "--deliver-after", metavar="TIME", parser=time_span(), help="How long no take sees the events, as 90 or 2h."
    ),
]


def put(
    path: ChannelPath,
    file: _File = STANDARD_INPUT,
    typed: _Typed = False,
    kind: _Format = None,
    delimiter: _Delimiter = None,
    name: _Name = None,
    ttl: _Ttl = None,
    deliver_after: _DeliverAfter = None,
    as_json: AsJson = False,
) -> None:
    """Put a file, or standard input, into a channel, which is created if it is missing.

    Each line is an event. With --typed, and in a typed channel, each row of JSON lines, CSV, Parquet or Arrow is one.
    In a channel of events a row of CSV, Parquet or Arrow becomes a JSON object, unless its columns are headers and
    body.

    Each row of a file is stored once, also if you run the same command again after an interrupt. So is each row of
    standard input, or of a pipe, with --name. A file that grew is continued; one that changed is refused, and needs a
    --name of its own.

    Example: `spillable put /data/orders orders.jsonl --typed`

    Example: `spillable put /data/sales sales.csv --typed --delimiter ';'`

    Example: `journalctl -f -o json | spillable put /data/journal`

    Exit status: 0 all is stored; 1 it is not, and the same command continues; 2 no such file, channel or option.
    """
    stands, load, report = "nothing was stored", None, None
    with ending(path, as_json, lambda: stands, lambda: {"stored": 0} if report is None else report.to_json()):
        is_told, kind = kind is not None, kind or format_of(file)
        delimiter = csv_delimiter(delimiter, is_csv=kind is Format.CSV)
        if typed:
            _require_columns(file, kind, "--typed makes columns of rows")
        ttl_us(ttl)  # refused before anything is created
        due_ms(deliver_after, None, 0)
        channel, source = _opened(path, file, kind, delimiter, typed, is_told)
        with channel:
            try:
                load = _load(channel, source, file, name, ttl, deliver_after)
                with shown_progress("load") as progress:
                    report = load.run(progress)
            except Exception as e:
                report = None if load is None else load.report()
                if load is not None and load.stored and not as_json:
                    say(_stands(load, load.skipped + load.stored, is_faulty=isinstance(e, SchemaError)))
                raise
            except KeyboardInterrupt:
                if load is not None:
                    report = load.so_far()
                    stands = _stands(load, report.skipped + report.stored)
                raise
            finally:
                source.close()
            stands = _stands(load, load.skipped + load.stored)
        if as_json:
            print_object({"path": path, **report.to_json()})
        else:
            before = f"; {report.skipped:,} stored before" if report.skipped else ""
            ids = f", {report.first_id} to {report.last_id}" if report.last_id else ""
            typer.echo(f"{path}: stored {counted(report.stored, 'event')}{ids}{before}")


def _stands(load: Load, rows: int, *, is_faulty: bool = False) -> str:
    """Return where a load stands, and what to do.

    Args:
        load: the load.
        rows: how many of its rows are stored.
        is_faulty: whether the next ones can't be.
    """
    if load.name:
        mended = " once the rest is corrected" if is_faulty else ""
        return f"{counted(rows, 'row', 'are')} stored; the same command continues{mended}"
    more = f", and perhaps {load.unsettled:,} more" if load.unsettled else ""
    return f"{counted(rows, 'row', 'are')} stored{more}; what was read of standard input, or a pipe, is not read again"


def _opened(
    path: str, file: str, kind: Format, delimiter: str | None, typed: bool, is_told: bool
) -> tuple[Channel, Input]:
    """Open the channel and the input, and create a channel that is missing; nothing is created if there is no input."""
    from spillable_stream.channel.channel import Channel

    opened = partial(open_input, file, kind, delimiter=delimiter, is_told=is_told)
    try:
        channel = Channel(path, create=False)
    except NotAChannelError:
        source = opened(None, as_rows=typed)
        schema = _columns(source) if typed else None
        channel = Channel(path, schema=schema)
        if typed:
            source.fit(channel.schema)
        return channel, source
    try:
        if channel.typed:
            _require_columns(file, kind, f"{channel.path} has columns")
        elif typed:
            raise OptionError(f"{channel.path} is an event channel, to which --typed can't add columns: leave it out")
        columns = channel.schema if channel.typed else None
        source = opened(columns, as_rows=channel.typed, may_add_columns=typed)
        if typed:
            channel.evolve(_with_columns_of(channel.schema, _columns(source)))
            source.fit(channel.schema)
    except BaseException:
        channel.close()
        raise
    return channel, source


def _require_columns(file: str, kind: Format, why: str) -> None:
    """Refuse lines of text where there are columns.

    Raises:
        OptionError: the input would be read line by line.
    """
    if kind is Format.LINES:
        name = "standard input" if file == STANDARD_INPUT else file
        raise OptionError(
            f"{why}, and {name} is read as lines of text, which have none: give --format jsonl, csv, parquet or arrow"
        )


def _columns(source: Input) -> pa.Schema:
    import pyarrow as pa

    from spillable_stream.channel.event import ID_COLUMN

    return pa.schema([field for field in source.schema if field.name != ID_COLUMN])


def _with_columns_of(schema: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """Return the columns of an input, and those of a channel that it leaves out, as a put may."""
    for field in schema:
        if field.nullable and field.name not in columns.names:
            columns = columns.append(field)
    return columns


def _load(
    channel: Channel, source: Input, file: str, name: str | None, ttl: float | None, deliver_after: float | None
) -> Load:
    from spillable_stream.cli.numbered_load import Load, load_name

    is_again = file != STANDARD_INPUT and os.path.isfile(file)  # a pipe has other rows the next time
    numbered = load_name(file, name) if is_again or name is not None else ""
    called = file if name is None else f"the input of the load {name!r}"
    return Load(channel, source, _as_events(channel, source), numbered, ttl, deliver_after, called)


def _as_events(channel: Channel, source: Input) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return what makes events of the input's batches."""
    from spillable_stream.channel.event import ID_COLUMN

    if channel.typed:
        names = {*channel.schema.names, ID_COLUMN}
        return lambda batch: _of_columns(batch, names)
    if are_of_events(source.schema.names):
        return lambda batch: batch
    return _as_json


def _as_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return events whose bodies are the rows of a batch.

    Raises:
        SchemaError: Python has no object for a value, such as a time after the year 9999.
    """
    from spillable_stream.channel.event_columns import batch_from_columns
    from spillable_stream.cli.event_text import json_row, rows_of
    from spillable_stream.format.types import NOT_ARROW

    try:
        bodies = [*map(json_row, rows_of(batch))]
    except NOT_ARROW as e:
        raise SchemaError(f"a row can't be written as JSON ({e}): a new channel with --typed has its columns") from e
    return batch_from_columns(bodies, {})


def _of_columns(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Return a batch whose columns are among these: a refusal of the channel advises what only Python can do."""
    for name in batch.schema.names:
        if name not in names:
            raise SchemaError(f"the channel has no column {shown(name)}: leave it out, or give --typed to add it")
    return batch
