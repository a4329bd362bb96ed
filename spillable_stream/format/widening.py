"""Which column types widen to which others: a type accepts another one if no value loses anything.

Every value of the source that Python or Spark can represent must equal a value of the target. Only the types decide,
never the values, so that a batch that fits once always fits. A column of type

* integer accepts narrower integers; unsigned ones if it has at least one more bit, or is unsigned too;
* float accepts narrower floats, and integers that it holds exactly: up to 32 bits in 64, up to 16 in 32, 8 in 16;
* decimal accepts decimals with no more digits on either side of the point, and integers with no more digits than it
  has before the point;
* string accepts strings, and binary accepts bytes, with offsets of any width; binary also accepts a fixed size;
* timestamp accepts coarser ones if both have a time zone, or neither has one; nanoseconds accept only nanoseconds,
  because 64 bits of them end in the year 2262; the same holds for durations;
* time of day accepts coarser ones; days in milliseconds (date64) accept days (date32);
* list accepts lists whose values fit, with offsets of any width; also lists of a fixed length;
* map accepts maps whose keys and values fit;
* struct accepts structs whose fields fit, by name and in any order; nullable ones may be missing, none may be unknown;
* any type accepts a dictionary whose values fit, and a column of only nulls.

Nulls where the target forbids them are found later, when the values are converted.
"""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.format.types import is_list, is_list_view

__all__ = ["is_list_for", "misfit"]

_UNITS = ("s", "ms", "us", "ns")
_EXACT_BITS = {16: 11, 32: 24, 64: 53}  # the widest integers that a float holds exactly
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of the largest integer; with 64 bits, unsigned has one more
_TEXTS = {pa.string(), pa.large_string(), pa.string_view()}
_BYTES = {pa.binary(), pa.large_binary(), pa.binary_view()}


def misfit(source: pa.DataType, target: pa.DataType, name: str, *, whole: bool = False) -> str:
    """Return why a column does not fit into another one; "" if it does.

    Args:
        source: the type of the values.
        target: the type to convert them to.
        name: the column's name, followed by the path of fields in it.
        whole: whether every field of a struct is required, even a nullable one.
    """
    while pa.types.is_dictionary(source):
        source = source.value_type
    if source.equals(target) or pa.types.is_null(source):
        return ""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _misfit_of_fields(source, target, name, whole)
    if pa.types.is_map(source) and pa.types.is_map(target):
        of_keys = misfit(source.key_type, target.key_type, f"{name}.key", whole=whole)
        return of_keys or misfit(source.item_type, target.item_type, f"{name}.value", whole=whole)
    if is_list_for(source, target):
        return misfit(source.value_type, target.value_type, f"{name}.element", whole=whole)
    if _takes(target, source):
        return ""
    return f"the column {name!r} has another type: {source} does not fit into {target}"


def _misfit_of_fields(source: pa.StructType, target: pa.StructType, name: str, whole: bool) -> str:
    given = {f.name: f.type for f in source}
    if len(given) < source.num_fields:
        return f"the column {name!r} has a field that occurs twice"
    known = {f.name for f in target}
    for field in given:
        if field not in known:
            return f"the column {name!r} has another type: its field {field!r} is unknown"
    for field in target:
        if field.name in given:
            if why := misfit(given[field.name], field.type, f"{name}.{field.name}", whole=whole):
                return why
        elif whole or not field.nullable:
            return f"the column {name!r} has another type: the field {field.name!r} is missing" + (
                "" if whole else " and not nullable"
            )
    return ""


def is_list_for(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether one list type fits into another, as far as it depends on the kind of list."""
    if is_list(target):
        return is_list(source) or bool(pa.types.is_fixed_size_list(source))
    if pa.types.is_fixed_size_list(source) and pa.types.is_fixed_size_list(target):
        return bool(source.list_size == target.list_size)
    return is_list_view(source) and bool(source.id == target.id)


def _takes(target: pa.DataType, source: pa.DataType) -> bool:
    """Tell whether a flat type accepts every value of another one."""
    is_a = pa.types
    if is_a.is_integer(source):
        return _takes_integer(target, source)
    if is_a.is_floating(source) and is_a.is_floating(target):
        return bool(target.bit_width >= source.bit_width)
    if is_a.is_decimal(source) and is_a.is_decimal(target):
        before = target.precision - target.scale >= source.precision - source.scale
        return bool(before and target.scale >= source.scale)
    if source in _TEXTS or target in _TEXTS:
        return source in _TEXTS and target in _TEXTS
    if target in _BYTES:
        return source in _BYTES or bool(is_a.is_fixed_size_binary(source))
    if is_a.is_timestamp(source) and is_a.is_timestamp(target):
        return (source.tz is None) == (target.tz is None) and _takes_unit(target, source)
    if is_a.is_duration(source) and is_a.is_duration(target):
        return _takes_unit(target, source)
    if is_a.is_time(source) and is_a.is_time(target):
        return _UNITS.index(target.unit) >= _UNITS.index(source.unit)
    return bool(is_a.is_date32(source) and is_a.is_date64(target))


def _takes_integer(target: pa.DataType, source: pa.DataType) -> bool:
    bits, signed = source.bit_width, bool(pa.types.is_signed_integer(source))
    if pa.types.is_integer(target):
        if signed == pa.types.is_signed_integer(target):
            return bool(target.bit_width >= bits)
        return bool(not signed and target.bit_width > bits)
    if pa.types.is_floating(target):
        return bool(bits - signed <= _EXACT_BITS[target.bit_width])
    if pa.types.is_decimal(target):
        digits = _DIGITS[bits] + (bits == 64 and not signed)
        return bool(target.scale >= 0 and target.precision - target.scale >= digits)
    return False


def _takes_unit(target: pa.DataType, source: pa.DataType) -> bool:
    if "ns" in (target.unit, source.unit):
        return bool(target.unit == source.unit)
    return _UNITS.index(target.unit) >= _UNITS.index(source.unit)
