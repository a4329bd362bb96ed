"""The lanes of a worker: those at work, and those that were left behind."""

from __future__ import annotations

import threading

import pytest

from spillable_stream.workers.lanes import Lane, Lanes
from spillable_stream.workers.work import Work
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until

WORK = Work([(1, 1)])


class Held:
    """Lanes that end when they are told."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.lanes = Lanes(threading.Condition(), "lanes of a test")

    def run(self, lane: Lane) -> None:
        assert self.may_end.wait(30)

    def one(self) -> Lane:
        """Start a lane, and return it."""
        before = set(self.lanes.at_work)
        self.lanes.start(self.run)
        (lane,) = self.lanes.at_work - before
        return lane


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_lane_is_at_work_until_it_ends(held: Held) -> None:
    held.one()
    held.one()
    assert len(held.lanes.at_work) == 2 and held.lanes.busy() == 0
    held.may_end.set()
    wait_until(lambda: not held.lanes.at_work)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_fails_ends_too() -> None:
    threads = list[threading.Thread]()

    def fail(lane: Lane) -> None:
        threads.append(threading.current_thread())
        raise ValueError

    lanes = Lanes(threading.Condition(), "lanes of a test")
    lanes.start(fail)
    wait_until(lambda: not lanes.at_work)
    threads[0].join()  # so that what Python says of it is this test's


def test_a_lane_is_late_from_its_deadline_on(held: Held) -> None:
    lane, outside = held.one(), held.one()
    lane.work, lane.deadline = WORK, 10.0
    assert held.lanes.late(9.9) == [] and held.lanes.late(10.0) == [lane]
    assert outside.deadline is None
    held.may_end.set()


def test_a_lane_that_is_left_gives_up_its_work_and_is_left_until_its_call_ends(held: Held) -> None:
    lane, other = held.one(), held.one()
    lane.work, lane.deadline = WORK, 10.0
    assert held.lanes.busy() == 1
    assert held.lanes.leave(lane) is WORK
    assert (lane.work, lane.deadline, lane.is_left) == (None, None, True)
    assert (held.lanes.at_work, held.lanes.left, held.lanes.busy()) == ({other}, {lane}, 0)
    assert held.lanes.late(11.0) == []
    held.may_end.set()
    wait_until(lambda: not held.lanes.left)


def test_a_lane_that_could_not_start_is_not_waited_for(held: Held) -> None:
    with no_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        held.lanes.start(held.run)
    assert not held.lanes.at_work
