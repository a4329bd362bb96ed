from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.date_lookup import formatted


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2026-03-05 00:07:09.042"),
        ("yy/M/d", "26/3/5"),
        ("EEE, d MMM yyyy", "Thu, 5 Mar 2026"),
        ("EEEE d. MMMM", "Thursday 5. March"),
        ("h:mm a 'o''clock' '' kk K", "12:07 AM o'clock ' 24 0"),
        ("DDD u", "064 4"),
        ("Z X z", "+0000 Z UTC"),
    ],
)
def test_a_time_is_written_as_java_writes_it(pattern: str, text: str) -> None:
    assert formatted(pattern, datetime(2026, 3, 5, 0, 7, 9, 42_000, tzinfo=UTC)) == text


@pytest.mark.parametrize("pattern", ["Q", "'open"])
def test_a_pattern_that_is_not_supported_is_an_error(pattern: str) -> None:
    with pytest.raises(OptionError):
        formatted(pattern, datetime(2026, 3, 5, tzinfo=UTC))
