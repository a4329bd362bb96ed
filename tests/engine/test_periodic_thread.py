"""A thread that works from time to time: it begins when it may, ends when it is told to, and keeps nothing alive."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import pytest

from spillable_stream.engine.periodic_thread import PeriodicThread
from spillable_stream.errors import StorageError
from tests.support.no_threads import no_threads

_WAIT_SECONDS = 60.0


class Work:
    """Counts how often it was done, and says when it was done often enough."""

    def __init__(self, most: int = 1 << 30, period_seconds: float = 0.001) -> None:
        self.count, self.most = 0, most
        self.seconds = period_seconds
        self.done = threading.Event()
        self.thread = PeriodicThread(self, "of a test")

    def period_seconds(self) -> float:
        return self.seconds

    def run_once(self) -> bool:
        self.count += 1
        if self.count >= 3:
            self.done.set()
        return self.count < self.most


def thread_of(work: Work) -> threading.Thread:
    thread = work.thread._thread
    assert thread is not None
    return thread


def test_it_works_again_and_again_in_one_thread_until_it_is_ended() -> None:
    work = Work()
    work.thread.ensure()
    thread = thread_of(work)
    work.thread.ensure()
    assert thread_of(work) is thread and (thread.name, thread.daemon) == ("of a test", True)
    assert work.done.wait(_WAIT_SECONDS)
    work.thread.end()
    count = work.count
    assert not thread.is_alive() and not work.thread.is_alive()
    assert work.count == count


def test_it_ends_when_there_is_no_other_time_and_may_begin_again() -> None:
    work = Work(most=3)
    work.thread.ensure()
    thread_of(work).join(_WAIT_SECONDS)
    assert (work.count, work.thread.is_alive()) == (3, False)
    work.thread.ensure()
    thread_of(work).join(_WAIT_SECONDS)
    assert work.count == 4


def test_none_begins_that_may_not() -> None:
    work, may_begin = Work(), False
    work.thread = PeriodicThread(work, "of a test", lambda: may_begin)
    work.thread.ensure()
    assert not work.thread.is_alive()
    may_begin = True
    work.thread.ensure()
    assert work.thread.is_alive()
    work.thread.end()


def test_an_end_interrupts_the_pause_and_waits_for_the_work_that_is_under_way() -> None:
    work = Work(period_seconds=3600)
    work.thread.ensure()
    work.thread.end()
    assert work.count == 0
    begun, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> bool:
        begun.set()
        return may_go_on.wait(_WAIT_SECONDS)

    work.seconds, work.run_once = 0, slow  # type: ignore[method-assign]
    work.thread.ensure()
    assert begun.wait(_WAIT_SECONDS)
    ending = threading.Thread(target=lambda: (work.thread.end(), ended.set()))
    ending.start()
    assert not ended.wait(0.05)
    may_go_on.set()
    assert ended.wait(_WAIT_SECONDS)


def test_work_may_end_its_own_thread() -> None:
    work = Work()

    def once() -> bool:
        work.thread.end()
        return True

    work.run_once = once  # type: ignore[method-assign]
    work.thread.ensure()
    thread = work.thread._thread
    if thread is not None:
        thread.join(_WAIT_SECONDS)
    assert not work.thread.is_alive()


def test_what_nobody_closed_is_not_kept_alive() -> None:
    work = Work()
    work.thread.ensure()
    thread, seen = thread_of(work), weakref.ref(work)
    del work
    thread.join(_WAIT_SECONDS)
    gc.collect()
    assert (thread.is_alive(), seen()) == (False, None)


def test_a_forked_child_does_not_take_the_thread_for_its_own() -> None:
    work = Work(period_seconds=3600)
    work.thread.ensure()
    if (child := os.fork()) == 0:
        os._exit(0 if not work.thread.is_alive() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert work.thread.is_alive()
    work.thread.end()


def test_one_that_could_not_start_can_be_ended_and_started_later() -> None:
    work = Work()
    with no_threads(), pytest.raises(StorageError, match=r"can't start new thread\): raise this user's limit"):
        work.thread.ensure()
    work.thread.end()
    work.thread.ensure()
    assert work.done.wait(_WAIT_SECONDS)
    work.thread.end()


def test_none_begins_at_the_end_of_the_process_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later refuse each new thread there; a producer may still open its channel again."""
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    monkeypatch.setattr(threading, "main_thread", lambda: ended)
    work = Work()
    with no_threads() as refused:
        work.thread.ensure()
    assert refused and not work.thread.is_alive()
    work.thread.end()


def test_an_end_waits_only_so_long_for_work_that_nothing_depends_on() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Slow(Work):
        def run_once(self) -> bool:
            begun.set()
            assert may_end.wait(_WAIT_SECONDS)
            return super().run_once()

    work = Slow()
    work.thread.ensure()
    thread = thread_of(work)
    assert begun.wait(_WAIT_SECONDS)
    work.thread.end(within_seconds=0.001)
    assert thread.is_alive() and not work.thread.is_alive()
    may_end.set()
    thread.join(_WAIT_SECONDS)
    assert not thread.is_alive() and work.count == 1
