"""CSV as a load's input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain

import pyarrow as pa

from spillable_stream.cli.float_columns import change, may_change, narrowest_float, whole_number
from spillable_stream.cli.input_source import (
    CHUNK_BYTES,
    InputSource,
    SourceInput,
    read_batches,
    read_beginning,
    without_nulls,
)
from spillable_stream.cli.text_values import BASE64, has_values_by_hand, is_nested, is_readable, values_of_cells
from spillable_stream.errors import SchemaError
from spillable_stream.format.frame import MAX_PAYLOAD_BYTES
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.shown_value import shown

__all__ = ["CsvInput"]

_VALUE = rb'(?:"(?:[^"]++|"")*+"[^,\r\n]*+|(?:[^",\r\n][^,\r\n]*+)?+)'  # a quote counts where a value begins
_WHOLE_ROWS = re.compile(rb"(?:(?:%b,)*+%b[\r\n]++)*+" % (_VALUE, _VALUE))
_WHOLE_ROW = re.compile(rb"[\r\n]*+(?:%b,)*+%b[\r\n]++" % (_VALUE, _VALUE))
_MOST_ROW_BYTES = MAX_PAYLOAD_BYTES
_ROW_NUMBER = re.compile(r"Row #(\d+)")
_BASE64 = BASE64.replace(b'"', b'""')  # in quotes
_DIGIT = re.compile(r"[0-9]")
_CODE = r"^\s*(?:[+-]?0[0-9xX]|\+[0-9]+\s*$)"
_MAY_BE_CODE = re.compile(rb'(?:^|[,"\s])(?:[+-]?0[0-9xX]|\+[0-9])')
_AS_STRINGS = "make the channel with a column of strings before the load"
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")


class CsvInput(SourceInput):
    """CSV with a line of names; its first block decides the types of the columns.

    Arrow parses blocks of whole rows. It could read the source itself, but then a row may span two reads at most, and a
    thread of it that waits for the source outlives an interrupt, and aborts Python as that ends.

    Args:
        source: the bytes.
        known: the columns whose types are known.
        more: whether there may be others, whose types the first rows say.

    Raises:
        SchemaError: the names are not UTF-8.
    """

    schema: pa.Schema

    def __init__(self, source: InputSource, known: pa.Schema, *, more: bool) -> None:
        super().__init__(source)
        self._guessed: set[str] = set()  # the columns whose types the first rows said
        self._beginning = read_beginning(source, _has_row) if more else b""
        self.schema = self._inferred(known) if more else known

    def _inferred(self, known: pa.Schema) -> pa.Schema:
        rows = self._beginning[: _end_of_rows(self._beginning)] or self._beginning
        table = _read(rows, [], known)
        try:
            self._guessed = {f.name for f in table.schema} - set(known.names)
            found = chain(_changed(rows, [], table), _codes(rows, [], table, self._guessed))
            as_text = {name for _, name, _ in found} & self._guessed
            return without_nulls(
                pa.schema([(f.name, pa.string() if f.name in as_text else f.type) for f in table.schema])
            )
        except UnicodeDecodeError as e:
            raise SchemaError(
                f"{self._source.name} can't be read as csv: its columns' names are not UTF-8; convert it"
            ) from e

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns; see `Input.fit`."""
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `Input.batches`."""
        yield from read_batches(self._parsed_blocks(), self._source.name, "CSV")

    def _parsed_blocks(self) -> Iterator[pa.RecordBatch]:
        names: list[str] = []
        count = 0
        for rows in self._blocks():
            if not rows.strip(b"\r\n"):
                continue
            try:
                table = _parsed(rows, names, self.schema, self._guessed)
            except NOT_ARROW as e:
                before = count + 1 if names else 0  # Arrow counts the line of names
                raise ValueError(_with_row_number(str(e), before)) from e
            names = table.schema.names
            count += table.num_rows
            yield from table.to_batches()
        if not names:
            raise ValueError("it has no line of names")

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole rows, as many as are there now, up to about `CHUNK_BYTES`; the last one may lack its end."""
        data, wanted = self._beginning, CHUNK_BYTES
        while True:
            if len(data) >= wanted or (data and not self._source.has_more_now()):
                if end := _end_of_rows(data):
                    yield data[:end]
                data = data[end:]
                wanted = max(CHUNK_BYTES, 2 * len(data))  # a row that is not whole is not looked at for each read
                if len(data) > _MOST_ROW_BYTES:
                    raise ValueError(f"{_shown(data)} is longer than any event may be: is a quote in it not closed?")
            if not (more := self._source.read(CHUNK_BYTES)):
                break
            data += more
        end = _end_of_rows(data + b"\n")
        if data:
            yield data[:end]
        if end < len(data):  # Arrow would take all the rest for the value
            raise ValueError(f"{_shown(data[end:])} has a quote that is not closed")


def _has_row(data: bytes) -> bool:
    """Tell whether there is a whole row behind the line of names."""
    names = _WHOLE_ROW.match(data)
    return names is not None and _end_of_rows(data[names.end() :].lstrip(b"\r\n")) > 0


