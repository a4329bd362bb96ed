"""Makes one attempt to commit a batch, and decides what happens next by how it ended."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable
from typing import Any, Protocol

from spillable_stream.engine.port import NoRoomYetError
from spillable_stream.error_text import text_of
from spillable_stream.errors import TOO_LARGE, ProducerSequenceError, UnsafeStoreError, says_nothing_stored
from spillable_stream.log_records import log_of
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.context import with_context
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.retry import MISFITS, may_pass
from spillable_stream.producer.target import ChannelTarget, commit_to
from spillable_stream.state.ranges import Range

__all__ = ["Ends", "SendTask"]

_log = log_of("spillable_stream.producer")

_SENT_BEFORE = "it could not be stored when it was sent before"
_SENT_AGAIN = "%s: a batch is sent again after a loss of events: %s"


class Ends(Protocol):
    """Receives a batch after an attempt, by how it ended."""

    def stored(self, batch: ProducerBatch, result: Result) -> None:
        """Handle a batch that is in its channel."""

    def retry(self, batch: ProducerBatch) -> bool:
        """Retry the batch later, and return True; return False if it will not be retried."""

    def divide(self, batch: ProducerBatch) -> bool:
        """Retry the batch in two parts, and return True; return False if it can't be divided."""

    def dead_letter(self, batch: ProducerBatch) -> bool:
        """Send the batch to the dead-letter channel; False if there is none, or the batch was sent to it before."""

    def failed(self, batch: ProducerBatch, result: Result) -> None:
        """Handle a batch that was not stored anywhere."""


class SendTask:
    """Commits batches, one attempt at a time.

    Args:
        clock: the time.
        context: whether to add the producer's context to the events' headers.
        ends: receives each batch after its attempt.
        tried: called with each attempt's error; None for a success.
    """

    def __init__(self, clock: Clock, context: bool, ends: Ends, tried: Callable[[BaseException | None], None]) -> None:
        self._clock = clock
        self._context = context
        self._ends = ends
        self._tried = tried

    def run(
        self, batch: ProducerBatch, began: float | None = None, waited_seconds: float = 0.0
    ) -> BaseException | None:
        """Try to commit a batch once. An error of the target ends the attempt; it is returned, not raised.

        Args:
            batch: the batch.
            began: when the attempt began that this try continues, in seconds since 1970; None for a new attempt.
            waited_seconds: how long the batch has waited for room since then.

        Returns:
            The target's error; None for a success. After a `NoRoomYetError` the attempt has not ended: the next try
            continues it.
        """
        began = self._clock.time() if began is None else began
        if batch.dead is None and batch.destination.is_dead(batch):
            batch.record(Attempt(False, began, ProducerSequenceError.__name__, _SENT_BEFORE))
            if self._ends.dead_letter(batch):
                return None
        try:
            ids = self._commit(batch, waited_seconds)
        except NoRoomYetError as e:
            batch.refused()
            return e
        except BaseException as e:  # a target may be user code, and futures wait for the batch
            batch.record(Attempt(False, began, type(e).__name__, text_of(e)))
            self._tried(e)
            if says_nothing_stored(e) or isinstance(e, MISFITS):
                batch.refused()
            else:
                batch.doubt()
            self._after_failure(batch, e)
            return e
        else:
            batch.free_numbers(stored=True)
            batch.record(Attempt(True, began))
            self._tried(None)
            self._ends.stored(batch, Result(True, *ids, batch.attempts, batch.attempt_count))
            return None

    def _commit(self, batch: ProducerBatch, waited_seconds: float) -> Range:
        if batch.dead is not None:
            letters = 1 if batch.destination.typed else len(batch)  # one letter has all rows
            return _checked(batch.dead.commit(batch, waited_seconds), batch.dead.name, letters)
        destination = batch.destination
        events = batch.encode()
        if self._context and not destination.typed:
            events = with_context(events, destination.producer_id, batch.sequence)
        numbers = destination.numbers_of(batch)
        producer_id, times = destination.producer_id, batch.times()
        answer = commit_to(destination.target, events, producer_id, numbers, waited_seconds, times)
        # A channel gives events that are delayed no IDs yet.
        return _checked(answer, destination.name, None if isinstance(destination.target, ChannelTarget) else len(batch))

    def _after_failure(self, batch: ProducerBatch, error: BaseException) -> None:
        resumes = _is_for_the_application(batch, error)
        if not resumes and may_pass(error) and self._ends.retry(batch):
            if isinstance(error, UnsafeStoreError):  # nobody else may report it
                _log.error(_SENT_AGAIN, batch.destination.name, text_of(error), extra=batch.log_fields())
            return
        if isinstance(error, TOO_LARGE) and self._ends.divide(batch):
            return
        batch.free_numbers()  # it will not be sent there again
        misnumbered = batch.own_sequence and isinstance(error, ProducerSequenceError)
        given_up = not misnumbered or batch.destination.is_dead(batch, refused=True)
        if given_up and not resumes and self._ends.dead_letter(batch):
            return
        self._ends.failed(batch, Result(False, 0, -1, batch.attempts, batch.attempt_count, in_doubt=batch.in_doubt))


def _is_for_the_application(batch: ProducerBatch, error: BaseException) -> bool:
    """Tell whether a batch fails with a loss: the application numbers its batches, and can send again what is lost.

    If this one was stored, its number would be the last one, and no resume would send those before it.
    """
    return batch.own_sequence and batch.dead is None and isinstance(error, UnsafeStoreError)


def _checked(answer: Any, name: str, count: int | None) -> Range:
    """Return the first and the last write-order ID that a target's ``commit`` returned.

    Args:
        answer: what it returned.
        name: the target's name.
        count: how many events have an ID; None for a channel, which knows.

    Raises:
        TypeError: it returned something else, or what can't be the IDs of so many events.
    """
    try:
        first, last = map(operator.index, answer)
    except Exception as e:
        raise _wrong_answer(answer, name) from e
    if count is not None and (first < 0 or last - first + 1 != count) and (first, last) != (0, -1):
        raise _wrong_answer(answer, name)
    return first, last


def _wrong_answer(answer: Any, name: str) -> TypeError:
    return TypeError(
        f"the commit of {name} must return the write-order IDs of the first and the last event, or (0, -1), not "
        f"{reprlib.repr(answer)}; whether it stored the events is not known"
    )
