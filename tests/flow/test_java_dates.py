"""Texts are read as times as Joda-Time reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.java_dates import JodaPattern


def ms(*parts: int, milli: int = 0) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1000 + milli  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-01-02 03:04:05", ms(2024, 1, 2, 3, 4, 5)),
        ("yyyy-MM-dd HH:mm:ss,SSS", "2024-1-2 3:4:5,67", ms(2024, 1, 2, 3, 4, 5, milli=670)),
        ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-01-02T03:04:05+0130", ms(2024, 1, 2, 1, 34, 5)),
        ("yyyy-MM-dd'T'HH:mm:ssZZ", "2024-01-02T03:04:05-01:00", ms(2024, 1, 2, 4, 4, 5)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "01/Jan/2024:00:00:00 +0000", ms(2024, 1, 1)),
        ("EEE MMM d HH:mm:ss z yyyy", "Mon Jan 1 12:00:00 UTC 2024", ms(2024, 1, 1, 12)),
        ("EEEE, d MMMM yyyy h:mm a", "Monday, 1 January 2024 12:05 AM", ms(2024, 1, 1, 0, 5)),
        ("yyyyMMddHHmmss", "20240102030405", ms(2024, 1, 2, 3, 4, 5)),
        ("yy-M-d", "24-1-2", ms(2024, 1, 2)),
        ("yy-M-d", "70-1-2", ms(1970, 1, 2)),
        ("yyyy.DDD", "2024.060", ms(2024, 2, 29)),
        ("MMM d", "Feb 29", ms(2000, 2, 29)),
        ("HH:mm", "01:02", ms(1970, 1, 1, 1, 2)),
        ("kk", "24", ms(1970, 1, 1)),
        ("K a", "11 pm", ms(1970, 1, 1, 23)),
        ("yyyy ZZZ", "2024 Europe/Berlin", ms(2023, 12, 31, 23)),
        ("yyyy 'o''clock'", "2024 o'clock", ms(2024, 1, 1)),
        ("yyyy-MM-dd", "2024-02-30", None),
        ("yyyy-MM-dd", "2024-02-03 ", None),
        ("yyyy", "two", None),
        ("HH", "24", None),
        ("yyyy.DDD", "2023.366", None),
        ("yyyy ZZZ", "2024 Nowhere/Land", None),
        ("s", "60", None),
    ],
)
def test_what_a_text_says(pattern: str, text: str, expected: int | None) -> None:
    assert JodaPattern(pattern, UTC).milliseconds(text) == expected


def test_a_time_that_the_clock_leaves_out_is_none() -> None:
    berlin = JodaPattern("yyyy-MM-dd HH:mm", ZoneInfo("Europe/Berlin"))
    assert berlin.milliseconds("2024-03-31 02:30") is None
    assert berlin.milliseconds("2024-03-31 03:30") == ms(2024, 3, 31, 1, 30)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)))
def test_what_is_written_is_read_back(time: datetime) -> None:
    text = time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time.microsecond // 1000:03}"
    expected = int(time.replace(tzinfo=UTC, microsecond=0).timestamp()) * 1000 + time.microsecond // 1000
    assert JodaPattern("yyyy-MM-dd HH:mm:ss.SSS", UTC).milliseconds(text) == expected


def test_the_zone_of_the_host_is_used_where_none_is_given() -> None:
    local = int(datetime(2024, 1, 2).timestamp()) * 1000
    assert JodaPattern("yyyy-MM-dd").milliseconds("2024-01-02") == local


@pytest.mark.parametrize(
    ("pattern", "says"), [("yyyy-ww", "the letter w, which is not supported"), ("yyyy'", "a quote that does not end")]
)
def test_a_pattern_that_is_not_supported_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        JodaPattern(pattern)
