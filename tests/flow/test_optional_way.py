"""A call into an optional channel is waited for a moment; `test_optional_puts` shows what that is for a source."""

from __future__ import annotations

import threading
import time

import pytest

from spillable_stream.errors import SpillableError
from spillable_stream.flow import optional_way
from spillable_stream.flow.optional_way import LateCallError, Way, WayCall, in_a_moment
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def fail() -> int:
    raise ValueError("no")


def test_calls_give_what_they_return_or_raise() -> None:
    returned, raised = in_a_moment([WayCall(Way("a"), lambda: 7), WayCall(Way("b"), fail)])
    assert returned == 7 and isinstance(raised, ValueError)


def test_several_calls_that_hang_cost_one_moment_and_what_comes_passes_them_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(optional_way, "wait", lambda _, seconds: waits.append(seconds))
    answers, ways = threading.Event(), [Way("a"), Way("b")]
    calls = [WayCall(way, lambda: answers.wait(60)) for way in ways]
    assert [type(found) for found in in_a_moment(calls)] == [LateCallError] * 2
    assert waits == [optional_way._MOMENT_SECONDS]
    assert [type(found) for found in in_a_moment(calls)] == [SpillableError] * 2
    answers.set()
    wait_until(lambda: not any(way.is_busy for way in ways))


def test_a_call_that_nobody_awaits_is_late_unless_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    way, answers = Way("a"), threading.Event()
    way.is_slow = True
    (late,) = in_a_moment([WayCall(way, lambda: answers.wait(60))])
    assert isinstance(late, LateCallError)
    answers.set()
    wait_until(lambda: not way.is_busy)
    assert not way.is_slow


def test_what_is_done_meanwhile_does_not_count_as_waiting_and_what_it_raises_gives_the_calls_up() -> None:
    way, answers = Way("a"), threading.Event()
    assert in_a_moment([WayCall(way, lambda: answers.wait(60))], answers.set) == [True]
    answers.clear()
    with pytest.raises(ValueError, match="no"):
        in_a_moment([WayCall(way, lambda: answers.wait(60))], fail)
    assert way.is_slow
    answers.set()
    way.close(time.monotonic() + 60)
    assert not way.is_busy


def test_a_call_for_which_there_is_no_thread_is_not_made() -> None:
    with no_threads():
        (found,) = in_a_moment([WayCall(Way("a"), lambda: pytest.fail("it may hang"))])
    assert isinstance(found, RuntimeError)
