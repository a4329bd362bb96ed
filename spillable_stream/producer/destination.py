"""A destination: one target, and the numbers of the batches that go there.

A batch that the producer numbers has a sequence, which tells in which order batches were made, and the number under
which it is committed. These are the same until a target refuses it. Then the number is free, and the next attempt has a
new one: the channel remembers few gaps, and a batch that waits for room would else be one, until the channel has
forgotten whether it was stored.
"""

from __future__ import annotations

import threading
from collections import deque

from spillable_stream.errors import OptionError, ProducerSequenceError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.record import BY_PRODUCER, Numbers
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.target import Target

__all__ = ["Destination"]


class Destination:
    """Where batches of one key go. Everything but numbers happens under the accumulator's mutex.

    Batches that the producer numbers are committed in any order. Those whose numbers the application
    chooses are committed one after the other, and none after one that failed: so the last number that
    is in the channel tells the application from where to go on. One that is in the dead-letter channel is done with.

    Args:
        target: what commits them.
        producer_id: as whom.
        last: the highest number that was committed before.
        last_dead: the highest number of the application's that the dead-letter channel has.

    Attributes:
        typed: whether events are rows rather than `Event`.
        in_order: whether batches are committed one after the other.
        ready: batches that were shipped, oldest first; one that an interrupt hit may be there twice.
    """

    def __init__(self, target: Target, producer_id: str, last: int, last_dead: int = 0) -> None:
        self.target = target
        self.producer_id = producer_id
        self.name: str = target.name
        self.typed: bool = not target.schema.equals(EVENT_SCHEMA)
        self.max_events: int = target.max_events
        self.in_order: bool = False
        self._last = self._stored = last
        self._last_dead = last_dead
        self._all_through = last  # every number up to this one is stored, or nobody's
        self._numbered = last  # the highest number that a batch had
        self._live: set[int] = set()  # the numbers under which a batch may be stored, now or later
        self._numbers = threading.Lock()
        self._numbered_by: str | None = None
        self._failed: set[int] = set()  # the application's numbers that failed and were not sent again
        self.ready: deque[ProducerBatch] = deque()
        self._current: ProducerBatch | None = None

    def next_sequence(self) -> int:
        """Return the sequence of a new batch."""
        self._number_by("the producer")
        self._last += 1
        return self._last

    def check(self, sequence: int) -> None:
        """Refuse a number that the application can't have for a batch, or not now.

        Raises:
            OptionError: it is not a number of 1 or more, or the producer numbers the batches here.
            ProducerSequenceError: a batch before it failed and was not sent again.
        """
        if type(sequence) is not int or not 0 < sequence < 2**63:
            raise OptionError(f"sequence must be an integer of at least 1, not {sequence!r}")
        self._number_by("the application")
        failed = min(self._failed, default=sequence)
        if sequence > failed:
            raise ProducerSequenceError(
                f"batch {sequence:,} for {self.name} must not be committed before batch {failed:,}, which "
                "failed; send that again first, or continue after last_sequence() with a new producer"
            )

    def sent(self, sequence: int) -> None:
        """Note that a batch of the application's is on its way; not before it is: an interrupt may come in between."""
        self._failed.discard(sequence)

    def _number_by(self, whom: str) -> None:
        if self._numbered_by not in (None, whom):
            raise OptionError(
                f"the batches for {self.name} are numbered by {self._numbered_by}: give every send of a producer its "
                "sequence, or none"
            )
        self._numbered_by = whom
        self.in_order = whom == "the application"

    def numbers_of(self, batch: ProducerBatch) -> Numbers:
        """Return the numbers that a batch takes, once it may start; in an I/O thread.

        Its own is the last. It takes those before it that no batch will have any more: what had them was refused, or
        has failed for good. One that the application numbered takes all since the last that was stored.
        """
        if batch.own_sequence:
            return Numbers(min(self._stored + 1, batch.sequence), batch.sequence, batch.fingerprint())
        if batch.numbers is None:
            with self._numbers:
                first = max(self._live, default=self._all_through) + 1
                self._numbered = max(self._numbered + 1, batch.sequence)
                self._live.add(self._numbered)
                batch.numbers = Numbers(first, self._numbered, BY_PRODUCER)
        return batch.numbers

    def free(self, batch: ProducerBatch, *, stored: bool = False) -> None:
        """Note that a batch is stored under its number, or never will be; in an I/O thread."""
        if batch.numbers is not None:
            first, last, _ = batch.numbers
            with self._numbers:
                self._live.discard(last)
                if stored and first <= self._all_through + 1:
                    self._all_through = max(self._all_through, last)
            batch.numbers = None

    def take(self) -> ProducerBatch | None:
        """Return the next batch that can be committed now, sealed, or None."""
        while self.ready and not (self.in_order and self._current is not None):
            batch = self.ready.popleft()
            if not batch.sealed:
                batch.seal()
                self._current = batch if batch.own_sequence else None
                if not batch.own_sequence:
                    self.numbers_of(batch)  # now, in the order of the queue
                return batch
        return None

    def ended(self, batch: ProducerBatch, *, stored: bool) -> list[ProducerBatch]:
        """Note the end of a batch and return those that must not be committed without it."""
        if batch is not self._current:
            return []
        self._current = None
        if not stored:
            left = self.withdraw()
            self._failed.update(b.sequence for b in [batch, *left])
            return left
        if batch.dead is None:
            self._stored = max(self._stored, batch.sequence)
        else:
            self._last_dead = max(self._last_dead, batch.sequence)
        return []

    def is_dead(self, batch: ProducerBatch, *, refused: bool = False) -> bool:
        """Tell whether the application's batch can only be in the dead-letter channel, which then says if it is.

        Args:
            batch: the batch.
            refused: whether the target has refused its number.
        """
        return batch.own_sequence and batch.sequence <= self._last_dead and (refused or batch.sequence > self._stored)

    def withdraw(self) -> list[ProducerBatch]:
        """Return the batches that nobody has begun with, sealed; nobody will."""
        found = [batch for batch in self.ready if not batch.sealed]
        self.ready.clear()
        for batch in found:
            batch.seal()
        return found
