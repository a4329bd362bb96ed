"""What a load reads: lines, JSON lines, CSV, Parquet and Arrow, from files and standard input, as Arrow batches.

A line of text, and one of JSON, is a row. The rows of an input are the same ones, in the same order, however it is
divided into batches, so that a load can be run again (`spillable_stream.cli.numbered_load`).
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.cli.csv_input import CsvInput
from spillable_stream.cli.csv_rows import delimiter_of
from spillable_stream.cli.input_source import (
    CHUNK_BYTES,
    COMPRESSIONS,
    InputSource,
    SourceInput,
    WholeReads,
    check_columns,
    error_text,
    lines_of,
    read_batches,
    read_first_line,
)
from spillable_stream.cli.json_input import JsonInput
from spillable_stream.errors import OptionError, SchemaError, SpillableError
from spillable_stream.format.types import NOT_ARROW, leaves

__all__ = ["Format", "Input", "format_of", "open_input"]

_ARROW_FILE = b"ARROW1"
_UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)


class Format(StrEnum):
    """The formats of an input, by the words of ``--format``."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


_ENDINGS = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}


def format_of(file: str) -> Format:
    """Return the format that a file's name ends with, `Format.LINES` for any other; ``.gz`` and the like are passed."""
    path = Path(file.lower())
    if path.suffix in COMPRESSIONS:
        path = path.with_suffix("")
    return _ENDINGS.get(path.suffix, Format.LINES)


