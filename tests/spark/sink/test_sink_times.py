"""What a write says of its rows' times; no session of Spark is needed to show it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DayTimeIntervalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spillable_stream import OptionError, SchemaError
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.spark.sink.sink_times import SinkTimes, wall_clock_ms

NOW_MS = 1_800_000_000_000
AT = pa.timestamp("us", "Europe/Amsterdam")  # Spark sends the session's zone


def moment(ms: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def times_of(times: SinkTimes, **columns: pa.Array) -> tuple[list[int], list[int]]:
    batch, found = times.divide(pa.record_batch(columns), NOW_MS)
    assert not set(times.columns) & set(batch.schema.names)
    ttls, dues = ([v] * batch.num_rows if isinstance(v, int) else v.to_pylist() for v in found)
    return ttls, dues


def test_rows_without_columns_have_the_times_of_the_options() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    assert SinkTimes(5, None, 100).divide(batch, NOW_MS) == (batch, RowTimes(5, NOW_MS + 100))
    assert SinkTimes().divide(batch, NOW_MS) == (batch, RowTimes())
    assert [SinkTimes().may_delay, SinkTimes(0, None, 1).may_delay, SinkTimes(0, None, 0, "at").may_delay] == [
        False, True, True
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2, None, 3], pa.int32()),
        ([2.0, None, 3.0], pa.float64()),
        ([Decimal("2.000"), None, Decimal(3)], pa.decimal128(10, 3)),
        ([timedelta(seconds=2), None, timedelta(seconds=3)], pa.duration("us")),
    ],
)
def test_a_column_says_each_rows_ttl_and_null_is_the_options(values: list[Any], kind: pa.DataType) -> None:
    found = times_of(SinkTimes(7, "t"), n=pa.array([1, 2, 3]), t=pa.array(values, kind))
    assert found == ([2_000_000, 7, 3_000_000], [0, 0, 0])


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), 4e9, 1e-8])
def test_a_ttl_that_cannot_be_is_refused_with_its_column(wrong: float) -> None:
    with pytest.raises(OptionError, match=r"the column 't' has the ttl .* more than 0 and at most 100 years"):
        times_of(SinkTimes(0, "t"), n=pa.array([1, 2]), t=pa.array([1.0, wrong]))


@pytest.mark.parametrize("wrong", [2**63 - 1, -(2**63), 2**53 + 1, 0])
def test_a_ttl_of_whole_seconds_that_cannot_be_is_refused_with_its_column(wrong: int) -> None:
    with pytest.raises(OptionError, match=rf"the column 't' has the ttl {wrong}; it must be more than 0 and at most"):
        times_of(SinkTimes(0, "t"), n=pa.array([1, 2]), t=pa.array([1, wrong], pa.int64()))


def test_a_column_says_when_each_row_is_due_and_null_and_the_past_are_now() -> None:
    at = [moment(NOW_MS + 5000), None, moment(0), moment(NOW_MS), moment(NOW_MS + 0.5)]
    found = times_of(SinkTimes(0, None, 0, "at"), n=pa.array(range(5)), at=pa.array(at, AT))
    assert found == ([0] * 5, [NOW_MS + 5000, 0, 0, 0, NOW_MS + 1])


def test_a_time_beyond_a_year_is_refused_with_its_column() -> None:
    year_ms = 366 * 86_400_000
    at = [moment(NOW_MS + year_ms), moment(NOW_MS + year_ms + 1)]
    times = SinkTimes(0, None, 0, "at")
    assert times_of(times, n=pa.array([1]), at=pa.array(at[:1], AT))[1] == [NOW_MS + year_ms]
    with pytest.raises(OptionError, match=r"the column 'at' has the time 2028.* a row waits at most a year"):
        times_of(times, n=pa.array([1, 2]), at=pa.array(at, AT))


@pytest.mark.parametrize("wrong", [2**63 - 1, 253_402_300_800_000_000])
def test_a_time_beyond_pythons_calendar_is_refused_with_its_column(wrong: int) -> None:
    at = pa.array([wrong], pa.int64()).cast(AT)
    with pytest.raises(OptionError, match="the column 'at' has the time 9999-12-31 or later, and a row waits at most"):
        times_of(SinkTimes(0, None, 0, "at"), n=pa.array([1]), at=at)


def fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_columns_of_times_are_not_stored() -> None:
    rows = fields(t=DoubleType(), n=LongType(), at=TimestampType())
    assert SinkTimes(0, "t", 0, "at").stored(rows) == fields(n=LongType())
    assert SinkTimes(0, "t").stored(rows) == fields(n=LongType(), at=TimestampType())
    assert SinkTimes(0, "t").stored(fields(t=DayTimeIntervalType(), n=LongType())) == fields(n=LongType())


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (SinkTimes(0, "x"), "ttlColumn names the column 'x', and the rows have n, s, at; name one of these"),
        (SinkTimes(0, None, 0, "N"), "deliverAtColumn names the column 'N', and the rows have n, s, at"),
        (SinkTimes(0, "s"), "ttlColumn names the column 's' of the type string; give it a number of seconds"),
        (SinkTimes(0, None, 0, "n"), "deliverAtColumn names the column 'n' of the type bigint; give it a TIMESTAMP"),
        (SinkTimes(0, None, 0, "at"), "of the type timestamp_ntz; give it a TIMESTAMP, which has a time zone"),
    ],
)
def test_a_column_that_says_no_times_is_refused(times: SinkTimes, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        times.stored(fields(n=LongType(), s=StringType(), at=TimestampNTZType()))


def test_rows_of_nothing_but_times_are_refused() -> None:
    with pytest.raises(SchemaError, match="nothing but the columns of their times"):
        SinkTimes(0, "t").stored(fields(t=LongType()))


def test_the_clock_is_the_wall_clock() -> None:
    assert abs(wall_clock_ms() / 1000 - datetime.now(UTC).timestamp()) < 60
