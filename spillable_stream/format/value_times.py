"""How dates, times and durations are read: what is kept can be given out as Python's own objects again."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from spillable_stream.format.value_leaf import ColumnPath, ValueReader, leaf, native

__all__ = ["time_reader"]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS = 86_400
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}  # what a time may have no parts of
_EPOCH_DAYS = dt.date(1970, 1, 1).toordinal()
_OBJECT_BYTES = 48
_INTERVAL_BYTES = 168


def time_reader(t: pa.DataType, path: str) -> ValueReader | None:
    """Return the reader of a type of time; None for another type."""
    if pa.types.is_timestamp(t):
        return _timestamps(t, path)
    if pa.types.is_date(t):
        return _dates(t, path)
    if pa.types.is_time(t):
        return _times_of_day(t, path)
    if pa.types.is_duration(t):
        return _durations(t, path)
    if pa.types.is_interval(t):
        return _intervals(t, path)
    return None


def _given_back(value: Any, t: pa.DataType) -> Any:
    """Return a value if Arrow gives it out again; raises whatever Arrow or Python raises."""
    return value if pa.array([value], t).to_pylist()[0] is not None else None


def _number(value: Any, unit: str) -> int | None:
    """Return a number of units as a plain integer, if Python's objects can have it: they end at microseconds."""
    if not issubclass(type(value), int) or issubclass(type(value), bool):
        return None
    number = int.__index__(value)
    return number if unit != "ns" or number % 1000 == 0 else None


def _has_nanoseconds(value: Any) -> bool:
    """Tell whether a Timestamp or a Timedelta of pandas is finer than what Python knows."""
    return bool(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))


def _is_whole(zone: dt.tzinfo) -> bool:
    """Tell whether nobody can change a time zone, and it is whole seconds from UTC: Arrow leaves out the rest."""
    return type(zone) is ZoneInfo or (type(zone) is dt.timezone and not zone.utcoffset(None).microseconds)


def _plain(value: Any) -> dt.datetime:
    """Return a datetime of Python's own class, with a time zone that nobody can change."""
    zone = value.tzinfo
    if type(value) is dt.datetime and (zone is None or _is_whole(zone)):
        return value
    if zone is not None and not _is_whole(zone):
        value, zone = value.astimezone(dt.UTC), dt.UTC
    return dt.datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone,
        fold=value.fold,
    )  # fmt: skip


def _timestamps(t: pa.DataType, path: str) -> ValueReader:
    kind = "a datetime" if t.tz else "a datetime without a time zone"
    column = ColumnPath(path, t, f"{kind}, or a number of {t.unit} since 1970, as far as Python's datetime goes")
    part, aware = _MICROSECONDS.get(t.unit, 1), t.tz is not None
    # Nearer to an end than this it depends on the zones whether a value can be given out.
    first_year, last_year = (1679, 2261) if t.unit == "ns" else (3, 9997)
    first, last = (
        (dt.date(year, 1, 1).toordinal() - _EPOCH_DAYS) * _DAY_SECONDS * _PER_SECOND[t.unit]
        for year in (first_year, last_year)
    )

    def convert(value: Any) -> Any:
        value = native(value)
        if not issubclass(type(value), dt.datetime):
            number = _number(value, t.unit)
            return number if number is None or first <= number <= last else _given_back(number, t)
        if _has_nanoseconds(value):
            return None
        found = _plain(value)
        if found.microsecond % part or (found.tzinfo is not None and not aware):
            return None
        return found if first_year <= found.year < last_year else _given_back(found, t)

    slow = leaf(column, convert, _OBJECT_BYTES)

    known: dt.tzinfo | None = None  # the last zone that was found to be whole: most values have one and the same

    def read(value: Any) -> Any:
        nonlocal known
        if type(value) is dt.datetime and first_year <= value.year < last_year and not value.microsecond % part:
            zone = value.tzinfo
            if zone is None or zone is known:
                return value
            if aware and _is_whole(zone):
                known = zone
                return value
        return slow.read(value)

    return ValueReader(read, _OBJECT_BYTES)


def _dates(t: pa.DataType, path: str) -> ValueReader:
    in_days = pa.types.is_date32(t)
    unit = "days" if in_days else "milliseconds, of whole days,"
    column = ColumnPath(
        path, t, f"a date, a datetime of midnight without a time zone, or a number of {unit} since 1970"
    )
    of_a_day = 1 if in_days else _DAY_SECONDS * 1000

    def convert(value: Any) -> Any:
        value = native(value)
        if issubclass(type(value), dt.datetime):
            midnight = (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0)
            if not midnight or value.tzinfo is not None or _has_nanoseconds(value):
                return None
            return dt.datetime(value.year, value.month, value.day)
        if issubclass(type(value), dt.date):
            return dt.date(value.year, value.month, value.day)
        number = _number(value, "")
        if number is None or number % of_a_day:
            return None
        dt.date.fromordinal(number // of_a_day + _EPOCH_DAYS)
        return number

    slow = leaf(column, convert, _OBJECT_BYTES)
    return ValueReader(lambda value: value if type(value) is dt.date else slow.read(value), _OBJECT_BYTES)


def _times_of_day(t: pa.DataType, path: str) -> ValueReader:
    column = ColumnPath(
        path, t, f"a time without a time zone, no finer than the column, or a number of {t.unit} of a day"
    )
    part, end = _MICROSECONDS.get(t.unit, 1), _DAY_SECONDS * _PER_SECOND[t.unit]

    def convert(value: Any) -> Any:
        value = native(value)
        if not issubclass(type(value), dt.time):
            number = _number(value, t.unit)
            return number if number is not None and 0 <= number < end else None
        if value.microsecond % part or value.tzinfo is not None:
            return None
        return dt.time(value.hour, value.minute, value.second, value.microsecond)

    return leaf(column, convert, _OBJECT_BYTES)


def _durations(t: pa.DataType, path: str) -> ValueReader:
    column = ColumnPath(path, t, f"a timedelta, no finer than the column, or a number of {t.unit}, as far as both go")
    per_second = _PER_SECOND[t.unit]

    def fits(number: int) -> bool:
        dt.timedelta(seconds=number // per_second, microseconds=number % per_second * 1_000_000 // per_second)
        return -(2**63) < number < 2**63  # pandas takes the lowest number for no value

    def convert(value: Any) -> Any:
        value = native(value)
        if not issubclass(type(value), dt.timedelta):
            number = _number(value, t.unit)
            return number if number is not None and fits(number) else None
        if _has_nanoseconds(value):
            return None
        found = dt.timedelta(value.days, value.seconds, value.microseconds)
        number, rest = divmod(found // dt.timedelta(microseconds=1) * per_second, 1_000_000)
        return found if not rest and fits(number) else None

    return leaf(column, convert, _OBJECT_BYTES)


def _intervals(t: pa.DataType, path: str) -> ValueReader:
    column = ColumnPath(path, t, "a tuple of three integers: months, days and nanoseconds")
    limits = (2**31, 2**31, 2**63)

    def convert(value: Any) -> Any:
        value = native(value)
        if not issubclass(type(value), tuple):
            return None
        parts = tuple(_number(part, "") for part in tuple.__iter__(value))
        for part, limit in zip(parts, limits, strict=True):
            if part is None or not -limit <= part < limit:
                return None
        return parts

    return leaf(column, convert, _INTERVAL_BYTES)
