"""Lines of JSON, each of them a row of a load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.taken_events import ID_FIELD
from spillable_stream.cli.input_source import InputSource, SourceInput, lines_of, read_batches, without_nulls
from spillable_stream.errors import SchemaError
from spillable_stream.format.types import NOT_ARROW

__all__ = ["JsonInput"]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Lines of JSON, and the number of the first one."""

    first: int
    lines: list[bytes]


class JsonInput(SourceInput):
    """Lines of JSON, each of them a row; the first of them say which columns there are.

    Args:
        source: the bytes.
        schema: the columns; None to infer them.

    Raises:
        SchemaError: there is no row that says which columns there are, or the first ones are not JSON.
    """

    schema: pa.Schema

    def __init__(self, source: InputSource, schema: pa.Schema | None) -> None:
        super().__init__(source)
        self._rest = self._numbered_lines()
        self._first = next((rows for rows in self._rest if any(map(bytes.strip, rows.lines))), None)
        if self._first is None and schema is None:
            raise SchemaError(f"{source.name} has no rows that say which columns a typed channel has")
        if schema is None:
            assert self._first is not None
            schema = without_nulls(self._parsed(self._first, None).schema)
        self.schema = schema

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns; see `Input.fit`."""
        self.schema = schema

    def _numbered_lines(self) -> Iterator[_Rows]:
        number = 1
        for lines in lines_of(self._source):
            yield _Rows(number, lines)
            number += len(lines)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `Input.batches`."""
        yield from read_batches(self._parsed_lines(), self._source.name, "JSON lines")

    def _parsed_lines(self) -> Iterator[pa.RecordBatch]:
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
