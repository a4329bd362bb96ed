"""Dates, times and durations can be given out as Python's own objects again, or are refused."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from spillable_stream import SchemaError
from spillable_stream.format.value_leaf import ValueReader
from spillable_stream.format.value_times import time_reader
from tests.support.python_values import read_back


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_time_that_is_parts_of_a_second_from_utc_is_given_out_as_the_same_time(unit: str) -> None:
    pytest.importorskip("pandas")
    odd = dt.timezone(dt.timedelta(hours=1, microseconds=5))
    for zone in (odd, dt.timezone(dt.timedelta(hours=1)), odd, dt.UTC):
        value = dt.datetime(2020, 1, 1, tzinfo=zone)
        assert read_back(value, pa.timestamp(unit, "UTC")) == value
        assert read_back([value], pa.list_(pa.timestamp(unit, "UTC"))) == [value]
    with pytest.raises(SchemaError, match="'c'"):
        read_back(dt.datetime(2020, 1, 1, tzinfo=odd), pa.timestamp("ms", "UTC"))


def times(t: pa.DataType) -> ValueReader:
    found = time_reader(t, "c")
    assert found is not None
    return found


MIDNIGHT = dt.datetime(2020, 2, 3)


class Moment(dt.datetime):
    """A datetime that an application made its own."""


@pytest.mark.parametrize("t", [pa.int64(), pa.string(), pa.list_(pa.date32()), pa.bool_()], ids=str)
def test_what_is_not_a_time_has_another_reader(t: pa.DataType) -> None:
    assert time_reader(t, "c") is None


@pytest.mark.parametrize(
    ("t", "value"),
    [
        (pa.timestamp("s"), dt.datetime(2020, 1, 1, 0, 0, 0, 5)),
        (pa.timestamp("ms"), dt.datetime(2020, 1, 1, 0, 0, 0, 5)),
        (pa.timestamp("us"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us"), dt.date(2020, 1, 1)),
        (pa.timestamp("us"), True),
        (pa.timestamp("us"), 2**62),
        (pa.timestamp("ns"), 1),
        (pa.timestamp("ns"), dt.datetime(2300, 1, 1)),
        (pa.date32(), dt.datetime(2020, 1, 1, 12)),
        (pa.date32(), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (pa.date32(), 2**40),
        (pa.date64(), 5),
        (pa.time32("s"), dt.time(1, 2, 3, 4)),
        (pa.time64("us"), dt.time(1, tzinfo=dt.UTC)),
        (pa.time32("s"), 86_400),
        (pa.time32("s"), -1),
        (pa.duration("ms"), dt.timedelta(microseconds=5)),
        (pa.duration("ns"), dt.timedelta(days=200_000)),
        (pa.duration("us"), -(2**63)),
        (pa.month_day_nano_interval(), (2**31, 0, 0)),
        (pa.month_day_nano_interval(), (1, 2)),
        (pa.month_day_nano_interval(), [1, 2, 3]),
    ],
    ids=repr,
)
def test_what_arrow_would_round_or_not_give_out_is_refused(t: pa.DataType, value: Any) -> None:
    with pytest.raises(SchemaError, match="'c'"):
        times(t).read(value)


@pytest.mark.parametrize(
    ("t", "value", "found"),
    [
        (pa.timestamp("s"), MIDNIGHT, MIDNIGHT),
        (pa.timestamp("ms"), 5, dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
        (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(9999, 12, 31, 23, 59, 59)),
        (pa.date32(), MIDNIGHT, dt.date(2020, 2, 3)),
        (pa.date32(), dt.date.max, dt.date.max),
        (pa.date64(), 86_400_000, dt.date(1970, 1, 2)),
        (pa.time32("s"), 61, dt.time(0, 1, 1)),
        (pa.time64("us"), dt.time.max, dt.time.max),
        (pa.duration("s"), dt.timedelta(days=-2), dt.timedelta(days=-2)),
        (pa.duration("us"), 7, dt.timedelta(microseconds=7)),
    ],
    ids=repr,
)
def test_what_fits_is_given_out_again(t: pa.DataType, value: Any, found: Any) -> None:
    assert read_back(value, t) == found


def test_an_interval_is_given_out_again() -> None:
    assert tuple(read_back((1, -2, 3), pa.month_day_nano_interval())) == (1, -2, 3)


def test_a_time_of_its_own_class_is_a_plain_one() -> None:
    found = times(pa.timestamp("us")).read(Moment(2020, 2, 3, 4, 5, 6, 7))
    assert (type(found), found) == (dt.datetime, dt.datetime(2020, 2, 3, 4, 5, 6, 7))


def test_a_zone_that_nobody_can_change_is_kept() -> None:
    for zone in (ZoneInfo("Europe/Warsaw"), dt.timezone(dt.timedelta(hours=2)), ZoneInfo("Europe/Warsaw")):
        value = dt.datetime(2020, 10, 25, 2, 30, tzinfo=zone, fold=1)
        assert times(pa.timestamp("us", "UTC")).read(value) is value
