"""What a load reads: lines, JSON lines, CSV, Parquet and Arrow, from files and standard input, as Arrow batches.

A line of text, and one of JSON, is a row. The rows of an input are the same ones, in the same order, however it is
divided into batches, so that a load can be run again (`spillable_stream.cli.numbered_load`).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.channel.taken_events import ID_FIELD
from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.readiness import has_input

__all__ = ["STANDARD_INPUT", "Format", "Input", "format_of", "open_input"]

STANDARD_INPUT = "-"

_CHUNK_BYTES = 1 << 20
_ARROW_FILE = b"ARROW1"


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
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def format_of(file: str) -> Format:
    """Return the format that a file's name ends with, `Format.LINES` for any other; ``.gz`` and the like are passed."""
    path = Path(file.lower())
    if path.suffix in _COMPRESSIONS:
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


def open_input(file: str, kind: Format, schema: pa.Schema | None, *, as_rows: bool) -> Input:
    """Open an input.

    Args:
        file: its path, or "-" for standard input.
        kind: its format.
        schema: the columns of the typed channel that it goes to; None to infer the types of JSON and CSV.
        as_rows: whether lines of JSON become rows, rather than the bodies of events.

    Raises:
        OptionError: the file can't be opened.
        SchemaError: it is not of this format, or has two columns of one name.
    """
    source = _Source(file, compressed=kind in (Format.LINES, Format.JSONL, Format.CSV))
    try:
        found = _input_of(source, kind, schema, as_rows=as_rows)
        names = found.schema.names
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise SchemaError(f"{source.name} has more than one column {twice[0]!r}: rename all but one")
        return found
    except NOT_ARROW as e:
        source.close()
        raise SchemaError(f"{source.name} can't be read as {kind}: {e}") from e
    except BaseException:
        source.close()
        raise


def _input_of(source: _Source, kind: Format, schema: pa.Schema | None, *, as_rows: bool) -> Input:
    if kind is Format.LINES or (kind is Format.JSONL and not as_rows):
        return _LineInput(source)
    if kind is Format.JSONL:
        return _JsonInput(source, schema)
    if kind is Format.CSV:
        return _CsvInput(source, schema)
    return _ParquetInput(source) if kind is Format.PARQUET else _ArrowInput(source)


class _Source(io.RawIOBase):
    """The bytes of an input, decompressed; counts those that were read of the file."""

    def __init__(self, file: str, *, compressed: bool) -> None:
        self.name = "standard input" if file == STANDARD_INPUT else file
        try:
            self.raw: IO[bytes] = sys.stdin.buffer if file == STANDARD_INPUT else open(file, "rb", buffering=0)  # noqa: SIM115 - closed by close
        except OSError as e:
            raise OptionError(f"{file} can't be read: {e.strerror}; give a file, or - for standard input") from e
        self.is_file = file != STANDARD_INPUT and os.path.isfile(file)
        self.size: int | None = os.fstat(self.raw.fileno()).st_size if self.is_file else None
        self.done = 0
        self._owned = file != STANDARD_INPUT
        kind = _COMPRESSIONS.get(Path(file).suffix.lower()) if compressed else None
        self._is_plain = kind is None
        self._decoded = None if kind is None else pa.CompressedInputStream(pa.PythonFile(_Counted(self), "r"), kind)

    def readable(self) -> bool:
        return True

    def raw_read(self, size: int) -> bytes:
        """Read bytes of the file as they are, fewer where there are no more now."""
        read = getattr(self.raw, "read1", self.raw.read)
        data: bytes = read(size if size >= 0 else _CHUNK_BYTES) or b""
        self.done += len(data)
        return data

    def read(self, size: int = -1) -> bytes:
        """Read decompressed bytes, fewer where there are no more now; none at the end."""
        return self.raw_read(size) if self._decoded is None else bytes(self._decoded.read(size))

    def has_more_now(self) -> bool:
        """Tell whether a read would return at once."""
        if self.is_file or not self._is_plain:
            return True
        try:
            return has_input(self.raw)
        except (OSError, ValueError):  # it has no descriptor that can be asked
            return True

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self._owned:
            self.raw.close()
        super().close()


