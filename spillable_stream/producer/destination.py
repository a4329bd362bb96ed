"""A destination: one target, and the numbers of its batches.

A batch that the producer numbers has a sequence, which gives the order of creation, and a number under which it is
committed (`Numbering`). The two are equal until a target refuses the batch.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from spillable_stream.channel.ttl import ttl_us
from spillable_stream.errors import OptionError, ProducerSequenceError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.numbering import Numbering
from spillable_stream.producer.send_times import SendTimes
from spillable_stream.producer.target import ChannelTarget, Target
from spillable_stream.quantities import Duration
from spillable_stream.shown_value import shown

__all__ = ["Destination"]


class Destination:
    """The queue of batches for one target. The accumulator's mutex guards all of it, except the numbers.

    Batches that the producer numbers are committed in any order. Batches that the application numbers are committed
    one at a time, and none after a failed one. So the last number in the channel tells the application where to
    resume. A batch in the dead-letter channel counts as done.

    Args:
        target: commits the batches.
        producer_id: the producer ID to commit them under.
        last: the highest number that was committed before.
        last_dead: the highest number of an application's batch in the dead-letter channel.
        ttl_us: the ttl of events whose send says nothing else, in microseconds; 0 for none.

    Attributes:
        target: commits the batches.
        producer_id: the producer ID to commit them under.
        name: the target's name.
        typed: whether events are rows rather than `Event` objects.
        max_events: the most events that one batch may have.
        ttl_us: the ttl of events whose send says nothing else, in microseconds; 0 for none.
        in_order: whether batches are committed one at a time.
        ready: the shipped batches, oldest first. An interrupt may duplicate one.
        open: the batch to which a send may add without taking the mutex; None without one.

    Raises:
        OptionError: there is a ttl, and the target does not lead to a channel.
    """

    def __init__(self, target: Target, producer_id: str, last: int, last_dead: int = 0, ttl_us: int = 0) -> None:
        self.target = target
        self.producer_id = producer_id
        self.name: str = target.name
        self.typed: bool = not target.schema.equals(EVENT_SCHEMA)
        self.max_events: int = target.max_events
        self.ttl_us: int = ttl_us
        if ttl_us:
            self._require_channel()
        self.in_order: bool = False
        self._last = self._stored = last
        self._last_dead = last_dead
        self._numbering = Numbering(last)
        self._numbered_by: str | None = None
        self._failed: set[int] = set()  # the application's numbers that failed and were not sent again
        self.ready: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self._current: ProducerBatch | None = None

    def times_of(
        self, ttl: Duration | None, deliver_after: Duration | None, deliver_at: datetime | None
    ) -> SendTimes | None:
        """Return the times of what is sent now; None where they are those of all sends. The arguments are a send's.

        Raises:
            OptionError: one of them is not a valid time, or the target can't have them; nothing was sent.
        """
        if ttl is None and deliver_after is None and deliver_at is None:
            return None
        target = self._require_channel()
        event_ttl_us = self.ttl_us if ttl is None else ttl_us(ttl)
        due_ms = 0 if deliver_after is None and deliver_at is None else target.due_ms(deliver_after, deliver_at)
        return SendTimes(event_ttl_us, due_ms) if due_ms or event_ttl_us != self.ttl_us else None

    def _require_channel(self) -> ChannelTarget:
        if not isinstance(self.target, ChannelTarget):
            raise OptionError(
                f"{self.name} is a target of your own, and only events for a channel may have a ttl or a delay; leave "
                "them out. Nothing was sent"
            )
        return self.target

    def next_sequence(self) -> int:
        """Return the sequence of a new batch that the producer numbers.

        Raises:
            OptionError: the application numbers the batches of this destination.
        """
        self._number_by("the producer")
        self._last += 1
        return self._last

    def check(self, sequence: int) -> None:
        """Refuse a number that the application may not use, or may not use now.

        Raises:
            OptionError: it is not an integer of at least 1, or the producer numbers the batches of this destination.
            ProducerSequenceError: an earlier batch failed and was not sent again.
        """
        if type(sequence) is not int or not 0 < sequence < 2**63:
            raise OptionError(f"sequence must be an integer of at least 1, not {shown(sequence)}")
        self._number_by("the application")
        failed = min(self._failed, default=sequence)
        if sequence > failed:
            raise ProducerSequenceError(
                f"batch {sequence} for {self.name} must not be committed before batch {failed}, which "
                "failed; send that again first, or continue after last_sequence() with a new producer"
            )

    def sent(self, sequence: int) -> None:
        """Record that a batch of the application is on its way. Call it after queueing, in case of an interrupt."""
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
        """Return the numbers that a batch is committed under, once it may start; in an I/O thread.

        The last of them is its own. A batch that the application numbered uses up all numbers since the last stored
        one.
        """
        if batch.own_sequence:
            return Numbers(min(self._stored + 1, batch.sequence), batch.sequence, batch.fingerprint())
        if batch.numbers is None:
            batch.numbers = self._numbering.take(batch.sequence)
        return batch.numbers

    def free(self, batch: ProducerBatch, *, stored: bool = False) -> None:
        """Record that a batch is stored under its number, or never will be; in an I/O thread."""
        if batch.numbers is not None:
            self._numbering.free(batch.numbers, stored=stored)
            batch.numbers = None

    def take(self) -> ProducerBatch | None:
        """Return the next batch that can be committed now, sealed; None without one."""
        while self.ready and not (self.in_order and self._current is not None):
            batch = self.ready.popleft()
            if not batch.sealed:
                batch.seal()
                self._current = batch if batch.own_sequence else None
                if not batch.own_sequence:
                    self.numbers_of(batch)  # number it now, in the order of the queue
                return batch
        return None

    def ended(self, batch: ProducerBatch, *, stored: bool) -> list[ProducerBatch]:
        """Record the end of a batch.

        Args:
            batch: the batch.
            stored: whether it is in the channel, or in the dead-letter channel.

        Returns:
            The batches that must not be committed because this one failed, sealed.
        """
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
        """Tell whether a batch that the application numbered can only be stored in the dead-letter channel.

        Args:
            batch: the batch.
            refused: whether the target has refused its number.
        """
        return batch.own_sequence and batch.sequence <= self._last_dead and (refused or batch.sequence > self._stored)

    def withdraw(self) -> list[ProducerBatch]:
        """Remove and return the batches that no thread has begun to send, sealed."""
        found = [batch for batch in self.ready if not batch.sealed]
        self.ready.clear()
        for batch in found:
            batch.seal()
        return found
