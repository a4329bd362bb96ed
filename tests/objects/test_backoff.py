from __future__ import annotations

import random

import pytest

from spillable_stream.objects.backoff import Backoff
from tests.support.object_logs import FakeTime


def test_one_attempt_is_made_however_short_the_time_is() -> None:
    time = FakeTime()
    assert list(Backoff(0, time.sleep, time.monotonic).attempts()) == [0]
    assert time.slept == []


def test_pauses_grow_up_to_2_s_and_the_last_attempt_is_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    time = FakeTime()
    numbers = list(time.backoff(10.0).attempts())
    assert numbers == list(range(len(numbers)))
    assert time.slept[:7] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0])
    assert max(time.slept) == 2.0
    assert sum(time.slept) == pytest.approx(10.0)


def test_pauses_are_not_the_same_for_all() -> None:
    first, second = FakeTime(), FakeTime()
    for time in (first, second):
        list(time.backoff().attempts())
    assert first.slept != second.slept


def test_the_time_that_attempts_take_counts() -> None:
    time = FakeTime()
    for number in time.backoff(10.0).attempts():
        time.now += 6
        last = number
    assert last == 1


def test_each_use_has_all_of_the_time() -> None:
    backoff = (time := FakeTime()).backoff(10.0)
    for _ in range(2):
        before = time.now
        list(backoff.attempts())
        assert time.now - before == pytest.approx(10.0)
