"""The mover: the thread that ships what has lingered and what is due for a retry."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spillable_stream.producer.clock import Clock

__all__ = ["Mover"]


class Mover:
    """Moves what is due, and sleeps until something is.

    Args:
        mutex: guards what is moved.
        clock: the time.
        move: called with the time, the mutex held: moves what is due and returns when something is next, or None.
        name: the thread's.
    """

    def __init__(self, mutex: threading.Lock, clock: Clock, move: Callable[[float], float | None], name: str) -> None:
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._wake = threading.Condition(mutex)
        self._clock = clock
        self._move = move
        self._sleeps_until: float | None = 0.0
        self._closed = False

    def expect(self, due: float) -> None:
        """Wake in time for something new that is due then. The mutex is held."""
        if self._sleeps_until is None or due < self._sleeps_until:
            self._sleeps_until = due
            self._wake.notify()

    def close(self) -> None:
        """Let the thread end. The mutex is held."""
        self._closed = True
        self._wake.notify()

    def _run(self) -> None:
        with self._wake:
            while not self._closed:
                now = self._clock.monotonic()
                self._sleeps_until = self._move(now)
                self._clock.wait(self._wake, None if self._sleeps_until is None else self._sleeps_until - now)
