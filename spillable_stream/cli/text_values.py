"""Values that Arrow reads from no text, one by one, as an export writes them: days, times, durations, bytes, maps.

Arrow is asked first. A value that it takes means what it means to Arrow: a whole number is a day, or a duration in its
column's unit.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spillable_stream.cli.map_text import entries_of
from spillable_stream.format.types import is_list, is_list_view

__all__ = [
    "BASE64",
    "has_values_by_hand",
    "is_nested",
    "is_readable",
    "times_of_texts",
    "values_of_cells",
    "values_of_json",
]

BASE64 = b'{"base64": "'
"""What bytes that are not UTF-8 begin with."""

_LAST_ZEROS = r"(\.[0-9]*[1-9])0+([^0-9]|$)|\.0+([^0-9]|$)"  # Arrow takes as many digits as a unit has
_WHOLE = re.compile(r"-?[0-9]+")
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_Read = Callable[[Any], Any]


def has_values_by_hand(of: pa.DataType) -> bool:
    """Tell whether a type, or one inside of it, has values that Arrow does not read."""
    if pa.types.is_list(of):
        return has_values_by_hand(of.value_type)
    if pa.types.is_struct(of):
        return any(has_values_by_hand(field.type) for field in of)
    known = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_large_string, pa.types.is_string)
    is_arrows = any(is_of(of) for is_of in known) or of in (pa.float32(), pa.float64())
    return not is_arrows and is_readable(of)


def is_readable(of: pa.DataType) -> bool:
    """Tell whether text can say the values of a type."""
    try:
        _reader(of)
    except TypeError:
        return False
    return True


def values_of_json(values: Iterable[object], of: pa.DataType) -> pa.Array:
    """Return values as an array.

    Args:
        values: as Python's JSON has them.
        of: their type.

    Raises:
        ValueError: one of them is not of the type; or another one of `NOT_ARROW`.
    """
    read, values = _reader(of), list(values)
    if _is_time(of) and all(value is None or type(value) is str for value in values):
        return times_of_texts(pa.array(values, pa.string()), of)
    try:
        return pa.array([None if value is None else read(value) for value in values], of)
    except ArithmeticError as e:  # a number that is too large, or a text that is none
        raise ValueError(f"a value is not of the type {of}") from e


def values_of_cells(cells: Iterable[str | None], of: pa.DataType) -> pa.Array:
    """Return the cells of a column of CSV as an array; see `values_of_json`."""
    if is_nested(of):
        return values_of_json(_parsed(cells), of)
    if pa.types.is_floating(of):
        return values_of_json((None if cell is None else float(cell) for cell in cells), of)
    return values_of_json(
        (json.loads(cell) if cell and cell.encode().startswith(BASE64) else cell for cell in cells), of
    )


def _parsed(cells: Iterable[str | None]) -> list[object]:
    try:
        return [None if cell is None else json.loads(cell) for cell in cells]
    except RecursionError as e:
        raise ValueError("a value is nested too deep") from e


def is_nested(of: pa.DataType) -> bool:
    """Tell whether a type has others inside, or could have them."""
    return bool(pa.types.is_nested(of))


def _reader(of: pa.DataType) -> _Read:
    """Return what makes a value that `pyarrow.array` takes of one of JSON that is not null.

    Raises:
        TypeError: text can't say the values of the type.
    """
    types = pa.types
    if is_list(of) or is_list_view(of) or types.is_fixed_size_list(of):
        return _list_reader(_reader(of.value_type))
    if types.is_map(of):
        return _map_reader(_reader(of.key_type), _reader(of.item_type), of)
    if types.is_struct(of):
        return _struct_reader({field.name: _reader(field.type) for field in of}, of)
    if types.is_duration(of):
        return lambda value: _duration(value, of)
    if _is_time(of):
        return lambda value: _time(value, of)
    if types.is_decimal(of):
        return lambda value: Decimal(str(_only(value, of, str, int, float, Decimal)))
    if types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of) or types.is_binary_view(of):
        return _bytes
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return lambda value: _only(value, of, str)
    if types.is_boolean(of):
        return lambda value: _only(value, of, bool)
    if types.is_integer(of):
        return lambda value: _only(value, of, int)
    if types.is_floating(of):
        return lambda value: float(_only(value, of, int, float))
    raise TypeError(f"text has no values of the type {of}")


def _only(value: Any, of: pa.DataType, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{value!r} is not of the type {of}")
    return value


def _list_reader(read: _Read) -> _Read:
    return lambda value: [None if inner is None else read(inner) for inner in _only(value, pa.list_(pa.null()), list)]


def _map_reader(read_key: _Read, read_item: _Read, of: pa.DataType) -> _Read:
    return lambda value: [
        (read_key(key), None if item is None else read_item(item)) for key, item in entries_of(value, of)
    ]


def _struct_reader(readers: dict[str, _Read], of: pa.DataType) -> _Read:
    def read(value: Any) -> dict[str, Any]:
        if unknown := set(_only(value, of, dict)) - set(readers):
            raise ValueError(f"a value of the type {of} has no {min(unknown)!r}")
        return {name: None if inner is None else readers[name](inner) for name, inner in value.items()}

    return read


def _duration(value: object, of: pa.DataType) -> Any:
    """Return a duration: seconds, and a whole number in the type's unit, as Arrow has it."""
    if type(value) is int or (isinstance(value, str) and _WHOLE.fullmatch(value)):
        return pa.scalar(int(value), of)
    scaled = Decimal(str(_only(value, of, float, str, Decimal))).scaleb(_DIGITS[of.unit])
    if scaled != int(scaled):
        raise ValueError(f"{value!r} is not of the type {of}")
    return pa.scalar(int(scaled), of)


def _time(value: object, of: pa.DataType) -> Any:
    if type(value) is int:
        return pa.scalar(value, of)
    return times_of_texts(pa.array([_only(value, of, str)]), of)[0]


def _is_time(of: pa.DataType) -> bool:
    return bool(pa.types.is_date(of) or pa.types.is_time(of) or pa.types.is_timestamp(of))


def times_of_texts(texts: pa.Array | pa.ChunkedArray, of: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return texts as days, times of day or timestamps.

    Args:
        texts: the texts.
        of: the type.

    Raises:
        pa.ArrowInvalid: a text says none, or would lose a part as one.
    """
    import pyarrow.compute as pc

    if pa.types.is_date(of):
        return texts.cast(pa.date32()).cast(of)
    texts = pc.replace_substring_regex(texts, _LAST_ZEROS, r"\1\2\3")
    if pa.types.is_time(of):
        days = pc.binary_join_element_wise("1970-01-01", texts, "T")
        return days.cast(pa.timestamp(of.unit)).cast(of)
    return texts.cast(of)


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(value["base64"], validate=True)
    return bytes(_only(value, pa.binary(), str).encode("utf-8"))
