"""Values of rows that Arrow would change without a word: what is put is what is given out."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.types import is_list

__all__ = ["check_rows"]

_MICROSECONDS = {"s": 1_000_000, "ms": 1000}
_FIRST_INFINITE = {16: 65520.0, 32: (2 - 2**-24) * 2.0**127}  # by bits: from here on Arrow rounds up to infinity


def check_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Check that nothing of what rows have is left out or cut.

    Raises:
        SchemaError: a struct has a field that the channel does not know, or a value is finer than its column: a float
            with a fraction for an integer, one too large for its column, a time for a date, a time zone or
            microseconds for a timestamp or a time of day without.
    """
    for field in schema:
        _check([row.get(field.name) for row in rows], field.type, field.name)


def _check(values: Iterable[Any], t: pa.DataType, name: str) -> None:
    given = [v for v in values if v is not None]
    if pa.types.is_struct(t):
        _check_struct([v for v in given if isinstance(v, Mapping)], t, name)
    elif pa.types.is_map(t):
        pairs = [p for v in given for p in (v.items() if isinstance(v, Mapping) else v)]
        _check([key for key, _ in pairs], t.key_type, f"{name}.key")
        _check([value for _, value in pairs], t.item_type, f"{name}.value")
    elif is_list(t) or pa.types.is_fixed_size_list(t):
        _check([x for v in given for x in v], t.value_type, f"{name}.element")
    elif (is_cut := _cutter(t)) is not None:
        for value in given:
            if is_cut(value):
                raise SchemaError(
                    f"a row does not fit the channel's schema: {value!r} would lose something in the column {name!r}, "
                    f"which has the type {t}"
                )


def _check_struct(values: list[Mapping[str, Any]], t: pa.StructType, name: str) -> None:
    known = {f.name for f in t}
    for value in values:
        if unknown := value.keys() - known:
            raise SchemaError(
                f"a row does not fit the channel's schema: the column {name!r} has no field {min(unknown, key=str)!r}; "
                f"it has the type {t}"
            )
    for field in t:
        _check([v.get(field.name) for v in values], field.type, f"{name}.{field.name}")


def _cutter(t: pa.DataType) -> Callable[[Any], bool] | None:
    """Return what tells of a value whether Arrow would cut it for a type; None if it cuts nothing."""
    if pa.types.is_integer(t):
        return lambda v: (
            (isinstance(v, float) and not v.is_integer())
            or (isinstance(v, Decimal) and v.is_finite() and v != v.to_integral_value())
        )
    if pa.types.is_float16(t) or pa.types.is_float32(t):
        infinite = _FIRST_INFINITE[t.bit_width]
        return lambda v: isinstance(v, float) and infinite <= abs(v) < math.inf
    if pa.types.is_date(t):
        return lambda v: isinstance(v, dt.datetime) and v.time() != dt.time()
    if pa.types.is_timestamp(t):
        unit, naive = _MICROSECONDS.get(t.unit, 1), t.tz is None
        return lambda v: isinstance(v, dt.datetime) and bool(v.microsecond % unit or (naive and v.tzinfo))
    if pa.types.is_time(t):
        unit = _MICROSECONDS.get(t.unit, 1)
        return lambda v: isinstance(v, dt.time) and bool(v.microsecond % unit or v.tzinfo)
    if pa.types.is_duration(t) and t.unit in _MICROSECONDS:
        unit = _MICROSECONDS[t.unit]
        return lambda v: isinstance(v, dt.timedelta) and bool(v.microseconds % unit)
    return None
