"""The dead-letter channel, which stores batches that can't be committed, with the reasons."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.errors import OptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.numbering import Numbering
from spillable_stream.producer.result import Attempt
from spillable_stream.producer.target import Target, commit_to, lasting_name
from spillable_stream.state.ranges import Range
from spillable_stream.workers.letter_headers import (
    ATTEMPTS,
    CHANNEL,
    ERROR_CODE,
    ERROR_MESSAGE,
    PRODUCER_ID,
    PRODUCER_SEQUENCE,
    header_text,
    without_reason,
)
from spillable_stream.workers.letters import ARROW_STREAM, arrow_stream, form_of, not_for_letters

__all__ = ["ARROW_STREAM", "DeadBatch", "DeadLetters"]

_NAME_LETTERS = 40


class DeadLetters:
    """A target for failed batches. Events keep their bodies and headers; a batch of a typed channel becomes one event.

    A batch that the application numbered keeps its number, under a producer ID derived from the producer and the
    target. So the dead-letter channel recognizes a resent batch, even after a restart.

    Args:
        target: an event channel.
        producer_id: the producer ID for batches that the producer numbers; one that no producer resumes.

    Raises:
        SchemaError: the target is a typed channel.
    """

    def __init__(self, target: Target, producer_id: str) -> None:
        if not target.schema.equals(EVENT_SCHEMA):
            raise not_for_letters(target.name)
        self.target = target
        self._producer_id = producer_id
        self._numbering = Numbering(0)

    def require_distinct(self, targets: Iterable[Target]) -> None:
        """Refuse targets whose dead letters would be indistinguishable after a restart.

        Raises:
            OptionError: two targets have the same name, or one is a copy of the other.
        """
        names = Counter(map(lasting_name, targets))
        for target in targets:
            if names[lasting_name(target)] > 1:
                raise OptionError(
                    f"two targets are called {target.name}, or are copies of one channel: a producer with a name could "
                    "not tell their dead letters apart; give each target a name of its own"
                )

    def last_sequence(self, producer_id: str, target: Target) -> int:
        """Return the highest number among the stored dead letters that a producer's application numbered for a target.

        Args:
            producer_id: the producer's ID.
            target: the target that the batches failed at.
        """
        return self.target.last_sequence(_name(producer_id, target))

    def address(self, batch: ProducerBatch) -> DeadBatch:
        """Return how a failed batch goes there."""
        if batch.own_sequence:
            name = _name(batch.destination.producer_id, batch.destination.target)
            return DeadBatch(self.target, name, None, batch)
        return DeadBatch(self.target, self._producer_id, self._numbering, batch)


def _name(producer_id: str, target: Target) -> str:
    """Return the producer ID for dead letters of a producer and a target, short enough to be a name."""
    whole = f"{producer_id} {lasting_name(target)}"
    digest = hashlib.blake2b(whole.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return f"{producer_id[:_NAME_LETTERS]}.dead.{digest}"


class DeadBatch:
    """A batch on its way to the dead-letter channel.

    Args:
        target: the dead-letter channel.
        producer_id: the producer ID for the dead-letter channel.
        numbering: gives it its numbers there; None if the application numbered it, whose number it keeps.
        batch: the batch. Its last attempt has the reason.

    Attributes:
        name: the dead-letter channel's.
        in_doubt: whether the events may be in their own channel, too.
        reason: the last attempt before, for which it goes there.
        may_be_there: whether a failed attempt may have stored it in the dead-letter channel.
    """

    def __init__(self, target: Target, producer_id: str, numbering: Numbering | None, batch: ProducerBatch) -> None:
        self.name: str = target.name
        self.in_doubt: bool = batch.in_doubt
        self.may_be_there: bool = False
        self._target = target
        self._producer_id = producer_id
        self._numbering = numbering
        self._numbers: Numbers | None = None
        self.reason: Attempt = batch.attempts[-1]
        self._reasons = {
            CHANNEL: header_text(batch.destination.name),
            ERROR_CODE: self.reason.error_code,
            ERROR_MESSAGE: header_text(self.reason.error_message),
            ATTEMPTS: str(batch.attempt_count),
            PRODUCER_ID: batch.destination.producer_id,
            PRODUCER_SEQUENCE: str(batch.sequence),
        }

    def commit(self, batch: ProducerBatch, waited_seconds: float) -> Range:
        """Store the events, and add the reasons to their headers, in place of all those from an earlier time.

        Args:
            batch: the batch.
            waited_seconds: how long it has waited for room in the dead-letter channel.

        Returns:
            The write-order IDs of the first and the last event.

        Raises:
            Exception: whatever the target raises.
        """
        if batch.destination.typed:
            bodies: Sequence[bytes] = [arrow_stream(batch.encode())]
            headers = {0: {"content_type": ARROW_STREAM}}
        else:
            bodies, own = batch.columns()
            headers = {i: without_reason(of_one) | form_of(of_one) for i, of_one in own.items()}
        found = {i: {**headers.get(i, {}), **self._reasons} for i in range(len(bodies))}
        letters, numbers = batch_from_columns(bodies, found), self._numbers_of(batch)
        return commit_to(self._target, letters, self._producer_id, numbers, waited_seconds)

    def _numbers_of(self, batch: ProducerBatch) -> Numbers:
        if self._numbering is None:
            return Numbers(batch.sequence, batch.sequence, batch.fingerprint())
        self._numbers = self._numbers or self._numbering.take()
        return self._numbers

    def free(self, *, stored: bool = False) -> None:
        """Record that it is stored under its number, or never will be."""
        if self._numbering is not None and self._numbers is not None:
            self._numbering.free(self._numbers, stored=stored)
            self._numbers = None
