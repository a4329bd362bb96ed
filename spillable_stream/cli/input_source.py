"""The bytes of a load's input, decompressed, and the formats that are read from bytes."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.cli.next_steps import next_step
from spillable_stream.counted import counted
from spillable_stream.error_text import naming
from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.types import NOT_ARROW, with_leaves
from spillable_stream.readiness import has_input

__all__ = [
    "CHUNK_BYTES",
    "COMPRESSIONS",
    "STANDARD_INPUT",
    "InputSource",
    "SourceInput",
    "WholeReads",
    "are_of_events",
    "check_columns",
    "error_text",
    "lines_of",
    "read_batches",
    "read_beginning",
    "read_first_line",
    "standard_input",
    "with_end",
    "without_nulls",
]

STANDARD_INPUT = "-"

CHUNK_BYTES = 1 << 20
"""How much is read at once."""

_SAMPLE_SECONDS = 1.0
_MOST_SAMPLE_BYTES = 64 << 20
_MOST_OF_ERROR = 1000

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""The compressions of an input, by the ends of names."""

_FIRST_BYTES = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    **{b"BZh%d%b" % (size, b"1AY&SY"): "bz2" for size in range(1, 10)},
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PAR1\x15": "Parquet",
    b"ARROW1\x00\x00": "Arrow",
}
"""Kinds of bytes that are not text, by the first of them."""
_INSTEAD = {
    "xz": "decompress it first, as by xz -dc",
    "zip": "unpack it first",
}


def standard_input() -> IO[bytes]:
    """Return standard input.

    Raises:
        OptionError: it is closed, as with ``<&-``.
    """
    if sys.stdin is None:
        raise OptionError("standard input is closed: give a file, or send something to standard input")
    return sys.stdin.buffer


class InputSource(io.RawIOBase):
    """The bytes of an input, decompressed; counts those that were read of the file.

    Args:
        file: its path, or "-" for standard input.
        compressed: whether it may be compressed text. The end of its name says how, else its first bytes do, which are
            waited for.
        columnar: what to do with Parquet or Arrow where text is expected; by default, to name the format.

    Attributes:
        name: what users call it.
        raw: the file.
        is_file: whether it has an end that is known, and can be read from there.
        size: how many bytes it has; None if that is not known.
        done: how many of them were read.

    Raises:
        OptionError: it can't be opened, or should be text, and is something else.
    """

    def __init__(self, file: str, *, compressed: bool, columnar: str = "") -> None:
        self._ahead = b""
        self._columnar = columnar
        self._owned = False  # a source that can't be opened is closed too, as Python forgets it
        self.name: str = "standard input" if file == STANDARD_INPUT else file
        try:
            self.raw: IO[bytes] = standard_input() if file == STANDARD_INPUT else open(file, "rb", buffering=0)  # noqa: SIM115 - closed by close
        except OSError as e:
            raise OptionError(f"{file} can't be read: {e.strerror}{next_step(e) or '; give a file'}") from e
        self.is_file: bool = file != STANDARD_INPUT and os.path.isfile(file)
        self.size: int | None = os.fstat(self.raw.fileno()).st_size if self.is_file else None
        self.done: int = 0
        self._owned = file != STANDARD_INPUT
        kind = (COMPRESSIONS.get(Path(file).suffix.lower()) or self._kind_by_first_bytes()) if compressed else None
        self._is_plain = kind is None
        self._decoded = None if kind is None else pa.CompressedInputStream(pa.PythonFile(_Counted(self), "r"), kind)

    def _kind_by_first_bytes(self) -> str | None:
        """Read ahead as far as need be, and return the compression; None for text."""
        while any(mark.startswith(self._ahead) for mark in _FIRST_BYTES) and (more := self._read_file(64)):
            self._ahead += more
        kind = next((kind for mark, kind in _FIRST_BYTES.items() if self._ahead.startswith(mark)), None)
        if kind in _INSTEAD:
            raise OptionError(f"{self.name} is not text, but {kind}: {_INSTEAD[kind]}")
        if kind in ("Parquet", "Arrow"):
            advice = self._columnar or f"give --format {kind.lower()}"
            raise OptionError(f"{self.name} is not text, but {kind}: {advice}")
        return kind

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def _read_file(self, size: int) -> bytes:
        read = getattr(self.raw, "read1", self.raw.read)
        with naming(self.name) if self.is_file else nullcontext():
            data: bytes = read(size) or b""
        return data

    def raw_read(self, size: int) -> bytes:
        """Read bytes of the file as they are, fewer where there are no more now."""
        data, self._ahead = self._ahead or self._read_file(size if size >= 0 else CHUNK_BYTES), b""
        self.done += len(data)
        return data

    def read(self, size: int = -1) -> bytes:
        """Read decompressed bytes, fewer where there are no more now; none at the end."""
        return self.raw_read(size) if self._decoded is None else bytes(self._decoded.read(size))

    def has_more_now(self) -> bool:
        """Tell whether a read would return at once."""
        return self.has_more_within(0.0)

    def has_more_within(self, seconds: float) -> bool:
        """Wait until a read would return at once, for some seconds at most; tell whether it would."""
        if self.is_file or self._ahead or not self._is_plain:
            return True
        try:
            return has_input(self.raw, seconds)
        except (OSError, ValueError):  # it has no descriptor that can be asked
            return True

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self._owned:
            self.raw.close()
        super().close()


