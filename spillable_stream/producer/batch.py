"""A batch of a producer: events for one destination that are committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spillable_stream.counted import counted
from spillable_stream.errors import ProducerError, SendFailedError
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.log_records import RecordFields, fields, log_of
from spillable_stream.producer.batch_events import BatchEvents
from spillable_stream.producer.clock import wait_at_most
from spillable_stream.producer.event_size import ATTEMPT_BYTES, BATCH_BYTES, text_bytes
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.threads import Threads

if TYPE_CHECKING:
    from spillable_stream.producer.dead_letters import DeadBatch
    from spillable_stream.producer.destination import Destination

__all__ = ["Callback", "ProducerBatch", "Watcher"]

_log = log_of("spillable_stream.producer")

Callback = Callable[[Result], object]


class Watcher(Protocol):
    """Is notified when a batch's result is known, and when it was divided."""

    def finish(self, *, forked: bool = False) -> None:
        """Handle the result; watch again where that of its own part is not known yet.

        Args:
            forked: whether this is a forked child. It does not send the batch, and must not call user code.
        """


class ProducerBatch(BatchEvents):
    """Events with the callbacks and futures that wait for them. A lock of its own guards the result.

    A batch that is too large for its target is divided: it keeps the first sends, and another one gets the rest, which
    waits until this one has ended (`divide`). Futures know the batch to which their events were added, and find their
    part from there (`part`). The parts share the lock of the first.

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
        rest: the batch that got its events from an index on, and that index; None if it was not divided.
        retry: how many times it was retried at its current target.
        outcome: the result of the whole batch; None until it is known.
        result: the same, once the callbacks were called; futures read it.
    """

    __slots__ = (
        "_done",
        "_first",
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
        "rest",
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
        self.rest: tuple[int, ProducerBatch] | None = None
        self._first: ProducerBatch | None = None  # the one that was divided, of another part
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
        if not self._may_be_there():
            self.free_numbers()

    def _may_be_there(self) -> bool:
        """Tell whether a failed attempt may have stored it where it goes now."""
        return self.in_doubt if self.dead is None else self.dead.may_be_there

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

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def second_half(self) -> ProducerBatch | None:
        """Return a batch with the second half of the sends, for `divide`; None if it must not be divided.

        It must not where it is one send. Nor where it may be stored: its number would tell, but its parts have others.
        """
        index = 0 if self.own_sequence or self.record_batch is not None else self.middle()
        if index == 0 or self._may_be_there():
            return None
        rest = ProducerBatch(self.destination, self.sequence, self.created, self._most_attempts, self._threads)
        rest.copy_from(self, index)
        rest.size_bytes += (self.size_bytes - BATCH_BYTES) * rest.count // len(self)
        rest.attempts, rest.attempt_count = self.attempts, self.attempt_count
        rest.in_doubt, rest.dead = self.in_doubt, copy(self.dead)
        rest.callbacks = [(call, i - index, count) for call, i, count in self.callbacks or () if i >= index] or None
        rest._first, rest._lock = self if self._first is None else self._first, self._lock
        rest.rest = None if self.rest is None else (self.rest[0] - index, self.rest[1])
        return rest

    def divide(self, rest: ProducerBatch) -> None:
        """Leave the second half of the sends to a batch that `second_half` returned.

        The accumulator's mutex is held, and nobody else can decide the outcome now. Call `tell_divided` after it.
        """
        index = len(self) - rest.count
        self.rest = index, rest  # first: in a forked child, futures find a part that has their events
        self.callbacks = [called for called in self.callbacks or () if called[1] < index] or None
        self.cut_off(index)

    def tell_divided(self) -> None:
        """Let the watchers watch their own parts."""
        with self._lock:
            watchers = list(self._watchers or ())
        for watcher in watchers:
            _call(watcher.finish)
        with self._lock:  # kept until all watch again, so that a forked child finishes the rest
            self._watchers = (self._watchers or [])[len(watchers) :] or None

    def part(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the part that has an event now, and the event's index there."""
        part = self
        while (rest := part.rest) is not None and index >= rest[0]:
            index, part = index - rest[0], rest[1]
        return part, index

    def is_known(self, index: int) -> bool:
        """Tell whether the result of an event is known."""
        part, known = self, self.result is not None  # first: what has a result is divided no more
        while (rest := part.rest) is not None and index >= rest[0]:
            index, part = index - rest[0], rest[1]
            known = part.result is not None
        return known

    def parts(self) -> Iterator[ProducerBatch]:
        """Return the batch, and those that got the rest of its events."""
        part: ProducerBatch | None = self
        while part is not None:
            yield part
            part = None if part.rest is None else part.rest[1]

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

    def wait(self, index: int, timeout_seconds: float | None) -> None:
        """Wait until the result of an event is known.

        Args:
            index: the event's index.
            timeout_seconds: how long to wait; None for no limit.

        Raises:
            TimeoutError: the result is not known within ``timeout_seconds``.
            ProducerError: this is one of the producer's threads, which may be needed for the result.
        """
        if not self.is_known(index):
            if timeout_seconds is None or timeout_seconds > 0:
                self.refuse_wait_here()
            with self._lock:
                done = self._done = self._done or threading.Condition(self._lock)
                if not done.wait_for(lambda: self.is_known(index), wait_at_most(timeout_seconds)):
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

    def watch(self, index: int, watcher: Watcher) -> bool:
        """Register a watcher to be notified of an event's result; False if the result is known already."""
        if self.is_known(index):  # in a forked child, a thread that is not there may hold the lock
            return False
        with self._lock:
            part, _ = self.part(index)
            if part.result is None:
                part._watchers = part._watchers or []
                part._watchers.append(watcher)
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
        done = (self if self._first is None else self._first)._done
        if done is not None:
            done.notify_all()
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
        watchers: list[Watcher] = []
        for part in self.parts():
            part._lock, part._done, part._first = threading.RLock(), None, None
            watchers += part._watchers or ()
            for of_this_thread in (part._watchers, part.callbacks):
                if of_this_thread is not None:
                    of_this_thread.clear()
            part.outcome = part.outcome or result
            part.settle()
        for watcher in watchers:
            watcher.finish(forked=True)


def _call(user_code: Callable[[], object]) -> None:
    """Call user code, and log any error that it raises."""
    try:
        user_code()
    except BaseException as e:
        _log.error("a callback of a producer raised", exc_info=e)
