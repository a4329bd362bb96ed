"""The numbers under which the batches that the producer numbers are committed at one target.

A refusal frees a batch's number, and its next attempt uses a new one. A batch that kept its number while it waits for
room would leave a gap. The channel remembers few gaps, and would eventually forget whether the batch was stored.
"""

from __future__ import annotations

import threading

from spillable_stream.format.numbered_batch import BY_PRODUCER, Numbers

__all__ = ["Numbering"]


class Numbering:
    """Gives batches their numbers at one target. Thread-safe.

    Args:
        last: the highest number that was committed before.
    """

    def __init__(self, last: int) -> None:
        self._all_through = last  # every number up to this one is stored or unused
        self._numbered = last  # the highest number that a batch had
        self._live: set[int] = set()  # the numbers under which a batch may be stored, now or later
        self._mutex = threading.Lock()

    def take(self, least: int = 0) -> Numbers:
        """Return the numbers for a batch. The last of them is its own.

        It also uses up earlier numbers that no batch will use any more, because their batches were refused or have
        failed for good.

        Args:
            least: the least that its own number may be.
        """
        with self._mutex:
            first = max(self._live, default=self._all_through) + 1
            self._numbered = max(self._numbered + 1, least)
            self._live.add(self._numbered)
            return Numbers(first, self._numbered, BY_PRODUCER)

    def free(self, numbers: Numbers, *, stored: bool) -> None:
        """Record that a batch is stored under its number, or never will be."""
        first, last, _ = numbers
        with self._mutex:
            self._live.discard(last)
            if stored and first <= self._all_through + 1:
                self._all_through = max(self._all_through, last)
