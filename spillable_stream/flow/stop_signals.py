"""Signals that end an agent, or let it read its configuration again.

A handler only counts: it may come between any two steps of the main thread, where a lock could be held.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from spillable_stream.termination import handled

__all__ = ["StopSignals"]


class StopSignals:
    """Counts signals while it watches them.

    Attributes:
        ends: how many SIGTERM and SIGINT there were.
        last: the number of the last of these; 0 before.
        reloads: how many SIGHUP.
    """

    def __init__(self) -> None:
        self.ends: int = 0
        self.last: int = 0
        self.reloads: int = 0

    @contextmanager
    def watched(self, numbers: Sequence[int] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)) -> Iterator[None]:
        """Count signals while the block runs, rather than let them end it; only in the main thread.

        Args:
            numbers: the signals' numbers.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with handled(numbers, self._count):
            yield

    def _count(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reloads += 1
        else:
            self.ends += 1
            self.last = number
