"""A call into an optional channel is waited for a moment; `test_optional_puts` shows what that is for a source."""

from __future__ import annotations

import threading
import time

import pytest

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import SpillableError
from spillable_stream.flow import optional_way
from spillable_stream.flow.optional_way import LateCallError, Way, WayCall, in_a_moment
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def way_to(name: str) -> Way:
    return Way(name, counts_late=False)


def fail() -> int:
    raise ValueError("no")


def test_calls_give_what_they_return_or_raise() -> None:
    returned, raised = in_a_moment([WayCall(way_to("a"), lambda: 7), WayCall(way_to("b"), fail)])
    assert returned == 7 and isinstance(raised, ValueError)


def test_several_calls_that_hang_cost_one_moment_and_what_comes_passes_them_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(optional_way, "wait", lambda _, seconds: waits.append(seconds))
    answers, ways = threading.Event(), [way_to("a"), way_to("b")]
    calls = [WayCall(way, lambda: answers.wait(60)) for way in ways]
    assert [type(found) for found in in_a_moment(calls)] == [LateCallError] * 2
    assert waits == [optional_way._MOMENT_SECONDS]
    assert [type(found) for found in in_a_moment(calls)] == [SpillableError] * 2
    answers.set()
    wait_until(lambda: not any(way.is_busy for way in ways))


def test_a_call_that_counts_late_is_not_awaited_while_the_channel_is_slow() -> None:
    way, answers = Way("a", counts_late=True), threading.Event()
    way.is_slow = True
    (late,) = in_a_moment([WayCall(way, lambda: answers.wait(60))])
    assert isinstance(late, LateCallError) and str(late).endswith(
        "took longer than a second before, and is not waited for"
    )
    answers.set()
    wait_until(lambda: not way.is_busy)
    assert not way.is_slow


def test_a_call_that_counts_in_time_only_is_awaited_though_the_channel_was_slow() -> None:
    way, answers = way_to("a"), threading.Event()
    way.is_slow = True
    assert in_a_moment([WayCall(way, lambda: answers.wait(60))], answers.set) == [True]


@pytest.mark.parametrize("counts_late", [False, True])
def test_an_interrupt_leaves_no_call_that_has_not_begun_and_refuses_none_that_come(
    counts_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    way, begin_for, made = Way("a", counts_late=counts_late), CallThreads.begin_for, list[int]()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CallThreads, "begin_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            in_a_moment([WayCall(way, lambda: made.append(1))])
    assert not way.is_busy
    monkeypatch.setattr(CallThreads, "begin_for", lambda *given: (begin_for(*given), interrupted()))
    with pytest.raises(KeyboardInterrupt):
        in_a_moment([WayCall(way, lambda: made.append(2))])  # which may be made
    wait_until(lambda: not way.is_busy)
    assert 1 not in made
    monkeypatch.undo()
    assert in_a_moment([WayCall(way, lambda: 3)]) == [3]


def test_a_call_that_may_be_put_off_is_made_when_those_have_ended_for_which_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way, answers, made = way_to("a"), threading.Event(), list[str]()

    def hang() -> None:
        answers.wait(60)
        made.append("late")

    with monkeypatch.context() as patch:
        patch.setattr(optional_way, "wait", lambda *_: None)
        assert isinstance(in_a_moment([WayCall(way, hang)])[0], LateCallError)
    later = WayCall(way, lambda: made.append("put off"), may_be_put_off=True)
    assert isinstance(in_a_moment([later])[0], LateCallError)
    assert made == []
    answers.set()
    wait_until(lambda: not way.is_busy)
    assert made == ["late", "put off"]
    assert in_a_moment([later]) == [None]
    assert made == ["late", "put off", "put off"]


def test_what_is_done_meanwhile_does_not_count_as_waiting_and_what_it_raises_gives_the_calls_up() -> None:
    way, answers = way_to("a"), threading.Event()
    assert in_a_moment([WayCall(way, lambda: answers.wait(60))], answers.set) == [True]
    answers.clear()
    begun = threading.Event()

    def hang() -> bool:
        begun.set()
        return answers.wait(60)

    def fail_then() -> None:
        assert begun.wait(60)
        fail()

    with pytest.raises(ValueError, match="no"):
        in_a_moment([WayCall(way, hang)], fail_then)
    (refused,) = in_a_moment([WayCall(way, fail)])
    assert isinstance(refused, SpillableError) and "has not ended there" in str(refused)
    answers.set()
    way.close(time.monotonic() + 60)
    assert not way.is_busy


def test_a_call_for_which_there_is_no_thread_is_not_made() -> None:
    with no_threads():
        (found,) = in_a_moment([WayCall(way_to("a"), lambda: pytest.fail("it may hang"))])
    assert isinstance(found, RuntimeError)