class _Counted(io.RawIOBase):
    """The bytes of a source as they are in the file, for what decompresses them."""

    def __init__(self, source: InputSource) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.raw_read(size)


class SourceInput:
    """What inputs of bytes share; see `spillable_stream.cli.load_input.Input`.

    Args:
        source: the bytes.
    """

    schema: pa.Schema
    unit = "bytes"

    def __init__(self, source: InputSource) -> None:
        self._source = source

    def fit(self, schema: pa.Schema) -> None:
        """Leave the schema as it is: the format has types."""

    @property
    def size(self) -> int | None:
        """How many bytes the file has; None if that is not known."""
        return self._source.size

    @property
    def done(self) -> int:
        """How many of them were read."""
        return self._source.done

    def has_more_now(self) -> bool:
        """Tell whether a read would return at once."""
        return self._source.has_more_now()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class WholeReads(io.RawIOBase):
    """The bytes of a source, as many as are asked for: Arrow takes fewer, which a pipe may have now, for the end."""

    def __init__(self, source: InputSource) -> None:
        self._source = source

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer, or a part of it at the end; return how many bytes that are."""
        done = 0
        while done < len(buffer) and (data := self._source.read(len(buffer) - done)):
            buffer[done : done + len(data)] = data
            done += len(data)
        return done


def read_beginning(source: InputSource, has_row: Callable[[bytes | bytearray], bool]) -> bytes:
    """Return the beginning of a source, whose rows say the columns' types.

    That is `CHUNK_BYTES`, or as much as the first row needs. A source that is slow is waited for until a row is there,
    and a second longer: its next rows say more of the types. The last row of a source that ends meanwhile says them,
    too: it gets the end of a line, if it has none.

    Args:
        source: the source.
        has_row: tells whether a beginning has a whole row.
    """
    data, looked_at = bytearray(), 0  # which grows without a copy of all that is there
    while len(data) < _MOST_SAMPLE_BYTES:
        if not (more := source.read(CHUNK_BYTES)):
            return with_end(bytes(data))
        data += more
        if len(data) <= CHUNK_BYTES or len(data) >= 2 * looked_at:  # few looks at a long row
            looked_at = len(data)
            if has_row(data):
                break
    until = time.monotonic() + _SAMPLE_SECONDS
    while len(data) < CHUNK_BYTES and source.has_more_within(until - time.monotonic()):
        if not (more := source.read(CHUNK_BYTES)):
            return with_end(bytes(data))
        data += more
    return bytes(data)


def read_first_line(source: InputSource) -> bytes:
    """Return the beginning of a source, with its first line that is not empty, or `CHUNK_BYTES`."""
    data = b""
    while len(data) < CHUNK_BYTES and b"\n" not in data.lstrip() and (more := source.read(CHUNK_BYTES)):
        data += more
    return data


def with_end(lines: bytes) -> bytes:
    """Return lines whose last one has its end; nothing, if there are none."""
    return lines + b"\n" if lines and not lines.endswith(b"\n") else lines


def lines_of(source: InputSource, beginning: bytes = b"") -> Iterator[list[bytes]]:
    """Yield the lines of a source without their ends, as many as were read at once; the last one may lack its end.

    Args:
        source: the source.
        beginning: what was read of it already.
    """
    parts: list[bytes] = []
    while data := beginning or source.read(CHUNK_BYTES):
        beginning = b""
        lines = data.split(b"\n")
        parts.append(lines[0])
        if len(lines) > 1:
            lines[0] = b"".join(parts)
            parts = [lines.pop()]
            yield lines
    if last := b"".join(parts):
        yield [last]


def check_columns(names: Sequence[str], name: str) -> None:
    """Refuse two columns of one name.

    Args:
        names: the columns of an input.
        name: what users call it.

    Raises:
        SchemaError: there are two.
    """
    if twice := [column for column in dict.fromkeys(names) if names.count(column) > 1]:
        raise SchemaError(f"{name} has more than one column {twice[0]!r}: rename all but one")


def are_of_events(names: Sequence[str]) -> bool:
    """Tell whether columns are those of events, as an export has them: it adds their IDs."""
    return "body" in names and {*names} <= {*EVENT_SCHEMA.names, ID_COLUMN}


def without_nulls(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns, and parts of columns, that never had a value are of strings."""

    def known(leaf: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_null(leaf) else leaf

    return pa.schema([f.with_type(with_leaves(f.type, known)) for f in schema])


def error_text(error: Exception) -> str:
    """Return what an error says; only the beginning of what is long, since Arrow shows all of a value."""
    text = str(error)
    return text if len(text) <= _MOST_OF_ERROR else f"{text[:_MOST_OF_ERROR]}… ({len(text):,} characters)"


def read_batches(batches: Iterator[pa.RecordBatch], name: str, kind: str) -> Iterator[pa.RecordBatch]:
    """Yield batches, and name the input where it can't be read."""
    rows = 0
    try:
        for batch in batches:
            yield batch
            rows += batch.num_rows
    except NOT_ARROW as e:
        raise SchemaError(f"{name} can't be read as {kind} after {counted(rows, 'row')}: {error_text(e)}") from e
