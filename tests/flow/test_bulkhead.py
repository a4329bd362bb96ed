"""A call into an optional channel is waited for a second; `test_optional_puts` shows what that is for a source."""

from __future__ import annotations

import threading
import time

import pytest

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import SpillableError
from spillable_stream.flow import bulkhead as module
from spillable_stream.flow.bulkhead import Bulkhead, BulkheadCall, LateCallError, call_in_time
from spillable_stream.own_thread import NoThreadError
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def bulkhead_of(name: str) -> Bulkhead:
    return Bulkhead(name, counts_late=False)


def fail() -> int:
    raise ValueError("no")


def test_calls_give_what_they_return_or_raise() -> None:
    returned, raised = call_in_time([BulkheadCall(bulkhead_of("a"), lambda: 7), BulkheadCall(bulkhead_of("b"), fail)])
    assert returned == 7 and isinstance(raised, ValueError)


def test_several_calls_that_hang_cost_one_second_and_what_comes_passes_them_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(module, "wait", lambda _, seconds: waits.append(seconds))
    answers, bulkheads = threading.Event(), [bulkhead_of("a"), bulkhead_of("b")]
    calls = [BulkheadCall(bulkhead, lambda: answers.wait(60)) for bulkhead in bulkheads]
    assert [type(found) for found in call_in_time(calls)] == [LateCallError] * 2
    assert waits == [module._LIMIT_SECONDS]
    assert [type(found) for found in call_in_time(calls)] == [SpillableError] * 2
    answers.set()
    wait_until(lambda: not any(bulkhead.is_busy for bulkhead in bulkheads))


def test_a_call_that_counts_late_is_not_awaited_while_the_channel_is_slow() -> None:
    bulkhead, answers = Bulkhead("a", counts_late=True), threading.Event()
    bulkhead.is_slow = True
    (late,) = call_in_time([BulkheadCall(bulkhead, lambda: answers.wait(60))])
    assert isinstance(late, LateCallError) and str(late).endswith(
        "took longer than a second before, and is not waited for"
    )
    answers.set()
    wait_until(lambda: not bulkhead.is_busy)
    assert not bulkhead.is_slow


def test_a_call_that_counts_in_time_only_is_awaited_though_the_channel_was_slow() -> None:
    bulkhead, answers = bulkhead_of("a"), threading.Event()
    bulkhead.is_slow = True
    threading.Timer(0.05, answers.set).start()
    assert call_in_time([BulkheadCall(bulkhead, lambda: answers.wait(60))]) == [True]


@pytest.mark.parametrize("counts_late", [False, True])
def test_an_interrupt_leaves_no_call_that_has_not_begun_and_refuses_none_that_come(
    counts_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulkhead, begin_for, made = Bulkhead("a", counts_late=counts_late), CallThreads.begin_for, list[int]()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CallThreads, "begin_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call_in_time([BulkheadCall(bulkhead, lambda: made.append(1))])
    assert not bulkhead.is_busy
    monkeypatch.setattr(CallThreads, "begin_for", lambda *given: (begin_for(*given), interrupted()))
    with pytest.raises(KeyboardInterrupt):
        call_in_time([BulkheadCall(bulkhead, lambda: made.append(2))])  # which may be made
    wait_until(lambda: not bulkhead.is_busy)
    assert 1 not in made
    monkeypatch.undo()
    assert call_in_time([BulkheadCall(bulkhead, lambda: 3)]) == [3]


def test_a_call_that_may_be_put_off_is_made_when_those_have_ended_for_which_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bulkhead, answers, made = bulkhead_of("a"), threading.Event(), list[str]()

    def hang() -> None:
        answers.wait(60)
        made.append("late")

    with monkeypatch.context() as patch:
        patch.setattr(module, "wait", lambda *_: None)
        assert isinstance(call_in_time([BulkheadCall(bulkhead, hang)])[0], LateCallError)
    later = BulkheadCall(bulkhead, lambda: made.append("put off"), may_be_put_off=True)
    assert isinstance(call_in_time([later])[0], LateCallError)
    assert made == []
    answers.set()
    wait_until(lambda: not bulkhead.is_busy)
    assert made == ["late", "put off"]
    assert call_in_time([later]) == [None]
    assert made == ["late", "put off", "put off"]


def test_an_interrupt_of_the_wait_gives_the_calls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bulkhead, answers, begun = bulkhead_of("a"), threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return answers.wait(60)

    def fail_then(*_: object) -> None:
        assert begun.wait(60)
        fail()

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="no"):
        patch.setattr(module, "wait", fail_then)
        call_in_time([BulkheadCall(bulkhead, hang)])
    (refused,) = call_in_time([BulkheadCall(bulkhead, fail)])
    assert isinstance(refused, SpillableError) and "has not ended there" in str(refused)
    answers.set()
    bulkhead.close(time.monotonic() + 60)
    assert not bulkhead.is_busy


def test_a_call_for_which_there_is_no_thread_is_not_made() -> None:
    with no_threads():
        (found,) = call_in_time([BulkheadCall(bulkhead_of("a"), lambda: pytest.fail("it may hang"))])
    assert isinstance(found, NoThreadError)
