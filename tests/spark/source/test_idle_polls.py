"""How long a source with nothing new waits; the channel is a fake that counts."""

from __future__ import annotations

from typing import Any

import pytest

from spillable_stream.spark.source import idle_polls
from spillable_stream.spark.source.idle_polls import IdlePolls


class Clock:
    """A clock that only sleeping moves; it is the channel's port too, whose position changes when it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.commits_at: list[float] = []
        self.least_seconds = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def position(self) -> int:
        self.looks += 1
        return self.latest_position()

    def latest_position(self) -> int:
        return sum(at <= self.now for at in self.commits_at)

    def least_pause_seconds(self) -> float:
        return self.least_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(idle_polls, "time", clock)
    return clock


def waited(polls: IdlePolls, clock: Clock, is_there: Any = lambda: False) -> float:
    began = clock.now
    polls.wait(clock, is_there)  # type: ignore[arg-type]
    return clock.now - began


def test_first_poll_is_answered_at_once() -> None:
    polls = IdlePolls()
    assert not polls.may_wait()
    polls.record(nothing=True)
    assert polls.may_wait()


@pytest.mark.parametrize("end", [IdlePolls.are_over, lambda polls: polls.record(nothing=False)])
def test_poll_after_a_batch_is_answered_at_once(end: Any) -> None:
    polls = IdlePolls()
    polls.record(nothing=True)
    end(polls)
    assert not polls.may_wait()


def test_waits_and_pauses_grow_with_every_poll_up_to_a_limit(clock: Clock) -> None:
    polls, waits = IdlePolls(), []
    for _ in range(30):
        polls.record(nothing=True)
        waits.append(waited(polls, clock))
    assert waits[0] == pytest.approx(0.05, abs=0.002) and waits[-1] == pytest.approx(0.2, abs=0.02)
    assert (clock.pauses[0], clock.pauses[-1]) == (0.001, 0.02)


def test_channel_is_looked_at_after_a_commit_only(clock: Clock) -> None:
    polls, looks = IdlePolls(), []
    polls.record(nothing=True)
    clock.commits_at = [0.010, 0.030]
    waited(polls, clock, lambda: looks.append(clock.now))
    assert looks == [pytest.approx(0.010), pytest.approx(0.030)]


def test_a_channel_far_away_is_looked_at_once_in_its_least_pause(clock: Clock) -> None:
    polls = IdlePolls()
    clock.least_seconds = 1.0
    for _ in range(5):
        polls.record(nothing=True)
        assert waited(polls, clock) == 1.0
    assert clock.looks == 5


def test_wait_ends_when_there_is_something(clock: Clock) -> None:
    polls = IdlePolls()
    polls.record(nothing=True)
    clock.commits_at = [0.010]
    assert waited(polls, clock, lambda: True) == pytest.approx(0.010)
