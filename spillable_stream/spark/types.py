"""Maps a channel's Arrow types to the fewer types that Spark has, without changing values.

Spark reads unsigned integers, half floats, small decimals and those with a scale below 0 or beyond the precision, views
and dates in milliseconds (date64) as the next wider type that it has. A read with nanosecond timestamps or durations is
refused at its start, unless its schema has a BIGINT for them; then it returns Arrow's integers. Spark's times have
microseconds, so a conversion would truncate values. A task that failed at the first such value would fail on each
retry.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.types import with_leaves
from spillable_stream.format.widening import misfit

__all__ = ["misread", "type_in_spark"]

_NEXT = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
_MOST_DIGITS = 38
_NANOSECONDS = (
    "Spark has no nanoseconds: give the read a schema in which that is a BIGINT, the nanoseconds (of a timestamp since "
    "1970; timestamp_micros(t div 1000) makes a time of it), or which does without it"
)


def type_in_spark(t: pa.DataType, name: str) -> pa.DataType:
    """Return the Arrow type that a channel's column has in Spark.

    Args:
        t: the column's type in the channel.
        name: the column's name, for the message.

    Raises:
        SchemaError: Spark has no type for its values.
    """

    def leaf(inner: pa.DataType) -> pa.DataType:
        if _has_nanoseconds(inner):
            raise SchemaError(f"the column {name!r} has the type {t}, and {_NANOSECONDS}")
        return _decimal_in_spark(inner) if pa.types.is_decimal(inner) else _NEXT.get(inner, inner)

    return with_leaves(t, leaf)


def _decimal_in_spark(t: pa.DataType) -> pa.DataType:
    """Return a decimal with the scale from 0 to its precision, as Spark has it; too wide a one if it has none."""
    scale = max(t.scale, 0)
    precision = max(t.precision - t.scale, 0) + scale
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.decimal256(2 * _MOST_DIGITS)


def misread(t: pa.DataType, wanted: pa.DataType, name: str) -> str:
    """Return why a channel's column can't be read as a type; "" if it can.

    Args:
        t: the column's type in the channel.
        wanted: its type in the read's schema.
        name: the column's name, for the message.
    """
    why = misfit(with_leaves(t, _as_read), wanted, name, whole=True)
    return f"{why}. {_NANOSECONDS}" if why and _any_leaf(t, _has_nanoseconds) else why


def _as_read(t: pa.DataType) -> pa.DataType:
    """Return the type in which a task returns values of a leaf type, if Spark can't represent them exactly."""
    if _has_nanoseconds(t):
        return pa.int64()
    return pa.date32() if pa.types.is_date64(t) else t


def _has_nanoseconds(t: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(t) or pa.types.is_duration(t)) and t.unit == "ns")


def _any_leaf(t: pa.DataType, asked: Callable[[pa.DataType], bool]) -> bool:
    found: list[bool] = []

    def leaf(inner: pa.DataType) -> pa.DataType:
        found.append(asked(inner))
        return inner

    with_leaves(t, leaf)
    return any(found)
