"""The lanes of a worker: threads that get their own work, and those that were left behind in a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.workers.work import Work

__all__ = ["Lane", "Lanes"]


@dataclass(slots=True, eq=False)
class Lane:
    """A thread of a worker.

    Args:
        work: what it works on.
        deadline: when its call should have returned, in seconds of the worker's clock: infinity where it may take as
            long as it takes, None outside of a call.
        is_left: whether nobody waits for it any more: another lane has its work.
    """

    work: Work | None = None
    deadline: float | None = None
    is_left: bool = False


class Lanes:
    """The lanes of one worker.

    Args:
        changed: the worker's mutex, which is notified when a lane ends. All but `start` needs it held.
        name: of the threads.

    Attributes:
        at_work: those that somebody waits for.
        left: those whose calls are still under way, and which nobody waits for.
    """

    def __init__(self, changed: threading.Condition, name: str) -> None:
        self.at_work: set[Lane] = set()
        self.left: set[Lane] = set()
        self._changed = changed
        self._name = name

    def start(self, run: Callable[[Lane], None]) -> None:
        """Start another lane.

        Args:
            run: what it does, in its thread, until it ends.
        """
        lane = Lane()
        with self._changed:
            self.at_work.add(lane)
        try:
            threading.Thread(target=self._run, args=(run, lane), name=self._name, daemon=True).start()
        except RuntimeError:  # the system has no more; after an interrupt the thread may be there
            self._ended(lane)
            raise

    def _run(self, run: Callable[[Lane], None], lane: Lane) -> None:
        try:
            run(lane)
        finally:
            self._ended(lane)

    def _ended(self, lane: Lane) -> None:
        with self._changed:
            self.at_work.discard(lane)
            self.left.discard(lane)
            self._changed.notify_all()

    def busy(self) -> int:
        """Return how many have work."""
        return sum(lane.work is not None for lane in self.at_work)

    def late(self, now: float) -> list[Lane]:
        """Return those whose calls should have returned."""
        return [lane for lane in self.at_work if lane.deadline is not None and now >= lane.deadline]

    def leave_idle(self) -> bool:
        """Leave those without work, which get none then, and tell whether there are any with."""
        idle = {lane for lane in self.at_work if lane.work is None}
        for lane in idle:
            lane.is_left = True
        return idle != self.at_work

    def leave(self, lane: Lane) -> Work:
        """Leave a lane behind in its call, and return its work, which is another one's then."""
        lane.is_left, work = True, lane.work
        assert work is not None
        lane.work = lane.deadline = None
        self.at_work.discard(lane)
        self.left.add(lane)
        return work
