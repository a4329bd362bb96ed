"""For how long the rows of a write count, and when they are due: by the write's options, or by columns of the rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from spillable_stream.channel.row_times import RowTimes
from spillable_stream.channel.ttl import MOST_TTL_US
from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.option_parsers import MOST_DELAY_SECONDS
from spillable_stream.shown_value import shown
from spillable_stream.spark.schema import arrow_schema

__all__ = ["SinkTimes", "wall_clock_ms"]

_TTL_COLUMN, _AT_COLUMN = "ttlColumn", "deliverAtColumn"
_LAST_US = 253_402_214_400_000_000  # the last day of Python's calendar, in microseconds since 1970; Spark's is longer


def wall_clock_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class SinkTimes:
    """What a write says of its rows' times. Picklable.

    Args:
        ttl_us: the ttl of rows for which no column says one, in microseconds; 0 for none.
        ttl_column: the column with each row's ttl; None without one.
        deliver_after_ms: how long after its task has written it a row is due, in milliseconds; 0 for at once.
        deliver_at_column: the column with each row's due time; None without one.
    """

    ttl_us: int = 0
    ttl_column: str | None = None
    deliver_after_ms: int = 0
    deliver_at_column: str | None = None

    @property
    def may_delay(self) -> bool:
        """Whether rows may be due later."""
        return self.deliver_after_ms > 0 or self.deliver_at_column is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say times; they are not stored."""
        return tuple(name for name in (self.ttl_column, self.deliver_at_column) if name is not None)

    def stored(self, schema: StructType) -> StructType:
        """Return the columns of the rows that are stored.

        Args:
            schema: the columns of the rows.

        Raises:
            OptionError: the rows do not have a column, or its type says no such times.
            SchemaError: no column is left.
        """
        for option, name, fits, wanted in (
            (_TTL_COLUMN, self.ttl_column, _may_be_ttl, "a number of seconds or an INTERVAL DAY TO SECOND"),
            (_AT_COLUMN, self.deliver_at_column, _may_be_time, "a TIMESTAMP, which has a time zone"),
        ):
            if name is None:
                continue
            if name not in schema.names:
                found = ", ".join(schema.names)
                raise OptionError(
                    f"{option} names the column {shown(name)}, and the rows have {found}; name one of these"
                )
            if not fits(arrow_schema(StructType([schema[name]])).field(0).type):
                found = schema[name].dataType.simpleString()
                raise OptionError(f"{option} names the column {shown(name)} of the type {found}; give it {wanted}")
        left = StructType([f for f in schema.fields if f.name not in self.columns])
        if not left.fields:
            raise SchemaError("the rows have nothing but the columns of their times; select some that can be stored")
        return left

    def divide(self, batch: pa.RecordBatch, now_ms: int) -> tuple[pa.RecordBatch, RowTimes]:
        """Return rows without the columns of their times, and these times.

        Args:
            batch: the rows.
            now_ms: the time, in milliseconds since 1970.

        Raises:
            OptionError: a row has a time that can't be.
        """
        ttl_us: int | pa.Int64Array = self.ttl_us
        due_ms: int | pa.Int64Array = now_ms + self.deliver_after_ms if self.deliver_after_ms else 0
        if self.ttl_column is not None:
            ttl_us = _ttls(batch.column(self.ttl_column), self.ttl_column, self.ttl_us)
        if self.deliver_at_column is not None:
            due_ms = _dues(batch.column(self.deliver_at_column), self.deliver_at_column, now_ms)
        if self.columns:
            batch = batch.select([name for name in batch.schema.names if name not in self.columns])
        return batch, RowTimes(ttl_us, due_ms)


def _may_be_ttl(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_duration(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _may_be_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _ttls(values: pa.Array, name: str, otherwise_us: int) -> pa.Int64Array:
    """Return ttls in microseconds; those of rows without one are ``otherwise_us``."""
    import pyarrow.compute as pc  # which takes long: only for a task whose rows have such a column

    if pa.types.is_duration(values.type):
        exact = values.cast(pa.duration("us")).cast(pa.int64())
    else:
        exact = pc.round(pc.multiply(values.cast(pa.float64(), safe=False), 1e6))  # of what is allowed, none is large
    wrong = values.filter(pc.invert(pc.and_(pc.greater_equal(exact, 1), pc.less_equal(exact, MOST_TTL_US))))
    if len(wrong):
        raise OptionError(
            f"the column {shown(name)} has the ttl {wrong[0].as_py()}; it must be more than 0 and at most 100 years, "
            "or null for that of the option ttl. Nothing was stored"
        )
    return exact.cast(pa.int64()).fill_null(otherwise_us)


def _dues(values: pa.Array, name: str, now_ms: int) -> pa.Int64Array:
    """Return when rows are due, in milliseconds since 1970; 0 for now."""
    import pyarrow.compute as pc

    exact_us = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    wrong = values.filter(pc.greater(exact_us, 1000 * (now_ms + 1000 * MOST_DELAY_SECONDS)))
    if len(wrong):
        text = wrong[0].as_py() if wrong[0].value < _LAST_US else "9999-12-31 or later"
        raise OptionError(
            f"the column {shown(name)} has the time {text}, and a row waits at most a year. Nothing was stored"
        )
    due_ms = pc.divide(pc.add(exact_us, 999), 1000)  # not before its time
    return pc.if_else(pc.greater(due_ms, now_ms), due_ms, 0).fill_null(0)
