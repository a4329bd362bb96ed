"""When the next append of a handle may begin.

A writer that appends again at once shuts out all others: they read what beat them while it continues. So a writer that
is not alone waits for up to the time of an append after each slot of its own. One that seems to be alone waits for a
whole turn now and then, or a writer that is starved would never show: after some appends, but no more often than a
starved writer can wait well.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

__all__ = ["Pace"]

_COMPANY_SECONDS = 60.0
_ONE_IN = 30
_APART_SECONDS = 2.0  # as long as 30 appends take in the same region; else a quick store would be waited for most
_WHOLE_TURN = 1.5  # of an append's time: a starved writer reads the slot that it lost to, and creates the next


class Pace:
    """Says how long to wait before an append.

    Args:
        interval_seconds: how much time there is between two appends, at least: the fewer, the cheaper.
        monotonic: tells the time; for tests.
        sleep: waits; for tests.
    """

    def __init__(
        self,
        interval_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._monotonic = monotonic
        self._sleep = sleep
        self._others_at = float("-inf")
        self._began_at = float("-inf")
        self._may_at = float("-inf")
        self._count = 0  # of appends since the last whole turn
        self._turn_at = float("-inf")  # when that was

    def saw_others(self) -> None:
        """Note that another handle appends, too."""
        self._others_at = self._monotonic()

    def appended(self, took_seconds: float) -> None:
        """Note that this handle has appended.

        Args:
            took_seconds: how long that took.
        """
        now = self._monotonic()
        self._began_at, self._count = now - took_seconds, self._count + 1
        pause_seconds = 0.0
        if now - self._others_at < _COMPANY_SECONDS:
            pause_seconds = random.uniform(0, took_seconds)
        elif self._count >= _ONE_IN and now - self._turn_at >= _APART_SECONDS:
            self._count, self._turn_at = 0, now
            pause_seconds = _WHOLE_TURN * took_seconds
        self._may_at = now + pause_seconds

    def wait(self) -> None:
        """Wait until the next append may begin."""
        if (seconds := self.left_seconds()) > 0:
            self._sleep(seconds)

    def left_seconds(self) -> float:
        """Return how long to wait until the next append may begin."""
        may_at = max(self._may_at, self._began_at + self.interval_seconds)
        return max(0.0, may_at - self._monotonic())
