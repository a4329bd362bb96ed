"""The mover: the thread that ships what has lingered and what is due for a retry, and that ends everything."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Thread

from spillable_stream.producer.clock import Clock
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.threads import Threads

__all__ = ["Mover"]


class Mover:
    """Moves what is due, and sleeps until something is.

    Args:
        mutex: guards what is moved.
        clock: the time.
        move: called with the time, the mutex held: moves what is due and returns when something is next, or None.
        is_over: tells, the mutex held, that nothing will ever be due again.
        end: called then, or when this thread can't go on, without the mutex.
        threads: the producer's.
        name: the thread's.
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
        """Wake in time for something new that is due then. The mutex is held."""
        if self._sleeps_until is None or due < self._sleeps_until:
            self._wake.notify()  # first: an interrupt must not leave it asleep
            self._sleeps_until = due

    def wake(self) -> None:
        """Look now. The mutex is held."""
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
