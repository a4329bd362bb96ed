"""A batch of a producer: events for one destination that are committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spillable_stream.counted import counted
from spillable_stream.errors import ProducerError, SendFailedError
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.log_records import RecordFields, fields, log_of
from spillable_stream.producer.batch_events import BatchEvents
from spillable_stream.producer.clock import wait_at_most
from spillable_stream.producer.event_size import ATTEMPT_BYTES, text_bytes
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.threads import Threads

if TYPE_CHECKING:
    from spillable_stream.producer.dead_letters import DeadBatch
    from spillable_stream.producer.destination import Destination

__all__ = ["Callback", "ProducerBatch", "Watcher"]

_log = log_of("spillable_stream.producer")

Callback = Callable[[Result], object]


class Watcher(Protocol):
    """Is notified when a batch's result is known."""

    def finish(self, *, forked: bool = False) -> None:
        """Handle the result.

        Args:
            forked: whether this is a forked child. It does not send the batch, and must not call user code.
        """


class ProducerBatch(BatchEvents):
    """Events with the callbacks and futures that wait for them. A lock of its own guards the result.

    Args:
        destination: the destination.
        sequence: its number among the destination's batches.
        created: when it was created, in the clock's monotonic seconds.
        max_reserved_attempts: how many attempts to remember.
        threads: the producer's threads, which must not wait for the result.

    Attributes:
        callbacks: a callback for a send's result, the index of its first event and their number, for each such send;
            None without any.
        own_sequence: whether the application chose the sequence. It is then the batch's number.
        numbers: the numbers that it is committed under, if the producer numbers it; None before its first attempt and
            after a refusal.
        in_doubt: whether a failed attempt may have stored it.
        dead: its form as a dead letter, once it has failed; None before.
        attempts: its latest attempts, oldest first.
        attempt_count: how often it was tried.
        retry: how many times it was retried at its current target.
        outcome: the result of the whole batch; None until it is known.
        result: the same, once the callbacks were called; futures read it.
    """

    __slots__ = (
        "_done",
        "_is_told",
        "_lock",
        "_most_attempts",
        "_threads",
        "_watchers",
        "attempt_count",
        "attempts",
        "callbacks",
        "created",
        "dead",
        "in_doubt",
        "numbers",
        "outcome",
        "own_sequence",
        "result",
        "retry",
        "sequence",
    )

    def __init__(
        self, destination: Destination, sequence: int, created: float, max_reserved_attempts: int, threads: Threads
    ) -> None:
        super().__init__(destination)
        self.sequence: int = sequence
        self.created: float = created
        self.callbacks: list[tuple[Callback, int, int]] | None = None
        self.own_sequence: bool = False
        self.numbers: Numbers | None = None
        self._is_told = False  # whether a thread has begun to call the callbacks
        self.in_doubt: bool = False
        self.dead: DeadBatch | None = None
        self.attempt_count: int = 0
        self.retry: int = 0
        self.outcome: Result | None = None
        self.result: Result | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self._most_attempts = max_reserved_attempts
        self._lock = threading.RLock()  # what goes with a callback, or as garbage, may look at its future
        self._done: threading.Condition | None = None  # on the lock; None until somebody waits
        self._watchers: list[Watcher] | None = None
        self._threads = threads

    # ── attempts ────────────────────────────────────────────────────────────────────────────

    def record(self, attempt: Attempt) -> None:
        """Record an attempt."""
        self.attempts = (*self.attempts, attempt)[-self._most_attempts :]
        self.attempt_count += 1

    def last_attempt_bytes(self) -> int:
        """Return the memory, in bytes, that the record of the last, failed attempt added; 0 if it replaced another."""
        if self.attempt_count > self._most_attempts:
            return 0
        text = self.attempts[-1].error_message
        known = len(self.attempts) > 1 and self.attempts[-2].error_message is text
        return ATTEMPT_BYTES + (0 if known else text_bytes(text))

    def refused(self) -> None:
        """Record that an attempt stored nothing: the next one has another number, unless one before it is in doubt."""
        if not (self.in_doubt if self.dead is None else self.dead.may_be_there):
            self.free_numbers()

    def doubt(self) -> None:
        """Record that a failed attempt may have stored it."""
        self.in_doubt = True
        if self.dead is not None:
            self.dead.may_be_there = True

    def free_numbers(self, *, stored: bool = False) -> None:
        """Record that it is stored under its number where it goes, or never will be; in an I/O thread."""
        if self.dead is None:
            self.destination.free(self, stored=stored)
        else:
            self.dead.free(stored=stored)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def log_fields(self) -> RecordFields:
        """Return the fields of a log record about the batch."""
        return fields(component=self.destination.name, count=self.count)

    def result_of(self, index: int, count: int, whole: Result | None = None) -> Result:
        """Return the result of some events.

        Args:
            index: the first event.
            count: the number of events.
            whole: the result of the whole batch; None for `result`.
        """
        whole = whole or self.result
        assert whole is not None
        if not (whole.successful or whole.dead_letter):
            return replace(whole, events=self.events(index, count))
        if not whole.first_id or (whole.dead_letter and self.destination.typed):  # one letter has all rows
            return whole
        if self.timed and not whole.dead_letter:  # a letter has no times
            before = self.delayed_before(index)
            if self.delayed_before(index + count) > before:
                return whole.with_ids(0, -1)
            index -= before
        return whole.with_ids(whole.first_id + index, whole.first_id + index + count - 1)

    def error_of(self, index: int, count: int) -> SendFailedError | None:
        """Return the error for events that are not in their channel; None if they are stored."""
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

        Args:
            timeout_seconds: how long to wait; None for no limit.

        Raises:
            TimeoutError: the result is not known within ``timeout_seconds``.
            ProducerError: this is one of the producer's threads, which may be needed for the result.
        """
        if self.result is None:
            if timeout_seconds is None or timeout_seconds > 0:
                self.refuse_wait_here()
            with self._lock:
                done = self._done = self._done or threading.Condition(self._lock)
                if not done.wait_for(lambda: self.result is not None, wait_at_most(timeout_seconds)):
                    raise TimeoutError

    def refuse_wait_here(self) -> None:
        """Refuse to wait in one of the producer's threads, which may be needed for the result.

        Raises:
            ProducerError: this is such a thread.
        """
        if self._threads.are_here():
            raise ProducerError(
                f"a callback, or the commit of a target, must not wait for a send of its own producer, here for "
                f"{self.destination.name}: that send may need this very thread. Use add_done_callback, or wait in "
                "another thread"
            )

    def watch(self, watcher: Watcher) -> bool:
        """Register a watcher to be notified of the result; False if the result is known already."""
        if self.result is not None:  # in a forked child, a thread that no longer exists may hold the lock
            return False
        with self._lock:
            if self.result is None:
                self._watchers = self._watchers or []
                self._watchers.append(watcher)
                return True
        return False

    def decide(self, outcome: Result) -> bool:
        """Set the outcome, and return True; return False if it is known already."""
        with self._lock:
            if self.outcome is not None:
                return False
            self.outcome = outcome
        return True

    def conclude_unwatched(self, result: Result) -> bool:
        """Publish the result to the futures if no user code waits for it; tell whether that was done."""
        self.decide(result)
        with self._lock:
            if self.callbacks or self._watchers:
                return False
            self._settle(result)
        return True

    def conclude(self, result: Result) -> None:
        """Call the callbacks with the result, then publish it to the futures; a no-op if another thread does so."""
        self.decide(result)
        with self._lock:
            if self._is_told:
                return
            self._is_told = True
            result = self.outcome or result  # another thread may have decided first
        for callback, index, count in self.callbacks or ():
            _call(partial(self._tell, callback, index, count, result))
        self.settle()
        self.tell_watchers()

    def _tell(self, callback: Callback, index: int, count: int, result: Result) -> None:
        callback(self.result_of(index, count, result))

    def settle(self) -> None:
        """Publish the outcome to the futures now, even if callbacks are still running. It calls no user code."""
        with self._lock:
            if self.outcome is not None:
                self._settle(self.outcome)

    def _settle(self, result: Result) -> None:
        if self.result is not None:  # `settle` came first
            return
        self.result = result
        if self._done is not None:
            self._done.notify_all()
        self.callbacks = None
        if result.successful or result.dead_letter:
            self.free()

    def tell_watchers(self) -> None:
        """Notify the watchers; the result is known."""
        for watcher in self._watchers or ():  # kept until all have finished, so that a forked child finishes the rest
            _call(watcher.finish)
        self._watchers = None

    def after_fork(self, result: Result) -> None:
        """In a forked child, which does not send the batch: publish the outcome, or ``result`` if there is none.

        It calls no user code, and replaces the lock, whose holder may not exist here. It empties the lists of watchers
        and callbacks, because the thread that forked may be iterating over one of them.
        """
        self._lock, self._done = threading.RLock(), None
        watchers = list(self._watchers or ())
        for of_this_thread in (self._watchers, self.callbacks):
            if of_this_thread is not None:
                of_this_thread.clear()
        self.outcome = self.outcome or result
        self.settle()
        for watcher in watchers:
            watcher.finish(forked=True)


def _call(user_code: Callable[[], object]) -> None:
    """Call user code, and log any error that it raises."""
    try:
        user_code()
    except BaseException as e:
        _log.error("a callback of a producer raised", exc_info=e)