class _Counted(io.RawIOBase):
    """The bytes of a source as they are in the file, for what decompresses them."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.raw_read(size)


class _SourceInput:
    """What inputs of bytes share."""

    schema: pa.Schema
    unit = "bytes"

    def __init__(self, source: _Source) -> None:
        self._source = source

    def fit(self, schema: pa.Schema) -> None:
        pass

    @property
    def size(self) -> int | None:
        return self._source.size

    @property
    def done(self) -> int:
        return self._source.done

    def has_more_now(self) -> bool:
        return self._source.has_more_now()

    def close(self) -> None:
        self._source.close()


class _LineInput(_SourceInput):
    """Lines of text, each of them the body of an event, without its end."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)
        self.schema = batch_from_columns([], {}).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from _read((batch_from_columns(lines, {}) for lines in _lines(self._source)), self._source.name, "lines")


def _lines(source: _Source) -> Iterator[list[bytes]]:
    """Yield the lines of a source without their ends, as many as were read at once; the last one may lack its end."""
    parts: list[bytes] = []
    while data := source.read(_CHUNK_BYTES):
        lines = data.split(b"\n")
        parts.append(lines[0])
        if len(lines) > 1:
            lines[0] = b"".join(parts)
            parts = [lines.pop()]
            yield lines
    if last := b"".join(parts):
        yield [last]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Lines of JSON, and the number of the first one."""

    first: int
    lines: list[bytes]


class _JsonInput(_SourceInput):
    """Lines of JSON, each of them a row; the first of them say which columns there are."""

    def __init__(self, source: _Source, schema: pa.Schema | None) -> None:
        super().__init__(source)
        self._rest = self._numbered_lines()
        self._first = next(self._rest, None)
        if self._first is None and schema is None:
            raise SchemaError(f"{source.name} has no rows that say which columns a typed channel has")
        if schema is None:
            assert self._first is not None
            schema = _without_nulls(self._parsed(self._first, None).schema)
        self.schema = schema

    def fit(self, schema: pa.Schema) -> None:
        self.schema = schema

    def _numbered_lines(self) -> Iterator[_Rows]:
        number = 1
        for lines in _lines(self._source):
            yield _Rows(number, lines)
            number += len(lines)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._first is not None:
            yield from self._parsed(self._first, self.schema).to_batches()
        for rows in self._rest:
            yield from self._parsed(rows, self.schema).to_batches()

    def _parsed(self, rows: _Rows, schema: pa.Schema | None) -> pa.Table:
        from pyarrow import json

        lines = [line for line in rows.lines if line.strip()]
        if not lines:
            return (schema or pa.schema([])).empty_table()
        data = b"\n".join(lines)
        # The IDs are a column that an export adds.
        known = schema if schema is None or ID_COLUMN in schema.names else schema.append(ID_FIELD)
        try:
            table = json.read_json(
                pa.BufferReader(data),
                json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                json.ParseOptions(known, unexpected_field_behavior="infer" if schema is None else "error"),
            )
        except NOT_ARROW as e:
            raise self._refusal(rows, known, f"not JSON of the channel's columns: {e}") from e
        if table.num_rows != len(lines):
            raise self._refusal(rows, known, f"{len(lines):,} lines hold {table.num_rows:,} objects")
        return table.select(schema.names) if schema is not None else table

    def _refusal(self, rows: _Rows, schema: pa.Schema | None, otherwise: str) -> SchemaError:
        """Return the error that names the line at fault, or all lines and something else where none is."""
        where = f"lines {rows.first:,} to {rows.first + len(rows.lines) - 1:,}"
        return SchemaError(f"{self._source.name}, {_fault(rows, schema) or f'{where}: {otherwise}'}")


def _fault(rows: _Rows, schema: pa.Schema | None) -> str:
    """Return which line is not an object, or has a column that the channel does not have; "" if that is in none."""
    import json

    for number, line in enumerate(rows.lines, rows.first):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            return f"line {number:,}: not a whole JSON object: {e}"
        if not isinstance(row, dict):
            return f"line {number:,}: not a JSON object, but a {type(row).__name__}: write an object on each line"
        unknown = [name for name in row if schema is not None and name not in schema.names]
        if unknown:
            what = f"the channel has no column {unknown[0]!r}: leave it out, or give --typed to add it"
            return f"line {number:,}: {what}"
    return ""


def _without_nulls(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns that never had a value are of strings."""
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in schema])


