"""A thread in which a handle does something from time to time, for as long as there is such a handle."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from spillable_stream.errors import StorageError
from spillable_stream.own_thread import start_thread

__all__ = ["PeriodicThread", "PeriodicWork"]


class PeriodicWork(Protocol):
    """Work that is done from time to time."""

    def period_seconds(self) -> float:
        """Return how long to wait before the next time."""

    def run_once(self) -> bool:
        """Do it, and tell whether there will be another time."""


class PeriodicThread:
    """Works again and again, from `ensure` to `end`. Thread-safe.

    A forked child has no such thread, and leaves this alone: the parent's thread may have held a lock when it forked.

    Args:
        work: what to do; it has this thread, so the thread does not keep it alive.
        name: the thread's name.
        may_begin: tells whether a thread may begin: none does while a handle is being closed.
    """

    def __init__(self, work: PeriodicWork, name: str, may_begin: Callable[[], bool] = lambda: True) -> None:
        self._work = weakref.ref(work)
        self._name = name
        self._may_begin = may_begin
        self._mutex = threading.Lock()  # of the thread's beginning and end
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def is_alive(self) -> bool:
        """Tell whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def ensure(self) -> None:
        """Start the thread if it is not there and may begin; at the end of the process there is none.

        Raises:
            StorageError: the process can have no more threads.
        """
        with self._mutex:
            if not self.is_alive() and self._may_begin():
                self._ended = threading.Event()
                thread = threading.Thread(target=_run, args=(self._work, self._ended), name=self._name, daemon=True)
                try:
                    start_thread(thread)
                except StorageError:
                    if threading.main_thread().is_alive():
                        raise
                else:
                    self._thread = thread

    def end(self, within_seconds: float | None = None) -> bool:
        """End the thread, wait for the work that is under way, and tell if that has ended; `ensure` may start another.

        Args:
            within_seconds: how long to wait for work that nothing else depends on, and which ends by itself; None: as
                long as it takes.
        """
        with self._mutex:
            thread, self._thread = self._thread, None
            self._ended.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(within_seconds)
            return not thread.is_alive()
        return True


def _run(work: weakref.ref[PeriodicWork], ended: threading.Event) -> None:
    """Work again and again, until the handle is closed; or is no more, though nobody closed it."""
    found = work()
    while found is not None:
        period_seconds, found = found.period_seconds(), None
        if ended.wait(period_seconds) or (found := work()) is None or not found.run_once():
            return
