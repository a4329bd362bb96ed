"""The clock of a producer. Tests substitute one that need not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from spillable_stream.error_text import is_interrupt
from spillable_stream.log_records import log_of

__all__ = ["Clock", "SteadyClock", "wait_at_most"]

_log = log_of("spillable_stream.producer")

T = TypeVar("T")


class Clock:
    """The machine's time."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def time(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        """Wait to be notified, or for a time; the condition's lock is held."""
        condition.wait(wait_at_most(timeout_seconds))


class SteadyClock(Clock):
    """A clock that never raises. Once the given clock does, the machine's clock replaces it and continues from there.

    Args:
        clock: the given clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._ahead_of_1970 = 0.0  # the given clock's lead over the machine's, in seconds

    def monotonic(self) -> float:
        """Return seconds that only grow."""
        now = self._asked(lambda: float(self._clock.monotonic()), lambda: time.monotonic() + self._ahead)
        self._ahead = now - time.monotonic()
        return now

    def time(self) -> float:
        """Return the seconds since 1970."""
        now = self._asked(lambda: float(self._clock.time()), lambda: time.time() + self._ahead_of_1970)
        self._ahead_of_1970 = now - time.time()
        return now

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        """Wait to be notified, or for a time; the condition's lock is held."""
        left = wait_at_most(timeout_seconds)
        self._asked(lambda: self._clock.wait(condition, left), lambda: Clock().wait(condition, left))

    def _asked(self, ask: Callable[[], T], instead: Callable[[], T]) -> T:
        try:
            return ask()
        except BaseException as e:
            if is_interrupt(e):
                raise
            self._clock = Clock()
            _log.error("the clock of a producer raised; the machine's is used instead", exc_info=e)
            return instead()


def wait_at_most(timeout_seconds: float | None) -> float | None:
    """Return a timeout that the system accepts: it limits waits to about 292 years."""
    return None if timeout_seconds is None else min(timeout_seconds, threading.TIMEOUT_MAX)
