"""Lines of JSON, each of them a row of a load."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.taken_events import ID_FIELD
from spillable_stream.cli.input_source import (
    InputSource,
    SourceInput,
    lines_of,
    read_batches,
    read_beginning,
    without_nulls,
)
from spillable_stream.cli.json_lines import Columns, LineFault, Lines, inferred_columns, parse_lines
from spillable_stream.errors import SchemaError

__all__ = ["JsonInput"]


class JsonInput(SourceInput):
    """Lines of JSON, each of them a row; the first of them say which columns there are.

    Args:
        source: the bytes.
        known: the columns whose types are known.
        more: whether rows may have other columns.

    Raises:
        SchemaError: there is no row that says which columns there are, or the first ones are not JSON.
    """

    schema: pa.Schema

    def __init__(self, source: InputSource, known: pa.Schema, *, more: bool) -> None:
        super().__init__(source)
        self.schema = known
        self._rest = self._numbered_lines(read_beginning(source, _has_row) if more else b"")
        self._first = Lines(1, [])
        if more:
            self._first = next((lines for lines in self._rest if lines.count_rows()), self._first)
            if not self._first.texts and not known.names:
                raise SchemaError(f"{source.name} has no rows that say which columns a typed channel has")
            with self._naming():
                self.schema = without_nulls(inferred_columns(self._first, known))

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns; see `Input.fit`."""
        self.schema = schema

    def _numbered_lines(self, beginning: bytes) -> Iterator[Lines]:
        """Yield lines, as many as come at once, without the mark of UTF-8 that the first one may begin with."""
        number = 1
        for lines in lines_of(self._source, beginning):
            if number == 1:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            yield Lines(number, lines)
            number += len(lines)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `Input.batches`."""
        yield from read_batches(self._parsed_lines(), self._source.name, "JSON lines")

    def _parsed_lines(self) -> Iterator[pa.RecordBatch]:
        # The IDs are a column that an export adds.
        known = self.schema if ID_COLUMN in self.schema.names else self.schema.append(ID_FIELD)
        for lines in chain([self._first], self._rest):
            with self._naming():
                table = parse_lines(lines, Columns(known, more=False))
            yield from table.select(self.schema.names).to_batches()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the input where one of its lines is refused."""
        try:
            yield
        except LineFault as e:
            raise SchemaError(f"{self._source.name}, {e}") from e


def _has_row(data: bytes | bytearray) -> bool:
    return bool(data[: data.rfind(b"\n") + 1].strip())
