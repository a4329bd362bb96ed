"""Times in JSON: Arrow stores one whether it has a zone or not, and a column without a zone would forget it.

It reads no text as a date, or as a time of day: these are read as texts, and become what they say here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from spillable_stream.cli.text_values import times_of_texts
from spillable_stream.format.types import is_list, leaves, with_leaves

__all__ = ["as_texts", "from_texts", "misplaced", "misplaced_times", "with_zones"]

_ZONE = r"[T ][0-9:.]{1,30}(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WITH_ZONE, _WITHOUT_ZONE = re.compile(_DAY + _ZONE), re.compile(rf"{_DAY}(?:[T ][0-9:.]{{1,30}})?")
_ESCAPES = (b"\\u002", b"\\u003", b"\\u005")  # of signs, digits, and T and Z

# What times with a zone end with, and what times without one are, where the digits are left out.
_ZONES = tuple(f'{end}"'.encode() for end in ("Z", "+", "+:", "-:", "T-", " -", ":-", ".-"))
_PLAIN_TIMES = tuple(f'"--{time}"'.encode() for time in ("", "T", " ", "T:", " :", "T::", " ::", "T::.", " ::."))
_DIGITS = b"0123456789"
_NOT_OF_ZONES = bytes(b for b in range(256) if b not in b'TZ+-:. "')


def misplaced(text: str, of: pa.DataType) -> str:
    """Return why a column can't have a time; "" unless it is of times, and only one of the two says a zone.

    Args:
        text: the time.
        of: the column's type.
    """
    if not pa.types.is_timestamp(of):
        return ""
    if of.tz is None:
        hint = "leave it out, or create the channel with a column of timestamps with a zone before the load"
        return f"{text} has a zone, which the type {of} would forget: {hint}" if _WITH_ZONE.fullmatch(text) else ""
    return f"{text} has no zone, and the type {of} needs one: add it" if _WITHOUT_ZONE.fullmatch(text) else ""


def misplaced_times(schema: pa.Schema) -> Callable[[bytes], bool]:
    """Return what tells whether lines of JSON may have a time that its column can't have, at the cost of a look.

    Args:
        schema: the columns.
    """
    zones = {leaf.tz for leaf in _leaves(schema) if pa.types.is_timestamp(leaf)}
    has_plain, has_zoned = None in zones, bool(zones - {None})

    def may_be_misplaced(data: bytes) -> bool:
        return (
            (has_plain and _has(data.translate(None, _NOT_OF_ZONES), _ZONES))
            or (has_zoned and _has(data.translate(None, _DIGITS), _PLAIN_TIMES))
            or (bool(zones) and _has(data, _ESCAPES))
        )

    return may_be_misplaced


def _has(data: bytes, parts: Iterable[bytes]) -> bool:
    return any(part in data for part in parts)


def _leaves(schema: pa.Schema) -> Iterator[pa.DataType]:
    return (leaf for field in schema for leaf in leaves(field.type))


def with_zones(of: pa.DataType, values: Sequence[object]) -> pa.DataType:
    """Return the type of a column whose type Arrow has inferred, with a zone where all its times have one.

    Where only some have one it is of strings, as with CSV.

    Args:
        of: the type that Arrow has inferred, which has no zones.
        values: what the column holds, as Python's JSON has it.
    """
    if pa.types.is_timestamp(of):
        texts = [value for value in values if isinstance(value, str)]
        with_zone = sum(_WITH_ZONE.fullmatch(text) is not None for text in texts)
        if not with_zone:
            return of
        return pa.timestamp(of.unit, "UTC") if with_zone == len(texts) else pa.string()
    if pa.types.is_struct(of):
        rows = [value for value in values if isinstance(value, dict)]
        return pa.struct([f.with_type(with_zones(f.type, [row.get(f.name) for row in rows])) for f in of])
    if is_list(of):
        inner = [element for value in values if isinstance(value, list) for element in value]
        return pa.list_(of.value_field.with_type(with_zones(of.value_type, inner)))
    return of


def as_texts(schema: pa.Schema) -> pa.Schema:
    """Return a schema with strings for dates, and for columns of times of day."""

    def plain(leaf: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_date(leaf) else leaf

    return pa.schema(
        [f.with_type(pa.string() if pa.types.is_time(f.type) else with_leaves(f.type, plain)) for f in schema]
    )


def from_texts(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table that was read with `as_texts` with the types of the schema.

    Args:
        table: the table; it may have other columns, too.
        schema: the types.

    Raises:
        pa.ArrowInvalid: a text does not say a date or a time of day, or would lose a part as one.
    """
    for i, name in enumerate(table.schema.names):
        if name in schema.names:
            table = table.set_column(i, schema.field(name), _from_texts(table.column(i), schema.field(name).type))
    return table


def _from_texts(column: pa.ChunkedArray, of: pa.DataType) -> pa.ChunkedArray:
    return times_of_texts(column, of) if pa.types.is_date(of) or pa.types.is_time(of) else column.cast(of)
