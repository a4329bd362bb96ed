from __future__ import annotations

from datetime import timedelta

import pytest

from spillable_stream import DeadLetter, Drop, Retry


def test_a_retry_says_when_in_seconds_or_as_a_timedelta() -> None:
    assert Retry().after_seconds is None
    assert Retry(after=2).after_seconds == 2
    assert Retry("full", after=timedelta(minutes=1)).after_seconds == 60
    assert str(Retry("full", after=1)) == "full"


@pytest.mark.parametrize("after", [-1, timedelta(seconds=-1), float("nan"), "soon"])
def test_a_retry_in_the_past_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match=r"^Retry\(after=…\) must be "):
        Retry(after=after)


def test_a_reason_is_the_text_of_each_verdict() -> None:
    assert [str(kind("why")) for kind in (Drop, DeadLetter, Retry)] == ["why"] * 3
