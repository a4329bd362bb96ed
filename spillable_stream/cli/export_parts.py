"""The formats of an export's parts: lines of JSON or CSV; Arrow streams, for Parquet and Arrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import IO, Protocol

import pyarrow as pa

from spillable_stream.cli.event_text import json_row, plain_value, rows_of

__all__ = ["ArrowPart", "CsvPart", "JsonPart", "PartWriter"]


class PartWriter(Protocol):
    """Writes events in a format."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events."""

    def close(self) -> None:
        """End what was written; the file stays open."""


class ArrowPart:
    """Writes an Arrow stream, which holds every type as it is."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """End the stream; the file stays open."""
        self._writer.close()


class JsonPart:
    """Writes each event as a line of JSON."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events."""
        self._file.writelines(json_row(row) + b"\n" for row in rows_of(batch))

    def close(self) -> None:
        """End nothing: each line is whole."""


class CsvPart:
    """Writes CSV: lists, structs and maps as JSON; bytes as text, or JSON with base64; ``""`` is a text, nothing null.

    Args:
        file: the part.
        delimiter: what divides the values.
    """

    def __init__(self, file: IO[bytes], delimiter: str) -> None:
        self._file = file
        self._delimiter = delimiter
        self._quoted = re.compile(f'["{re.escape(delimiter)}\r\n]')

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events."""
        for row in rows_of(batch):
            self.write_line([None if v is None else _cell(v) for v in row.values()])

    def write_line(self, cells: Sequence[str | None]) -> None:
        """Append a line of cells; None is null."""
        line = self._delimiter.join(map(self._in_quotes, cells))
        self._file.write((line + "\n").encode("utf-8", "surrogateescape"))

    def _in_quotes(self, cell: str | None) -> str:
        if cell is None:
            return ""
        return '"' + cell.replace('"', '""') + '"' if not cell or self._quoted.search(cell) else cell

    def close(self) -> None:
        """End nothing: each line is whole."""


def _cell(value: object) -> str:
    if isinstance(value, dict | list):
        return json_row(value).decode("utf-8", "surrogateescape")
    plain = value if isinstance(value, str) else plain_value(value)
    return plain if isinstance(plain, str) else _cell(plain)
