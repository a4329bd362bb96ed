"""A batch of a producer: what was sent to one destination and is committed together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from spillable_stream.channel.event import Event, batch_from_columns
from spillable_stream.errors import ProducerError, SendFailedError
from spillable_stream.format.record import Numbers
from spillable_stream.format.row_values import row_reader
from spillable_stream.producer.clock import wait_at_most
from spillable_stream.producer.event_size import ATTEMPT_BYTES, BATCH_BYTES, text_bytes
from spillable_stream.producer.fingerprint import fingerprint
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.threads import Threads
from spillable_stream.producer.trouble import say

if TYPE_CHECKING:
    from spillable_stream.producer.dead_letters import DeadLetter
    from spillable_stream.producer.destination import Destination

__all__ = ["Callback", "ProducerBatch", "Watcher", "counted"]

Callback = Callable[[Result], object]


class Watcher(Protocol):
    """What is told that a batch's result is known."""

    def finish(self, *, forked: bool = False) -> None:
        """Go on with the result.

        Args:
            forked: whether this is a forked child, in which nobody sends the batch, and nobody's code may be called.
        """


class ProducerBatch:
    """Events in columns, and who waits for them.

    It grows under the accumulator's mutex until it is shipped; its end has a lock of its own. A buffer may be full of
    batches of one event, so what few of them need is None until it is needed.

    Args:
        destination: where it goes.
        sequence: which one it is of those that go there.
        created: when, in the clock's monotonic seconds.
        max_reserved_attempts: how many attempts it remembers.
        threads: the producer's, which must not wait for it.

    Attributes:
        bodies: the events' bodies, or in a typed channel their rows.
        headers: the headers of those events that have any, by index; None if none has.
        record_batch: the events, if they were sent as an Arrow batch.
        callbacks: what is called with a send's result: callback, index of the first event and count; None for nothing.
        size_bytes: what it holds of the producer's buffer, itself and its events.
        own_sequence: whether the application chose the sequence, which is the number then.
        numbers: those that it takes, if the producer numbers it; None before its first attempt and after a refusal.
        in_doubt: whether an attempt ended so that the batch may be stored.
        sealed: whether it grows no more: a thread has begun with it, or it is given up.
        count: how many events it has, once it is sealed.
        dead: what it is sent as once it failed; None before.
        attempts: the latest of them, oldest first.
        attempt_count: how often it was tried.
        retry: how often it was tried again where it goes now.
        outcome: what became of all of it; None until that is known.
        result: the same, once callbacks were told: what futures have.
    """

    __slots__ = (
        "_done",
        "_fingerprint",
        "_is_told",
        "_lock",
        "_most_attempts",
        "_threads",
        "_watchers",
        "attempt_count",
        "attempts",
        "bodies",
        "callbacks",
        "count",
        "created",
        "dead",
        "destination",
        "headers",
        "in_doubt",
        "numbers",
        "outcome",
        "own_sequence",
        "record_batch",
        "result",
        "retry",
        "sealed",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self, destination: Destination, sequence: int, created: float, max_reserved_attempts: int, threads: Threads
    ) -> None:
        self.destination: Destination = destination
        self.sequence: int = sequence
        self.created: float = created
        self.bodies: list[Any] = []
        self.headers: dict[int, dict[str, str]] | None = None
        self.record_batch: pa.RecordBatch | None = None
        self.callbacks: list[tuple[Callback, int, int]] | None = None
        self.size_bytes: int = BATCH_BYTES
        self.own_sequence: bool = False
        self.numbers: Numbers | None = None
        self._fingerprint = 0
        self._is_told = False  # by a thread that calls the callbacks
        self.in_doubt: bool = False
        self.sealed: bool = False
        self.count: int = 0
        self.dead: DeadLetter | None = None
        self.attempt_count: int = 0
        self.retry: int = 0
        self.outcome: Result | None = None
        self.result: Result | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self._most_attempts = max_reserved_attempts
        self._lock = threading.Lock()
        self._done: threading.Condition | None = None  # of the lock; while nobody waits there is none
        self._watchers: list[Watcher] | None = None
        self._threads = threads

    def __len__(self) -> int:
        """Return how many events there are."""
        return self.record_batch.num_rows if self.record_batch is not None else len(self.bodies)

    def encode(self) -> pa.RecordBatch:
        """Return the events as Arrow, without the producer's context.

        Raises:
            SchemaError: they are larger than an Arrow batch can be.
        """
        if self.record_batch is not None:
            return self.record_batch
        if self.destination.typed:
            return row_reader(self.destination.target.schema).batch(self.bodies)
        return batch_from_columns(self.bodies, self.headers or {})

    def fingerprint(self) -> int:
        """Return what tells its events from those of another batch with its number; raises what `encode` raises."""
        if not self._fingerprint:
            self._fingerprint = fingerprint(self.encode())
        return self._fingerprint

    def columns(self) -> tuple[Sequence[bytes], dict[int, dict[str, str]]]:
        """Return the bodies of events and the headers of those that have any, by index."""
        if self.record_batch is None:
            return self.bodies, self.headers or {}
        headers, bodies = (column.to_pylist() for column in self.record_batch.columns)
        return bodies, {i: dict(pairs) for i, pairs in enumerate(headers) if pairs}

    def events(self, index: int = 0, count: int | None = None) -> Sequence[Any]:
        """Return events as they were sent: `Event`, rows, or a part of the Arrow batch."""
        end = len(self) if count is None else index + count
        if self.record_batch is not None:
            batch: Sequence[Any] = self.record_batch.slice(index, end - index)
            return batch
        if self.destination.typed:
            return tuple(self.bodies[index:end])
        of_events = self.headers or {}
        return tuple(Event(self.bodies[i], of_events.get(i, {})) for i in range(index, end))

    def seal(self) -> None:
        """Let it grow no more."""
        self.sealed, self.count = True, len(self)

    # ── attempts ────────────────────────────────────────────────────────────────────────────

    def note(self, attempt: Attempt) -> None:
        """Note that it was tried."""
        self.attempts = (*self.attempts, attempt)[-self._most_attempts :]
        self.attempt_count += 1

    def last_attempt_bytes(self) -> int:
        """Return how much more it holds since its last attempt, which has failed; it may have forgotten another one."""
        if self.attempt_count > self._most_attempts:
            return 0
        text = self.attempts[-1].error_message
        known = len(self.attempts) > 1 and self.attempts[-2].error_message is text
        return ATTEMPT_BYTES + (0 if known else text_bytes(text))

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def result_of(self, index: int, count: int, whole: Result | None = None) -> Result:
        """Return what became of some events.

        Args:
            index: the first event.
            count: how many.
            whole: what became of all of them, if the batch does not know it yet.
        """
        whole = whole or self.result
        assert whole is not None
        if whole.first_id:
            return replace(whole, first_id=whole.first_id + index, last_id=whole.first_id + index + count - 1)
        return whole if whole.successful else replace(whole, events=self.events(index, count))

    def error_of(self, index: int, count: int) -> SendFailedError | None:
        """Return why some events are not in their channel, None if they are."""
        assert self.result is not None
        if self.result.successful:
            return None
        result = self.result_of(index, count)
        where = f"; the events are in the dead-letter channel {result.dead_letter}" if result.dead_letter else ""
        doubt = "; whether an attempt stored them is not known" if result.in_doubt else ""
        events, attempts = counted(count, "event"), counted(result.attempt_count, "attempt")
        return SendFailedError(
            f"{events} for {self.destination.name} not stored after {attempts}: "
            f"{result.error_code}: {result.error_message}{where}{doubt}",
            result,
        )

    def wait(self, timeout_seconds: float | None) -> None:
        """Wait until the result is known.

        Raises:
            TimeoutError: it is not within ``timeout_seconds``.
            ProducerError: this is a thread of the producer's, which others wait for.
        """
        if self.result is None:
            if timeout_seconds is None or timeout_seconds > 0:
                self.refuse_wait_here()
            with self._lock:
                done = self._done = self._done or threading.Condition(self._lock)
                if not done.wait_for(lambda: self.result is not None, wait_at_most(timeout_seconds)):
                    raise TimeoutError

    def refuse_wait_here(self) -> None:
        """Refuse to wait in a thread of the producer's: the result may need it; raises ProducerError."""
        if self._threads.are_here():
            raise ProducerError(
                f"a callback, or the commit of a target, must not wait for a send of its own producer, here for "
                f"{self.destination.name}: that send may need this very thread. Use add_done_callback, or wait in "
                "another thread"
            )

    def watch(self, watcher: Watcher) -> bool:
        """Let ``watcher`` finish once the result is known, unless it is already; tell whether it will be told."""
        if self.result is not None:  # in a forked child, the lock may be that of a thread that is not there
            return False
        with self._lock:
            if self.result is None:
                self._watchers = self._watchers or []
                self._watchers.append(watcher)
                return True
        return False

    def decide(self, outcome: Result) -> bool:
        """Note what became of it, unless that is known already; tell whether it was not."""
        with self._lock:
            if self.outcome is not None:
                return False
            self.outcome = outcome
        return True

    def conclude_unwatched(self, result: Result) -> bool:
        """Let the futures have the result if that calls nobody's code; tell whether it was done."""
        self.decide(result)
        with self._lock:
            if self.callbacks or self._watchers:
                return False
            self._settle(result)
        return True

    def conclude(self, result: Result) -> None:
        """Call the callbacks with the result, then let the futures have it, unless another thread does so."""
        self.decide(result)
        with self._lock:
            if self._is_told:
                return
            self._is_told = True
            result = self.outcome or result  # which another thread may have decided
        for callback, index, count in self.callbacks or ():
            _call(partial(self._tell, callback, index, count, result))
        self.settle()
        self.tell_watchers()

    def _tell(self, callback: Callback, index: int, count: int, result: Result) -> None:
        callback(self.result_of(index, count, result))

    def settle(self) -> None:
        """Let the futures have the outcome now, though callbacks may not be through; nobody's code is called."""
        with self._lock:
            if self.outcome is not None:
                self._settle(self.outcome)

    def _settle(self, result: Result) -> None:
        if self.result is not None:  # by `settle`
            return
        self.callbacks = None
        if result.successful or result.dead_letter:  # a future may live long
            self.bodies, self.headers, self.record_batch = [], None, None
        self.result = result
        if self._done is not None:
            self._done.notify_all()

    def tell_watchers(self) -> None:
        """Let those go on who wait in other ways than `wait`; the result is known."""
        for watcher in self._watchers or ():  # there until all have finished: a forked child finishes the others
            _call(watcher.finish)
        self._watchers = None

    def after_fork(self, result: Result) -> None:
        """In a forked child, where nobody sends it: let the futures have what is known, or else a result.

        Nobody's code is called, and who held the lock may not exist. The lists are emptied, since the thread that
        forked may be amid one of them.
        """
        self._lock, self._done = threading.Lock(), None
        watchers = list(self._watchers or ())
        for of_this_thread in (self._watchers, self.callbacks):
            if of_this_thread is not None:
                of_this_thread.clear()
        self.outcome = self.outcome or result
        self.settle()
        for watcher in watchers:
            watcher.finish(forked=True)


def _call(user_code: Callable[[], object]) -> None:
    """Call what a user gave; what it raises harms nobody."""
    try:
        user_code()
    except BaseException as e:
        say(logging.ERROR, "a callback of a producer raised", error=e)


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: "1 event", "2 events"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
