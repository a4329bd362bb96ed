"""Batches that wait to be tried again, by the time at which they are due."""

from __future__ import annotations

import heapq
from itertools import count

from spillable_stream.producer.batch import ProducerBatch

__all__ = ["RetryQueue"]


class RetryQueue:
    """A queue by due time. Not thread-safe: the accumulator's mutex is held."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._number = count()

    def __len__(self) -> int:
        """Return how many batches wait."""
        return len(self._heap)

    def put(self, batch: ProducerBatch, due: float) -> None:
        """Let a batch wait until ``due``, in the clock's monotonic seconds."""
        heapq.heappush(self._heap, (due, next(self._number), batch))

    def next_due(self) -> float | None:
        """Return when the first batch is due, None if none waits."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[ProducerBatch]:
        """Return the batches that are due, those that are due first first; they wait no more."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def take_all(self) -> list[ProducerBatch]:
        """Return all batches; they wait no more."""
        return self.take_due(float("inf"))
