"""What a producer says about itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from spillable_stream.error_text import type_and_text
from spillable_stream.producer.batch import ProducerBatch

__all__ = ["Metrics", "Percentiles", "ProducerStats"]

_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How large something was: half of the times at most ``p50``, and so on; 0 if it never was."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """Return the percentiles of some values."""
        found = sorted(values)
        if not found:
            return cls()
        p50, p90, p99 = (found[min(len(found) - 1, len(found) * percent // 100)] for percent in (50, 90, 99))
        return cls(p50, p90, p99, found[-1])


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """A producer at one moment.

    Args:
        producer_id: its ID.
        queued_bytes: what the batches hold that are not done.
        queued_batches: how many these are.
        retrying_batches: how many of them wait to be tried again.
        sent_events: how many events were accepted.
        stored_events: how many are in their channels.
        dead_letter_events: how many are in the dead-letter channel instead.
        failed_events: how many are in neither.
        stored_batches: how many batches were stored.
        retries: how many attempts were made again.
        failed_attempts: how many attempts failed.
        last_error: what the last of them said.
        batch_events: events per batch, of the last 1,000 batches.
        batch_bytes: bytes that a batch held, of these.
        latency_seconds: from a batch's first event until it was stored, of these.
        state: "running", "closing", "closed", or "failed: " and why, if a thread of the producer ended that must not.
    """

    producer_id: str
    queued_bytes: int
    queued_batches: int
    retrying_batches: int
    sent_events: int
    stored_events: int
    dead_letter_events: int
    failed_events: int
    stored_batches: int
    retries: int
    failed_attempts: int
    last_error: str
    batch_events: Percentiles
    batch_bytes: Percentiles
    latency_seconds: Percentiles
    state: str


class Metrics:
    """Counts what happens to batches. Thread-safe."""

    dead_letter_events: int
    failed_attempts: int
    failed_events: int
    retries: int
    stored_batches: int
    stored_events: int

    def __init__(self) -> None:
        self.stored_events = self.dead_letter_events = self.failed_events = 0
        self.stored_batches = self.retries = self.failed_attempts = 0
        self.last_error: str = ""
        self._mutex = threading.Lock()
        self._sizes: deque[tuple[int, int, float]] = deque(maxlen=_KEPT)

    def tried(self, error: BaseException | None) -> None:
        """Count an attempt."""
        if error is not None:
            said = type_and_text(error)  # anybody's code, which may ask for the counts
            with self._mutex:
                self.failed_attempts += 1
                self.last_error = said

    def retried(self) -> None:
        """Count a retry."""
        with self._mutex:
            self.retries += 1

    def stored(self, batch: ProducerBatch, now: float) -> None:
        """Record the size of a batch that has just been stored, and how long that took."""
        with self._mutex:
            self._sizes.append((batch.count, batch.size_bytes, now - batch.created))

    def ended(self, batch: ProducerBatch) -> None:
        """Count a batch whose result is known."""
        assert batch.result is not None
        with self._mutex:
            if batch.result.successful:
                self.stored_batches += 1
                self.stored_events += batch.count
            elif batch.result.dead_letter:
                self.dead_letter_events += batch.count
            else:
                self.failed_events += batch.count

    def sizes(self) -> list[Percentiles]:
        """Return the percentiles of events, bytes and seconds of the last batches."""
        with self._mutex:
            found = list(self._sizes)
        return [Percentiles.of([size[i] for size in found]) for i in range(3)]