class _CsvInput(_SourceInput):
    """CSV with a line of names; its first block decides the types of the columns."""

    def __init__(self, source: _Source, schema: pa.Schema | None) -> None:
        super().__init__(source)
        self._beginning = b""
        self.schema = self._inferred() if schema is None else schema

    def _inferred(self) -> pa.Schema:
        while len(self._beginning) < _CHUNK_BYTES and (data := self._source.read(_CHUNK_BYTES)):
            self._beginning += data
        complete = self._beginning[: self._beginning.rfind(b"\n") + 1] or self._beginning
        # Not a file of Python's: a thread that reads ahead of an error would be in Python as that ends, and abort it.
        schema = _csv_reader(pa.BufferReader(complete), None).schema
        try:
            return _without_nulls(pa.schema([(f.name, f.type) for f in schema]))
        except UnicodeDecodeError as e:
            raise SchemaError(
                f"{self._source.name} can't be read as csv: its columns' names are not UTF-8; convert it"
            ) from e

    def fit(self, schema: pa.Schema) -> None:
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        def read() -> Iterator[pa.RecordBatch]:
            yield from _csv_reader(_Joined(self._beginning, self._source), self.schema)

        yield from _read(read(), self._source.name, "CSV")


def _csv_reader(file: pa.NativeFile | io.RawIOBase, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Return a reader of CSV whose columns are of a schema's types, or of those that the first block suggests."""
    from pyarrow import csv

    types = None if schema is None else {field.name: field.type for field in schema}
    return csv.open_csv(
        file,
        csv.ReadOptions(use_threads=False, block_size=_CHUNK_BYTES),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False),
    )


class _Joined(io.RawIOBase):
    """Bytes that were read before, and then the rest of their source."""

    def __init__(self, beginning: bytes, source: _Source) -> None:
        self._beginning = io.BytesIO(beginning)
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._beginning.read(len(buffer)) or self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _ParquetInput:
    """A Parquet file; its rows are counted."""

    def __init__(self, source: _Source) -> None:
        from pyarrow import parquet

        if not source.is_file:
            raise OptionError(f"{source.name} is not a file: Parquet is read from its end; save it, and give the file")
        self._source = source
        self._file = parquet.ParquetFile(source.raw)
        self.schema: pa.Schema = self._file.schema_arrow
        self.unit: str = "rows"
        self.size: int | None = self._file.metadata.num_rows
        self.done = 0

    def fit(self, schema: pa.Schema) -> None:
        pass

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in _read(self._file.iter_batches(10_000), self._source.name, "Parquet"):
            self.done += batch.num_rows
            yield batch

    def has_more_now(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()


class _ArrowInput(_SourceInput):
    """A stream, or a file, of Arrow's IPC format."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)
        if source.is_file:
            is_file = source.raw.read(len(_ARROW_FILE)) == _ARROW_FILE
            source.raw.seek(0)
            if is_file:
                opened = pa.ipc.open_file(source.raw)
                self.schema = opened.schema
                self._batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
                return
        stream = pa.ipc.open_stream(_Joined(b"", source))
        self.schema = stream.schema
        self._batches = iter(stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from _read(self._batches, self._source.name, "Arrow")


def _read(batches: Iterator[pa.RecordBatch], name: str, kind: str) -> Iterator[pa.RecordBatch]:
    """Yield batches, and name the input where it can't be read."""
    rows = 0
    try:
        for batch in batches:
            yield batch
            rows += batch.num_rows
    except NOT_ARROW as e:
        raise SchemaError(f"{name} can't be read as {kind} after {rows:,} rows: {e}") from e
