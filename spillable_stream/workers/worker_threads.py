"""The threads of a worker: those that get work, and those that were left behind in a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.own_thread import start_thread
from spillable_stream.workers.work import Work

__all__ = ["WorkerThread", "WorkerThreads"]


@dataclass(slots=True, eq=False)
class WorkerThread:
    """A thread of a worker.

    Args:
        work: what it works on.
        deadline: when its call should have returned, in seconds of the worker's clock: infinity where it may take as
            long as it takes, None outside of a call.
        is_left: whether nobody waits for it any more: another thread has its work.
    """

    work: Work | None = None
    deadline: float | None = None
    is_left: bool = False


class WorkerThreads:
    """The threads of one worker.

    Args:
        changed: the worker's mutex, which is notified when a thread ends. All but `start` needs it held.
        name: of the threads.

    Attributes:
        at_work: those that somebody waits for.
        left: those whose calls are still under way, and which nobody waits for.
    """

    def __init__(self, changed: threading.Condition, name: str) -> None:
        self.at_work: set[WorkerThread] = set()
        self.left: set[WorkerThread] = set()
        self._changed = changed
        self._name = name

    def start(self, run: Callable[[WorkerThread], None]) -> None:
        """Start another thread.

        Args:
            run: what it does, in its thread, until it ends.

        Raises:
            StorageError: the process can have no more threads.
        """
        thread = WorkerThread()
        try:
            with self._changed:
                self.at_work.add(thread)
            start_thread(threading.Thread(target=self._run, args=(run, thread), name=self._name, daemon=True))
        except BaseException:  # after an interrupt the thread may be there: if so, it gets no work any more
            with self._changed:
                if thread.work is None:
                    thread.is_left = True
                    self._ended(thread)
            raise

    def _run(self, run: Callable[[WorkerThread], None], thread: WorkerThread) -> None:
        try:
            run(thread)
        finally:
            self._ended(thread)

    def _ended(self, thread: WorkerThread) -> None:
        with self._changed:
            self.at_work.discard(thread)
            self.left.discard(thread)
            self._changed.notify_all()

    def busy(self) -> int:
        """Return how many have work."""
        return sum(thread.work is not None for thread in self.at_work)

    def late(self, now: float) -> list[WorkerThread]:
        """Return those whose calls should have returned."""
        return [thread for thread in self.at_work if thread.deadline is not None and now >= thread.deadline]

    def leave_idle(self) -> bool:
        """Leave those without work, which get none from then on, and tell whether any have work."""
        idle = {thread for thread in self.at_work if thread.work is None}
        for thread in idle:
            thread.is_left = True
        return idle != self.at_work

    def leave(self, thread: WorkerThread) -> Work:
        """Leave a thread behind in its call, and return its work, which another thread gets."""
        thread.is_left, work = True, thread.work
        assert work is not None
        thread.work = thread.deadline = None
        self.at_work.discard(thread)
        self.left.add(thread)
        return work
