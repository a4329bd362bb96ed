"""CSV as a load's input."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from spillable_stream.cli.csv_numbers import guessed, misread_numbers, with_guess
from spillable_stream.cli.csv_rows import COMMA, TAB, CsvRows, end_of_rows, has_row
from spillable_stream.cli.input_source import (
    CHUNK_BYTES,
    InputSource,
    SourceInput,
    are_of_events,
    check_columns,
    read_batches,
    read_beginning,
    with_end,
    without_nulls,
)
from spillable_stream.cli.text_values import BASE64, has_values_by_hand, is_nested, is_readable, values_of_cells
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import MAX_PAYLOAD_BYTES
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.shown_value import shown

__all__ = ["CsvInput"]

_LONG_BYTES = 1 << 20  # more than any number has
_MOST_ROW_BYTES = MAX_PAYLOAD_BYTES
_ROW_NUMBER = re.compile(r"Row #(\d+)")
_BASE64 = BASE64.replace(b'"', b'""')  # in quotes
_OTHER_DELIMITERS = {";": "';'", "|": "'|'", TAB: "tab"}  # and how a shell's user gives them


class CsvInput(SourceInput):
    """CSV with a line of names; its first block decides the types of the columns.

    Arrow parses blocks of whole rows. It could read the source itself, but then a row may span two reads at most, and a
    thread of it that waits for the source outlives an interrupt, and aborts Python as that ends.

    Args:
        source: the bytes.
        known: the columns whose types are known.
        more: whether there may be others, whose types the first rows say.
        delimiter: the character between values; None for a comma, unless another obviously divides the names.
        as_rows: whether columns with the names of an event's are those of rows, too.

    Raises:
        ValueError: the names are not UTF-8, or divided by something else; and what Arrow raises.
    """

    schema: pa.Schema

    def __init__(
        self, source: InputSource, known: pa.Schema, *, more: bool, delimiter: str | None = None, as_rows: bool = True
    ) -> None:
        super().__init__(source)
        self._as_rows = as_rows
        self._is_told = delimiter is not None
        self._delimiter = delimiter or COMMA
        self._beginning = read_beginning(source, lambda data: has_row(data, self._delimiter)) if more else b""
        self.schema = known
        if more:
            self.schema = self._inferred(known)

    def _inferred(self, known: pa.Schema) -> pa.Schema:
        whole = self._beginning[: end_of_rows(self._beginning, self._delimiter)]
        rows = CsvRows(whole or self._beginning, self._delimiter)
        names = self._checked_names(rows)
        if not self._as_rows and are_of_events(names):
            known = pa.schema([field for field in EVENT_SCHEMA if field.name in names])
        table = _read(rows, pa.schema([*known, *_long_texts(rows, known)]))
        new = set(table.schema.names) - set(known.names)
        as_text = {name for _, name, _ in misread_numbers(rows, table, new)}
        fields = [f.with_type(pa.string()) if f.name in as_text else with_guess(f) for f in table.schema]
        return without_nulls(pa.schema([f if f.name in new else known.field(f.name) for f in fields]))

    def _checked_names(self, rows: CsvRows) -> list[str]:
        """Return the columns' names; refuse those that are not UTF-8, and a single one that something else divides."""
        try:
            names = rows.columns()
        except UnicodeDecodeError as e:
            raise ValueError("its columns' names are not UTF-8; convert it") from e
        if any("\0" in name for name in names):
            raise ValueError("its columns' names have zeros, as UTF-16 has and UTF-8 has not; convert it")
        check_columns(names, self._source.name)
        if self._is_told or len(names) > 1 or names[0] in self.schema.names:
            return names
        for other, given in _OTHER_DELIMITERS.items():
            if other in names[0]:
                raise ValueError(
                    f"its line of names, {shown(names[0])}, has no comma: give 'spillable put' --delimiter {given}, or "
                    "--delimiter , if that is the name of one column"
                )
        return names

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns; see `Input.fit`."""
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `Input.batches`."""
        yield from read_batches(self._parsed_blocks(), self._source.name, "CSV")

    def _parsed_blocks(self) -> Iterator[pa.RecordBatch]:
        names: list[str] = []
        count = 0
        for block in self._blocks():
            if not block.strip(b"\r\n"):
                continue
            rows = CsvRows(block, self._delimiter, names)
            if not names:
                self._checked_names(rows)
            try:
                table = self._parsed(rows)
            except NOT_ARROW as e:
                before = count + 1 if names else 0  # Arrow counts the line of names
                raise ValueError(_with_row_number(str(e), before)) from e
            names = table.schema.names
            count += table.num_rows
            yield from table.to_batches()
        if not names:
            raise ValueError("it has no line of names")

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole rows, as many as are there now, up to about `CHUNK_BYTES`."""
        data, wanted = bytearray(self._beginning), CHUNK_BYTES
        while True:
            if len(data) >= wanted or (data and not self._source.has_more_now()):
                if end := end_of_rows(data, self._delimiter):
                    yield bytes(data[:end])
                del data[:end]
                wanted = max(CHUNK_BYTES, 2 * len(data))  # a row that is not whole is not looked at for each read
                if len(data) > _MOST_ROW_BYTES:
                    raise ValueError(f"{_shown(data)} is longer than any event may be: is a quote in it not closed?")
            if not (more := self._source.read(CHUNK_BYTES)):
                break
            data += more
        last = with_end(bytes(data))
        if end := end_of_rows(last, self._delimiter):
            yield last[:end]
        if end < len(last):  # Arrow would take all the rest for the value
            raise ValueError(f"{_shown(last[end:])} has a quote that is not closed")

    def _parsed(self, rows: CsvRows) -> pa.Table:
        """Return rows as a table; raises ValueError where a number is in a column that would change it."""
        table = _read(rows, self.schema)
        for row, name, why in misread_numbers(rows, table, guessed(self.schema)):
            raise ValueError(f"Row #{row}, column {shown(name)}: {why}")
        return table


def _long_texts(rows: CsvRows, known: pa.Schema) -> list[pa.Field]:
    """Return the other columns with a value that is too long for a number, where a row is: Arrow tries it as each type.

    Each that it is not of costs it a message with a copy of the value, and so seconds.
    """
    if len(rows.data) <= 2 * _LONG_BYTES:
        return []
    import pyarrow.compute as pc

    found, names = [], rows.columns()
    table = rows.table(pa.schema([(name, pa.binary()) for name in names]))
    for name, column in zip(names, table.columns, strict=True):
        if name not in known.names and (pc.max(pc.binary_length(column)).as_py() or 0) > _LONG_BYTES:
            found.append(pa.field(name, pa.string() if _is_text(column) else pa.binary()))
    return found


def _is_text(column: pa.ChunkedArray) -> bool:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _shown(row: bytes | bytearray) -> str:
    return f"the row that begins with {row[:40].decode(errors='replace')!r}"


def _with_row_number(text: str, before: int) -> str:
    """Return an error of Arrow's, which counts the rows of a block, with the number of the row in the input."""
    return _ROW_NUMBER.sub(lambda found: f"Row #{int(found[1]) + before}", text)


