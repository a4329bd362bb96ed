"""Each call is made once, by whichever threads there are."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from functools import partial

import pytest

from spillable_stream import call_threads
from spillable_stream.call_threads import CallThreads
from spillable_stream.own_thread import NoThreadError
from tests.support.interrupts import Interrupts
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def test_calls_are_made_at_the_same_time_the_first_in_this_thread() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def call(number: int) -> tuple[int, str]:
        meeting.wait()
        return number, threading.current_thread().name

    with closing(CallThreads(2, "some")) as threads:
        for _ in range(2):
            first, *others = threads.at_once([partial(call, number) for number in range(3)])
            assert first == (0, threading.current_thread().name)
            assert [number for number, _ in others] == [1, 2]
            assert {name for _, name in others} == {"some_0", "some_1"}
        assert threads.at_once([lambda: 7]) == [7]


@pytest.mark.parametrize(("there", "refused"), [(0, 1), (1, 2)])
def test_where_no_thread_can_be_started_each_call_is_made_once_by_those_that_are_there(
    there: int, refused: int
) -> None:
    made: list[int] = []
    with closing(CallThreads(4, "some")) as threads:
        for _ in range(there):
            threads.begin(lambda: None).result(30)
        with no_threads() as names:
            threads.at_once([partial(made.append, number) for number in range(4)])
        assert len(names) >= refused
        assert sorted(made) == [0, 1, 2, 3]
        threads.at_once([partial(made.append, number) for number in range(4, 8)])
        assert sorted(made) == list(range(8))


def test_a_call_without_a_thread_is_not_made() -> None:
    made: list[int] = []
    with closing(CallThreads(1, "some")) as threads:
        with no_threads(), pytest.raises(NoThreadError, match="can't start new thread"):
            threads.begin(lambda: made.append(1))
        threads.begin(lambda: made.append(2)).result(30)
    assert made == [2]
    with pytest.raises(NoThreadError, match="were closed"):
        threads.begin(lambda: made.append(3))


def test_where_no_thread_may_be_there_a_call_is_not_made_and_calls_at_once_are_made_in_this_one() -> None:
    made: list[int] = []
    with closing(CallThreads(0, "none")) as threads:
        with pytest.raises(NoThreadError, match="none may have no thread"):
            threads.begin(lambda: made.append(0))
        threads.at_once([partial(made.append, number) for number in (1, 2)])
    assert made == [1, 2]


class _Argument:
    """Something that is large."""

    def is_used(self) -> bool:
        return True


@pytest.mark.parametrize("calls", [1, 2])
def test_an_idle_thread_keeps_nothing_of_the_calls_that_it_has_made(calls: int) -> None:
    with closing(CallThreads(1, "some")) as threads:
        for _ in range(calls):
            argument = _Argument()
            gone = weakref.ref(argument)
            assert threads.begin(argument.is_used).result(30)
            del argument
            wait_until(lambda gone=gone: gone() is None)


def test_the_threads_of_one_to_which_their_calls_refer_end_as_it_is_forgotten() -> None:
    class Owner:
        def __init__(self) -> None:
            self.threads = CallThreads(1, "owned")

        def work(self) -> None:
            self.threads.begin(lambda: self.threads).result(30)

    owner = Owner()
    owner.work()
    del owner

    def are_gone() -> bool:
        gc.collect()
        return not any(t.name.startswith("owned") for t in threading.enumerate())

    wait_until(are_gone)


def test_a_call_without_a_thread_may_be_made_in_this_one() -> None:
    with closing(CallThreads(1, "some")) as threads:
        with no_threads():
            here: Future[int] = Future()
            threads.begin_or_make(here, threading.get_ident)
            assert here.result(0) == threading.get_ident()
        there: Future[int] = Future()
        threads.begin_or_make(there, threading.get_ident)
        assert there.result(30) != threading.get_ident()


def test_a_thread_is_free_before_anyone_hears_that_its_call_has_ended() -> None:
    first, second = Future[str](), Future[str]()
    with closing(CallThreads(2, "some")) as threads:
        first.add_done_callback(lambda _: threads.begin_for(second, lambda: threading.current_thread().name))
        threads.begin_for(first, lambda: threading.current_thread().name)
        assert (first.result(30), second.result(30)) == ("some_0", "some_0")


def test_calls_one_after_the_other_start_one_thread() -> None:
    with closing(CallThreads(4, "some")) as threads:
        assert len({threads.begin(threading.get_ident).result(30) for _ in range(200)}) == 1


def test_an_error_is_raised_when_all_have_ended() -> None:
    ended: list[int] = []
    go_on = threading.Event()

    def fail() -> None:
        go_on.set()
        raise ZeroDivisionError

    def work() -> None:
        go_on.wait(30)
        ended.append(1)

    with closing(CallThreads(2, "some")) as threads:
        with pytest.raises(ZeroDivisionError):
            threads.at_once([fail, work])
        with pytest.raises(ZeroDivisionError):
            threads.at_once([work, fail])
    assert ended == [1, 1]


def test_a_call_that_was_cancelled_before_it_began_is_not_made() -> None:
    go_on, made = threading.Event(), list[int]()
    with closing(CallThreads(1, "some")) as threads:
        threads.begin(lambda: go_on.wait(30))
        assert threads.begin(lambda: made.append(1)).cancel()
        go_on.set()
    assert made == []


def test_the_threads_of_one_that_is_forgotten_end() -> None:
    threads = CallThreads(2, "forgotten")
    threads.at_once([lambda: None, lambda: None, lambda: None])
    del threads
    gc.collect()
    wait_until(lambda: not any(t.name.startswith("forgotten") for t in threading.enumerate()))


def test_settled_calls_are_all_made_in_the_threads_and_tell_one_by_one_how_they_ended() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with closing(CallThreads(2, "some")) as threads:
        first, *others = threads.settled([fail, threading.get_ident, threading.get_ident])
        assert isinstance(first.exception(), ZeroDivisionError)
        assert threading.get_ident() not in [other.result() for other in others]
        with no_threads():
            assert [done.result() for done in CallThreads(1, "none").settled([threading.get_ident])] == [
                threading.get_ident()
            ]


@pytest.mark.parametrize("how", ["settled", "at_once"])
def test_an_interrupt_waits_for_no_call_and_those_that_wait_are_not_made(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, is_begun, made = threading.Event(), threading.Event(), list[int]()

    def interrupted(*_: object) -> None:
        assert is_begun.wait(30)
        raise KeyboardInterrupt

    def hang() -> None:
        is_begun.set()
        go_on.wait(30)

    with closing(CallThreads(1, "some")) as threads:
        if how == "settled":
            monkeypatch.setattr(call_threads, "wait", interrupted)
        calls = [interrupted, hang] if how == "at_once" else [hang, lambda: made.append(1)]
        with pytest.raises(KeyboardInterrupt):
            getattr(threads, how)(calls)
        assert not go_on.is_set()
        go_on.set()
    assert made == []


@pytest.mark.parametrize("is_begun", [False, True])
def test_of_an_interrupt_while_calls_begin_those_that_wait_for_a_thread_are_not_made(
    is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, made, begin_for = threading.Event(), list[int](), CallThreads.begin_for
    last = partial(made.append, 2)

    def interrupted(threads: CallThreads, done: Future[object], call: Callable[[], object]) -> None:
        if call is not last or is_begun:
            begin_for(threads, done, call)
        if call is last:
            raise KeyboardInterrupt

    with closing(CallThreads(1, "some")) as threads:
        threads.begin(lambda: go_on.wait(30))
        with monkeypatch.context() as patch:
            patch.setattr(CallThreads, "begin_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                threads.at_once([partial(made.append, 0), partial(made.append, 1), last])
            with pytest.raises(KeyboardInterrupt):
                threads.begin(last)
        go_on.set()
    assert made == []


def test_what_interrupts_a_call_that_is_made_in_this_thread_is_raised() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with closing(CallThreads(1, "some")) as threads, no_threads(), pytest.raises(KeyboardInterrupt):
        threads.begin_or_make(Future(), interrupted)


def test_wherever_the_handler_of_a_signal_raises_what_python_does_without_a_thread_no_call_is_made_twice() -> None:
    number, is_hit = 0, True
    while is_hit:
        number += 1
        made: list[int] = []
        with closing(CallThreads(2, "some")) as threads:
            interrupts = Interrupts(
                number, "spillable_stream/call_threads", "spillable_stream/own_thread", error=RuntimeError
            )
            interrupts.run(partial(threads.at_once, [partial(made.append, each) for each in range(3)]))
            is_hit = interrupts.hit
        assert len(made) == len(set(made))
    assert number > 30
