"""The mover: the thread that ships lingered batches and due retries, and ends the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Thread

from spillable_stream.producer.clock import Clock
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.threads import Threads

__all__ = ["Mover"]


class Mover:
    """A thread that moves batches when they are due, and sleeps in between.

    Args:
        mutex: the accumulator's mutex.
        clock: the time.
        move: called with the time, in the clock's monotonic seconds, and the mutex held. It moves the due batches and
            returns when the next one is due; None without one.
        is_over: tells whether nothing will ever be due again; the mutex is held.
        end: called last, without the mutex: when ``is_over`` says so, or an error ends the thread.
        threads: the producer's threads.
        name: the thread's name.

    Attributes:
        thread: the thread, not started.
    """

    def __init__(
        self,
        mutex: Mutex,
        clock: Clock,
        move: Callable[[float], float | None],
        is_over: Callable[[], bool],
        end: Callable[[], None],
        threads: Threads,
        name: str,
    ) -> None:
        self.thread: Thread = threads.new(self._run, name, then=end)
        self._mutex = mutex
        self._wake = threading.Condition(mutex)  # type: ignore[arg-type]
        self._clock = clock
        self._move = move
        self._is_over = is_over
        self._sleeps_until: float | None = 0.0

    def expect(self, due: float) -> None:
        """Make sure that the mover wakes by ``due``, in the clock's monotonic seconds. The mutex is held."""
        if self._sleeps_until is None or due < self._sleeps_until:
            self._wake.notify()  # first: an interrupt must not leave it asleep
            self._sleeps_until = due

    def wake(self) -> None:
        """Wake the mover now. The mutex is held."""
        self._wake.notify()

    def _run(self) -> None:
        with self._mutex:
            while True:
                now = self._clock.monotonic()
                self._sleeps_until = self._move(now)
                if self._is_over():
                    break
                left = None if self._sleeps_until is None else self._sleeps_until - now
                self._clock.wait(self._wake, left)
