"""How old an event is."""

from __future__ import annotations

import time

import pytest

from spillable_stream.event_age import age_seconds

_NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the wall clock."""
    monkeypatch.setattr(time, "time", lambda: _NOW)


def test_the_age_is_the_time_since_the_put() -> None:
    assert age_seconds(int((_NOW - 60) * 1e6)) == 60.0


def test_an_event_of_the_future_has_no_age_below_0() -> None:
    assert age_seconds(int((_NOW + 60) * 1e6)) == 0.0


def test_nobody_knows_the_age_of_an_event_whose_time_is_not_known() -> None:
    assert age_seconds(None) is None
