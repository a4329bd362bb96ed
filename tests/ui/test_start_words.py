"""A place in a channel in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spillable_stream import OptionError
from spillable_stream.ui.start_words import start_of


@pytest.mark.parametrize(
    ("words", "place"),
    [("earliest", "earliest"), (" latest ", "latest"), ("17", 17), ("1,234", 1234), ("15m", timedelta(minutes=15)),
     ("1.5 h ago", timedelta(hours=1.5)), ("30 s", timedelta(seconds=30)), ("2d", timedelta(days=2)),
     ("2026-11-25T14:30:00Z", datetime(2026, 11, 25, 14, 30, tzinfo=UTC))],
)  # fmt: skip
def test_words_are_places(words: str, place: object) -> None:
    assert start_of(words) == place


def test_a_time_without_a_zone_is_of_this_hosts_zone() -> None:
    found = start_of("2026-11-25 14:30")
    assert isinstance(found, datetime) and found.tzinfo is not None and found.replace(tzinfo=None).hour == 14


@pytest.mark.parametrize("words", ["", "first", "-5", "1.5", "25:00", "9999999999999 d", "12 parsecs", ","])
def test_other_words_are_refused_with_what_may_be_written(words: str) -> None:
    with pytest.raises(OptionError, match="write earliest, latest, an ID, a time"):
        start_of(words)
