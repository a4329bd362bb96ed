from __future__ import annotations

import random

import pytest

from spillable_stream.objects.pace import Pace
from tests.support.object_logs import FakeTime


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture(autouse=True)
def _longest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)


def append(pace: Pace, time: FakeTime, took_seconds: float = 0.5) -> float:
    """Append when it may be, and return how long it had to wait."""
    before = time.now
    pace.wait()
    waited = time.now - before
    time.now += took_seconds
    pace.appended(took_seconds)
    return waited


def test_who_is_alone_waits_for_a_whole_turn_after_one_append_in_thirty(time: FakeTime) -> None:
    pace = Pace(0, time.monotonic, time.sleep)
    waits = [append(pace, time) for _ in range(61)]
    assert {number: waited for number, waited in enumerate(waits) if waited} == {30: 0.75, 60: 0.75}


def test_who_is_alone_at_a_quick_store_waits_for_a_whole_turn_every_two_seconds(time: FakeTime) -> None:
    pace = Pace(0, time.monotonic, time.sleep)
    waits = [append(pace, time, 1 / 256) for _ in range(2048)]
    assert sum(1 for waited in waits if waited) == 4, "after 30 appends, and every 512 from then on"
    assert waits[30] == 1.5 / 256, "who comes at the same time is seen soon"


def test_who_has_company_waits_after_each_for_up_to_what_an_append_takes(time: FakeTime) -> None:
    pace = Pace(0, time.monotonic, time.sleep)
    pace.saw_others()
    assert [append(pace, time) for _ in range(4)] == [0, 0.5, 0.5, 0.5]


def test_company_is_over_a_minute_after_it_was_seen(time: FakeTime) -> None:
    pace = Pace(0, time.monotonic, time.sleep)
    pace.saw_others()
    time.now += 60
    assert [append(pace, time) for _ in range(3)] == [0, 0, 0]


def test_appends_begin_no_sooner_than_an_interval_after_each_other(time: FakeTime) -> None:
    pace = Pace(2.0, time.monotonic, time.sleep)
    assert append(pace, time, 0.5) == 0
    assert append(pace, time, 0.5) == 1.5
    assert append(pace, time, 5.0) == 1.5
    assert append(pace, time) == 0


def test_nobody_sleeps_who_may_begin(time: FakeTime) -> None:
    pace = Pace(0, time.monotonic, time.sleep)
    append(pace, time)
    assert pace.left_seconds() == 0
    pace.wait()
    assert time.slept == []
