"""Time as a producer sees it, so that tests need not wait."""

from __future__ import annotations

import threading
import time

__all__ = ["Clock"]


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
        condition.wait(timeout_seconds)
