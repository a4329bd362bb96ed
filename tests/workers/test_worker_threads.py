"""The threads of a worker: those at work, and those that were left behind."""

from __future__ import annotations

import threading

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.workers import worker_threads
from spillable_stream.workers.work import Work
from spillable_stream.workers.worker_threads import WorkerThread, WorkerThreads
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until

WORK = Work([(1, 1)])


class Held:
    """WorkerThreads that end when they are told."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.threads = WorkerThreads(threading.Condition(), "threads of a test")

    def run(self, thread: WorkerThread) -> None:
        assert self.may_end.wait(30)

    def one(self) -> WorkerThread:
        """Start a thread, and return it."""
        before = set(self.threads.at_work)
        self.threads.start(self.run)
        (thread,) = self.threads.at_work - before
        return thread


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_lane_is_at_work_until_it_ends(held: Held) -> None:
    held.one()
    held.one()
    assert len(held.threads.at_work) == 2 and held.threads.busy() == 0
    held.may_end.set()
    wait_until(lambda: not held.threads.at_work)


def test_a_thread_whose_start_an_interrupt_ends_is_not_waited_for(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker_threads, "start_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        held.one()
    assert not held.threads.at_work


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_fails_ends_too() -> None:
    started = list[threading.Thread]()

    def fail(thread: WorkerThread) -> None:
        started.append(threading.current_thread())
        raise ValueError

    threads = WorkerThreads(threading.Condition(), "threads of a test")
    threads.start(fail)
    wait_until(lambda: not threads.at_work)
    started[0].join()  # so that what Python says of it is this test's


def test_a_lane_is_late_from_its_deadline_on(held: Held) -> None:
    thread, outside = held.one(), held.one()
    thread.work, thread.deadline = WORK, 10.0
    assert held.threads.late(9.9) == [] and held.threads.late(10.0) == [thread]
    assert outside.deadline is None
    held.may_end.set()


def test_a_lane_that_is_left_gives_up_its_work_and_is_left_until_its_call_ends(held: Held) -> None:
    thread, other = held.one(), held.one()
    thread.work, thread.deadline = WORK, 10.0
    assert held.threads.busy() == 1
    assert held.threads.leave(thread) is WORK
    assert (thread.work, thread.deadline, thread.is_left) == (None, None, True)
    assert (held.threads.at_work, held.threads.left, held.threads.busy()) == ({other}, {thread}, 0)
    assert held.threads.late(11.0) == []
    held.may_end.set()
    wait_until(lambda: not held.threads.left)


def test_a_lane_that_could_not_start_is_not_waited_for(held: Held) -> None:
    with no_threads(), pytest.raises(StorageError, match="can't start new thread"):
        held.threads.start(held.run)
    assert not held.threads.at_work