def _shown(row: bytes) -> str:
    return f"the row that begins with {row[:40].decode(errors='replace')!r}"


def _end_of_rows(data: bytes) -> int:
    """Return how much of some CSV, from the beginning of a row on, is whole rows."""
    if b'"' not in data:
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    found = _WHOLE_ROWS.match(data)
    assert found is not None, "it matches nothing at all, too"
    return found.end()


def _with_row_number(text: str, before: int) -> str:
    """Return an error of Arrow's, which counts the rows of a block, with the number of the row in the input."""
    return _ROW_NUMBER.sub(lambda found: f"Row #{int(found[1]) + before}", text)


def _parsed(rows: bytes, names: list[str], known: pa.Schema, guessed: set[str]) -> pa.Table:
    """Return rows of CSV as a table, whose columns are of known types, or of those that the rows suggest.

    Args:
        rows: the rows.
        names: the columns' names; none if the first row has them.
        known: the columns whose types are known.
        guessed: those of them whose types other rows have said.

    Raises:
        ValueError: a number is in a column that would change it; and what Arrow raises.
    """
    table = _read(rows, names, known)
    for row, name, why in chain(_changed(rows, names, table), _codes(rows, names, table, guessed)):
        raise ValueError(f"Row #{row}, column {shown(name)}: {why}")
    return table


def _read(rows: bytes, names: list[str], known: pa.Schema, only: list[str] | None = None) -> pa.Table:
    """Return rows of CSV as a table, whatever Arrow rounds; ``only`` some columns, or all."""
    by_hand = [f for f in known if has_values_by_hand(f.type) or (is_nested(f.type) and is_readable(f.type))]
    try:
        if not (by_hand and _BASE64 in rows):
            return _arrows(rows, names, known, only)
    except NOT_ARROW as e:
        if not by_hand:
            raise _naming_the_format(e, known) from e
    as_texts = [field.with_type(pa.string()) if field in by_hand else field for field in known]
    table = _arrows(rows, names, pa.schema(as_texts), only)
    for field in by_hand:
        if (at := table.schema.get_field_index(field.name)) >= 0:
            table = table.set_column(at, field, _by_hand(table.column(at).to_pylist(), field, _first_row(names)))
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


def _arrows(rows: bytes, names: list[str], known: pa.Schema, only: list[str] | None) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(
        pa.BufferReader(rows),
        csv.ReadOptions(use_threads=False, block_size=len(rows) + 1, column_names=names),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types={field.name: field.type for field in known},
            include_columns=only or [],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _changed(rows: bytes, names: list[str], table: pa.Table) -> Iterator[tuple[int, str, str]]:
    """Yield the numbers that columns of floats would change: the row, the column, and why.

    Args:
        rows: the rows.
        names: the columns' names; none if the first row has them, which Arrow's errors count, too.
        table: what Arrow makes of them.
    """
    import pyarrow.compute as pc

    floats = [field for field in table.schema if pa.types.is_floating(field.type)]
    width = narrowest_float(table.schema)
    is_infinite = any(pc.any(pc.is_inf(table.column(field.name))).as_py() for field in floats)
    if width is None or not (is_infinite or may_change(rows, width, quoted=True)):
        return
    texts = _texts(rows, names, floats)
    for field in floats:
        for row, text in enumerate(texts.column(field.name).to_pylist(), _first_row(names)):
            if text and _DIGIT.search(text) and (why := change(_number(text), field.type)):
                yield row, field.name, why


def _codes(rows: bytes, names: list[str], table: pa.Table, among: set[str]) -> Iterator[tuple[int, str, str]]:
    """Yield what columns of numbers hold that is written as no number: postal codes, phone numbers, hexadecimals.

    A column whose type the user has said takes them for numbers.

    Args:
        rows: the rows.
        names: the columns' names; none if the first row has them, which Arrow's errors count, too.
        table: what Arrow makes of them.
        among: the columns to look at.
    """
    import pyarrow.compute as pc

    looked_at = [f for f in table.schema if f.name in among]
    numbers = [f for f in looked_at if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    if not numbers or not _MAY_BE_CODE.search(rows):
        return
    texts = _texts(rows, names, numbers)
    for field in numbers:
        column = texts.column(field.name)
        for at in pc.indices_nonzero(pc.match_substring_regex(column, _CODE)).to_pylist():
            why = f"{column[at]} is written as no number, and the type {field.type} would forget how: {_AS_STRINGS}"
            yield at + _first_row(names), field.name, why


def _texts(rows: bytes, names: list[str], fields: list[pa.Field]) -> pa.Table:
    """Return some columns as they are written."""
    only = [field.name for field in fields]
    return _read(rows, names, pa.schema([(name, pa.string()) for name in only]), only)


def _first_row(names: list[str]) -> int:
    """Return the number of the first row, where Arrow counts a line of names, too."""
    return 1 if names else 2


def _number(text: str) -> float | Decimal:
    return whole_number(text.strip()) if _WHOLE_NUMBER.fullmatch(text) else float(text)
