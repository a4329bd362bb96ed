"""Numbers in CSV that a column would store as other ones, or whose way of writing it would forget."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import cache
from itertools import chain
from string import whitespace

import pyarrow as pa

from spillable_stream.cli.csv_rows import CsvRows
from spillable_stream.cli.float_columns import change, may_change, narrowest_float, whole_number

__all__ = ["guessed", "misread_numbers", "with_guess"]

_GUESS = {b"spillable.inferred": b"csv"}
"""The metadata of a column of numbers that rows of CSV suggested, which a channel keeps."""

_DIGIT = re.compile(r"[0-9]")
_CODE = r"^\s*(?:[+-]?0[0-9xX]|\+[0-9]+\s*$)"
_AS_STRINGS = (
    "load all into a new channel whose column is of strings: create it with 'spillable create --schema FILE', where "
    "FILE has a text there"
)
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")


def with_guess(field: pa.Field) -> pa.Field:
    """Return a column whose type rows have said, so that whoever puts into it later knows that no user did."""
    return field.with_metadata(_GUESS) if _is_number(field.type) else field


def guessed(schema: pa.Schema) -> set[str]:
    """Return the names of the columns of numbers whose types rows have said, maybe those of an earlier load."""
    return {field.name for field in schema if (field.metadata or {}).items() >= _GUESS.items()}


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))


def misread_numbers(rows: CsvRows, table: pa.Table, without_codes: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the numbers that are not what is written: the row, as Arrow's errors count, the column, and why.

    Args:
        rows: the rows.
        table: what Arrow makes of them.
        without_codes: the columns whose types rows have said; a user who has said that one is of numbers means them.
    """
    return chain(_changed(rows, table), _codes(rows, table, without_codes))


def _changed(rows: CsvRows, table: pa.Table) -> Iterator[tuple[int, str, str]]:
    """Yield the numbers that columns of floats would change."""
    import pyarrow.compute as pc

    floats = [field for field in table.schema if pa.types.is_floating(field.type)]
    width = narrowest_float(table.schema)
    is_infinite = any(pc.any(pc.is_inf(table.column(field.name))).as_py() for field in floats)
    if width is None or not (is_infinite or may_change(rows.data, width, quoted=True)):
        return
    texts = _texts(rows, floats)
    for field in floats:
        for row, text in enumerate(texts.column(field.name).to_pylist(), rows.first_row):
            if text and _DIGIT.search(text) and (why := change(_number(text), field.type)):
                yield row, field.name, why


def _codes(rows: CsvRows, table: pa.Table, among: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Yield what columns of numbers hold that is not written as a number: postal codes, phone numbers, hexadecimals."""
    import pyarrow.compute as pc

    numbers = [field for field in table.schema if field.name in among and _is_number(field.type)]
    if not numbers or not _may_have_code(rows):
        return
    texts = _texts(rows, numbers)
    for field in numbers:
        column = texts.column(field.name)
        for at in pc.indices_nonzero(pc.match_substring_regex(column, _CODE)).to_pylist():
            why = (
                f"{column[at]} is not written as a number, and the type {field.type}, which earlier rows suggested, "
                f"would lose how it is written: {_AS_STRINGS}"
            )
            yield at + rows.first_row, field.name, why


def _may_have_code(rows: CsvRows) -> bool:
    """Tell whether rows may have a code, at the cost of a look: 0 or + where a value begins, and more behind it."""
    shape = rows.data.translate(_shapes(rows.delimiter), b"-")
    return shape.startswith(_CODE_SHAPES) or any(b" " + code in shape for code in _CODE_SHAPES)


_CODE_SHAPES = (b"00", b"01")


@cache
def _shapes(delimiter: str) -> bytes:
    """Return what stands for each byte: 0 for 0 and +, 1 for other digits and x, a blank for what is before a value."""
    shapes = {
        **dict.fromkeys("0+", "0"),
        **dict.fromkeys("123456789xX", "1"),
        **dict.fromkeys(f'{delimiter}"{whitespace}', " "),
    }
    return bytes(ord(shapes.get(chr(byte), ".")) for byte in range(256))


def _texts(rows: CsvRows, fields: list[pa.Field]) -> pa.Table:
    """Return some columns as they are written."""
    only = [field.name for field in fields]
    return rows.table(pa.schema([(name, pa.string()) for name in only]), only)


def _number(text: str) -> float | Decimal:
    return whole_number(text.strip()) if _WHOLE_NUMBER.fullmatch(text) else float(text)
