"""How long a request is tried again, and how long is waited in between: an exponential backoff with jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

__all__ = ["Backoff"]

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class Backoff:
    """Tries again with growing pauses.

    Args:
        timeout_seconds: for how long.
        sleep: waits; for tests.
        monotonic: tells the time; for tests.
    """

    def __init__(
        self,
        timeout_seconds: float,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._sleep = sleep
        self._monotonic = monotonic

    def attempts(self) -> Iterator[int]:
        """Yield the number of each attempt, from 0 on, after a pause before each but the first; one at least."""
        deadline, pause_seconds, number = self._monotonic() + self.timeout_seconds, _FIRST_PAUSE_SECONDS, 0
        while True:
            yield number
            number += 1
            left_seconds = deadline - self._monotonic()
            if left_seconds <= 0:
                return
            self._sleep(min(left_seconds, pause_seconds * random.uniform(0.5, 1.0)))
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