class Input(Protocol):
    """One input, which is read once.

    Attributes:
        schema: the columns of its batches.
        unit: what its size counts: "bytes" or "rows".
    """

    schema: pa.Schema
    unit: str

    @property
    def size(self) -> int | None:
        """How much there is to read; None if that is not known."""

    @property
    def done(self) -> int:
        """How much of that was read."""

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns, where the format itself has none; before `batches`."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in order.

        Raises:
            SchemaError: the input is not what its format says; names the line or the row.
        """

    def has_more_now(self) -> bool:
        """Tell whether reading on would not wait for whoever writes the input."""

    def close(self) -> None:
        """Close the file."""


def open_input(
    file: str,
    kind: Format,
    schema: pa.Schema | None,
    *,
    as_rows: bool,
    may_add_columns: bool = False,
    delimiter: str | None = None,
    is_told: bool = False,
) -> Input:
    """Open an input.

    Args:
        file: its path, or "-" for standard input.
        kind: its format.
        schema: the columns of the typed channel that it goes to; None to infer the types of JSON and CSV.
        as_rows: whether lines of JSON, and CSV with the columns of events, become rows, rather than events.
        may_add_columns: whether JSON and CSV may have others, whose types are inferred.
        delimiter: the character between values of CSV; None for what the file's name says.
        is_told: whether somebody has said that it has this format, whatever it looks like.

    Raises:
        OptionError: the file can't be opened.
        SchemaError: it is not of this format, or has two columns of one name.
    """
    source = InputSource(file, compressed=kind in (Format.LINES, Format.JSONL, Format.CSV))
    try:
        known = pa.schema([]) if schema is None else schema
        more = schema is None or may_add_columns
        if kind is Format.CSV:
            delimiter = delimiter or delimiter_of(file)
            found: Input = CsvInput(source, known, more=more, delimiter=delimiter, as_rows=as_rows)
        else:
            found = _input_of(source, kind, known, as_rows=as_rows, more=more, is_told=is_told)
        check_columns(found.schema.names, source.name)
        return found
    except BaseException as e:
        source.close()
        if isinstance(e, NOT_ARROW) and not isinstance(e, SpillableError):
            raise SchemaError(f"{source.name} can't be read as {kind}: {error_text(e)}") from e
        raise


def _input_of(
    source: InputSource, kind: Format, known: pa.Schema, *, as_rows: bool, more: bool, is_told: bool
) -> Input:
    if kind is Format.LINES or (kind is Format.JSONL and not as_rows):
        return _LineInput(source, is_json=kind is Format.JSONL, is_told=is_told)
    if kind is Format.JSONL:
        return JsonInput(source, known, more=more)
    return _ParquetInput(source, known) if kind is Format.PARQUET else _ArrowInput(source)


class _LineInput(SourceInput):
    """Lines of text, each of them the body of an event, without its end; JSON without the mark of UTF-8.

    The first line tells whether these are the lines of one JSON document, and no events.
    """

    def __init__(self, source: InputSource, *, is_json: bool, is_told: bool) -> None:
        super().__init__(source)
        self._beginning = read_first_line(source)
        if self._beginning.startswith(_UTF_16):
            raise ValueError("it begins with the mark of UTF-16: convert it to UTF-8")
        if is_json:
            self._beginning = self._beginning.removeprefix(BOM_UTF8)
        if is_json or not is_told:
            _require_lines(source.name, self._beginning, is_json=is_json)
        self.schema = batch_from_columns([], {}).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        lines = lines_of(self._source, self._beginning)
        yield from read_batches((batch_from_columns(some, {}) for some in lines), self._source.name, "lines")


def _require_lines(name: str, beginning: bytes, *, is_json: bool) -> None:
    """Refuse a document of JSON that is over many lines: each of them would be an event."""
    first, end, _ = beginning.lstrip().partition(b"\n")
    if not first or (not end and len(beginning) >= CHUNK_BYTES):  # a longer one
        return
    try:
        if is_json:
            json.loads(first.decode(errors="surrogateescape"))
        elif first.strip() in (b"{", b"["):
            raise ValueError
    except RecursionError:
        pass
    except ValueError:
        raise SchemaError(
            f"{name} begins with a line that is not a whole value of JSON, and each line would be an event. Bring each "
            "value into one line, as jq -c . does, and jq -c '.[]' with the elements of an array; or give --format "
            "lines to store the lines as text"
        ) from None


class _ParquetInput:
    """A Parquet file; its rows are counted.

    Parquet has no times in whole seconds: they come in milliseconds, and go back into a column of seconds.

    Args:
        source: the file.
        known: the columns of the channel that it goes to, if that is there.
    """

    def __init__(self, source: InputSource, known: pa.Schema) -> None:
        from pyarrow import parquet

        if not source.is_file:
            raise OptionError(f"{source.name} is not a file: Parquet is read from its end; save it, and give the file")
        self._source = source
        self._file = parquet.ParquetFile(source.raw)
        self.schema: pa.Schema = _in_seconds(self._file.schema_arrow, known)
        self.unit: str = "rows"
        self.size: int | None = self._file.metadata.num_rows
        self.done = 0

    def fit(self, schema: pa.Schema) -> None:
        pass

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in read_batches(self._file.iter_batches(10_000), self._source.name, "Parquet"):
            self.done += batch.num_rows
            yield _cast(batch, self.schema)

    def has_more_now(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()


def _in_seconds(found: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return the columns of a Parquet file, with times in seconds where the channel has them, at any depth."""

    def fitted(field: pa.Field) -> pa.Field:
        at = known.get_field_index(field.name)
        if at < 0 or [*leaves(known.field(at).type)] == [*leaves(field.type)]:
            return field
        is_same = [*map(_as_in_parquet, leaves(known.field(at).type))] == [*leaves(field.type)]
        return field.with_type(known.field(at).type) if is_same else field

    return pa.schema([fitted(field) for field in found], found.metadata)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except pa.ArrowNotImplementedError:  # of list views
        return pa.RecordBatch.from_pylist(batch.to_pylist(), schema)


def _as_in_parquet(of: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(of) and of.unit == "s":
        return pa.timestamp("ms", of.tz)
    return pa.time32("ms") if of == pa.time32("s") else of


class _ArrowInput(SourceInput):
    """A stream, or a file, of Arrow's IPC format."""

    def __init__(self, source: InputSource) -> None:
        super().__init__(source)
        if source.is_file:
            is_file = source.raw.read(len(_ARROW_FILE)) == _ARROW_FILE
            source.raw.seek(0)
            if is_file:
                opened = pa.ipc.open_file(source.raw)
                self.schema = opened.schema
                self._batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
                return
        stream = pa.ipc.open_stream(WholeReads(source))
        self.schema = stream.schema
        self._batches = iter(stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from read_batches(self._batches, self._source.name, "Arrow")
