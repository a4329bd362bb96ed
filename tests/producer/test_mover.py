"""The mover looks when something is due, not before, and ends when nothing will ever be."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spillable_stream.producer.mover import Mover
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.threads import Threads
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock


class Work:
    """What a mover moves: it looks at `due`, and notes when it did."""

    def __init__(self) -> None:
        self.clock, self.mutex = FakeClock(), Mutex()
        self.looked: list[float] = []
        self.due: float | None = None
        self.over = False
        self.ended, self.has_looked = threading.Event(), threading.Semaphore(0)
        threads = Threads(lambda error: None)
        self.mover = Mover(self.mutex, self.clock, self.move, lambda: self.over, self.ended.set, threads, "mover")

    def move(self, now: float) -> float | None:
        self.looked.append(now)
        self.has_looked.release()
        return self.due

    def wait_for_a_look(self) -> None:
        assert self.has_looked.acquire(timeout=PATIENCE_SECONDS)


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    work.mover.thread.start()
    work.wait_for_a_look()
    yield work
    work.over = True
    with work.mutex:
        work.mover.wake()
    assert work.ended.wait(PATIENCE_SECONDS)
    work.mover.thread.join(PATIENCE_SECONDS)


def test_it_looks_when_something_new_is_due(work: Work) -> None:
    with work.mutex:
        work.mover.expect(1005.0)
    work.wait_for_a_look()
    assert work.looked == [1000.0, 1000.0]


def test_what_is_due_later_than_what_it_waits_for_does_not_wake_it(work: Work) -> None:
    work.due = 1002.0
    with work.mutex:
        work.mover.expect(1002.0)
    work.wait_for_a_look()
    with work.mutex:
        work.mover.expect(1009.0)
    assert len(work.looked) == 2
    work.clock.advance(2)
    work.wait_for_a_look()
    assert work.looked[-1] == 1002.0


def test_it_ends_when_all_is_over_and_says_so_without_the_mutex(work: Work) -> None:
    work.over = True
    with work.mutex:
        work.mover.wake()
    assert work.ended.wait(PATIENCE_SECONDS) and not work.mutex.slot
