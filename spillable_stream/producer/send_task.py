"""One attempt to commit a batch, and what follows from how it ended."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable
from typing import Any, Protocol

from spillable_stream.engine.port import NoRoomYetError
from spillable_stream.errors import (
    ProducerSequenceError,
)
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.context import with_context
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.retry_policy import MISFITS, REFUSALS, may_pass
from spillable_stream.producer.target import commit_to
from spillable_stream.producer.trouble import text_of
from spillable_stream.state.ranges import Range

__all__ = ["Ends", "SendTask"]


_SENT_BEFORE = "it could not be stored when it was sent before"


class Ends(Protocol):
    """Where a batch goes after an attempt."""

    def stored(self, batch: ProducerBatch, result: Result) -> None:
        """It is in its channel."""

    def retry(self, batch: ProducerBatch) -> bool:
        """Try it again later, and tell whether that will be."""

    def dead_letter(self, batch: ProducerBatch) -> bool:
        """Send it to the dead-letter channel, and tell whether there is one that it has not been sent to yet."""

    def failed(self, batch: ProducerBatch, result: Result) -> None:
        """It is nowhere."""


class SendTask:
    """Commits batches, one attempt at a time.

    Args:
        clock: the time.
        context: whether events get the headers of their context.
        ends: what is told.
        tried: called with every attempt's error, None for a success.
    """

    def __init__(self, clock: Clock, context: bool, ends: Ends, tried: Callable[[BaseException | None], None]) -> None:
        self._clock = clock
        self._context = context
        self._ends = ends
        self._tried = tried

    def run(
        self, batch: ProducerBatch, began: float | None = None, waited_seconds: float = 0.0
    ) -> BaseException | None:
        """Try once. What a target raises is an end of the attempt; it raises nothing that is not the producer's own.

        Args:
            batch: what is tried.
            began: when the attempt began that this goes on with, in seconds since 1970; None for one that begins.
            waited_seconds: how long the batch has waited for room since then.

        Returns:
            What it raised; None for a success. After a `NoRoomYetError` the attempt has not ended: it goes on with
            the next try.
        """
        began = self._clock.time() if began is None else began
        if batch.dead is None and batch.destination.is_dead(batch):
            batch.note(Attempt(False, began, ProducerSequenceError.__name__, _SENT_BEFORE))
            if self._ends.dead_letter(batch):
                return None
        try:
            ids = self._commit(batch, waited_seconds)
        except NoRoomYetError as e:
            if not batch.in_doubt:
                batch.destination.free(batch)
            return e
        except BaseException as e:  # a target is anybody's code, and somebody waits for the batch
            batch.note(Attempt(False, began, type(e).__name__, text_of(e)))
            self._tried(e)
            batch.in_doubt = batch.in_doubt or not isinstance(e, (*REFUSALS, *MISFITS))
            if not batch.in_doubt:
                batch.destination.free(batch)
            self._go_on(batch, e)
            return e
        else:
            batch.destination.free(batch, stored=batch.dead is None)
            batch.note(Attempt(True, began))
            self._tried(None)
            self._ends.stored(batch, Result(True, *ids, batch.attempts, batch.attempt_count))
            return None

    def _commit(self, batch: ProducerBatch, waited_seconds: float) -> Range:
        if batch.dead is not None:
            return _checked(batch.dead.commit(batch, waited_seconds), batch.dead.name)
        destination = batch.destination
        events = batch.encode()
        if self._context and not destination.typed:
            events = with_context(events, destination.producer_id, batch.sequence)
        numbers = destination.numbers_of(batch)
        answer = commit_to(destination.target, events, destination.producer_id, numbers, waited_seconds)
        return _checked(answer, destination.name)

    def _go_on(self, batch: ProducerBatch, error: BaseException) -> None:
        if may_pass(error) and self._ends.retry(batch):
            return
        batch.destination.free(batch)  # nobody sends it there any more
        misnumbered = batch.own_sequence and isinstance(error, ProducerSequenceError)
        given_up = not misnumbered or batch.destination.is_dead(batch, refused=True)
        if given_up and self._ends.dead_letter(batch):
            return
        self._ends.failed(batch, Result(False, 0, -1, batch.attempts, batch.attempt_count, in_doubt=batch.in_doubt))


def _checked(answer: Any, name: str) -> Range:
    """Return the IDs that a target answered with; raises TypeError if it answered something else."""
    try:
        first, last = answer
        return operator.index(first), operator.index(last)
    except Exception as e:
        raise TypeError(
            f"the commit of {name} must return the write-order IDs of the first and the last event, or (0, -1), not "
            f"{reprlib.repr(answer)}; whether it stored the events is not known"
        ) from e
