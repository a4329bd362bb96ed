"""A destination: one target, and the numbers of the batches that go there."""

from __future__ import annotations

from collections import deque

from spillable_stream.channel.ranges import Range
from spillable_stream.errors import OptionError, ProducerSequenceError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.target import Target

__all__ = ["Destination"]


class Destination:
    """Where batches of one key go. Everything happens under the accumulator's mutex.

    Batches that the producer numbers are committed in any order. Those whose numbers the application
    chooses are committed one after the other, and none after one that failed: so the last number that
    is in the channel tells the application from where to go on.

    Args:
        target: what commits them.
        producer_id: as whom.
        last: the highest number that was committed before.

    Attributes:
        typed: whether events are rows rather than `Event`.
        in_order: whether batches are committed one after the other.
        ready: batches that were shipped, oldest first; one that an interrupt hit may be there twice.
    """

    def __init__(self, target: Target, producer_id: str, last: int) -> None:
        self.target = target
        self.producer_id = producer_id
        self.name = target.name
        self.typed = not target.schema.equals(EVENT_SCHEMA)
        self.max_events = target.max_events
        self.in_order = False
        self._last = self._stored = last
        self._numbered_by: str | None = None
        self._failed: int | None = None
        self.ready: deque[ProducerBatch] = deque()
        self._current: ProducerBatch | None = None

    def next_sequence(self) -> int:
        """Return the number of a new batch."""
        self._number_by("the producer")
        self._last += 1
        return self._last

    def accept(self, sequence: int) -> None:
        """Let the application have its own number for a batch.

        Raises:
            OptionError: it is not a number of 1 or more, or the producer numbers the batches here.
            ProducerSequenceError: a batch before it failed and was not sent again.
        """
        if type(sequence) is not int or not 0 < sequence < 2**63:
            raise OptionError(f"sequence must be an integer of at least 1, not {sequence!r}")
        self._number_by("the application")
        if self._failed is not None and sequence > self._failed:
            raise ProducerSequenceError(
                f"batch {sequence:,} for {self.name} must not be committed before batch {self._failed:,}, which "
                "failed; send that again first"
            )
        self._failed = None

    def _number_by(self, whom: str) -> None:
        if self._numbered_by not in (None, whom):
            raise OptionError(
                f"the batches for {self.name} are numbered by {self._numbered_by}: give every send of a producer its "
                "sequence, or none"
            )
        self._numbered_by = whom
        self.in_order = whom == "the application"

    def numbers_of(self, batch: ProducerBatch) -> Range:
        """Return the first and the last number that a batch takes, once it may start.

        One that the application numbered takes all since the last that was stored: what would have had a number between
        them has failed for good, or never was.
        """
        first = min(self._stored + 1, batch.sequence) if batch.own_sequence else batch.sequence
        return first, batch.sequence

    def take(self) -> ProducerBatch | None:
        """Return the next batch that can be committed now, sealed, or None."""
        while self.ready and not (self.in_order and self._current is not None):
            batch = self.ready.popleft()
            if not batch.sealed:
                batch.seal()
                self._current = batch if batch.own_sequence else None
                return batch
        return None

    def ended(self, batch: ProducerBatch, *, stored: bool) -> list[ProducerBatch]:
        """Note the end of a batch and return those that must not be committed without it."""
        if batch is not self._current:
            return []
        self._current = None
        if stored and batch.dead is None:
            self._stored = max(self._stored, batch.sequence)
        if stored:
            return []
        self._failed = batch.sequence
        return self.withdraw()

    def withdraw(self) -> list[ProducerBatch]:
        """Return the batches that nobody has begun with, sealed; nobody will."""
        found = [batch for batch in self.ready if not batch.sealed]
        self.ready.clear()
        for batch in found:
            batch.seal()
        return found