def _read(rows: CsvRows, known: pa.Schema) -> pa.Table:
    """Return rows as a table, whatever Arrow rounds; values that it does not read are read by hand."""
    by_hand = [f for f in known if has_values_by_hand(f.type) or (is_nested(f.type) and is_readable(f.type))]
    try:
        if not (by_hand and _BASE64 in rows.data):
            return rows.table(known)
    except NOT_ARROW as e:
        if not by_hand:
            raise _naming_the_format(e, known) from e
    as_texts = [field.with_type(pa.string()) if field in by_hand else field for field in known]
    table = rows.table(pa.schema(as_texts))
    for field in by_hand:
        if (at := table.schema.get_field_index(field.name)) >= 0:
            table = table.set_column(at, field, _by_hand(table.column(at).to_pylist(), field, rows.first_row))
    return table


def _by_hand(cells: list[str | None], field: pa.Field, first: int) -> pa.Array:
    """Return the cells of a column; raises ValueError with the row of the first one that is not of its type."""
    try:
        return values_of_cells(cells, field.type)
    except NOT_ARROW:
        for row, cell in enumerate(cells, first):
            try:
                values_of_cells([cell], field.type)
            except NOT_ARROW as e:
                why = f"{shown(cell)} is not of the column's type, {field.type}"
                raise ValueError(f"Row #{row}, column {shown(field.name)}: {why}") from e
        raise


def _naming_the_format(e: Exception, known: pa.Schema) -> Exception:
    """Return an error, and a format for a column that CSV has no values for."""
    unreadable = [field for field in known if not is_readable(field.type)]
    if not unreadable:
        return e
    field = unreadable[0]
    return ValueError(f"CSV has no values for the column {shown(field.name)}, {field.type}: export and put it as Arrow")
