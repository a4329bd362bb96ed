"""The end of a producer: what it accepted is stored, or fails and is told, and its threads and targets are let go.

There are three ends: a close, which anybody may wait for; the end of the process, which gives up what is late; and the
failure of a thread, after which nothing can be stored any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from spillable_stream.counted import counted
from spillable_stream.error_text import text_of
from spillable_stream.errors import ProducerClosedError, ProducerError, ProducerTimeoutError
from spillable_stream.log_records import fields, log_of
from spillable_stream.producer.accumulator import Accumulator
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.callbacks import Callbacks
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.io_pool import IoPool
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.retry import RetryQueue
from spillable_stream.producer.schedule import Schedule
from spillable_stream.producer.stats import Metrics
from spillable_stream.producer.target import ChannelTarget, Target
from spillable_stream.producer.threads import Threads

__all__ = ["Shutdown"]

_log = log_of("spillable_stream.producer")


class _Fail(Protocol):
    """`Pipeline._fail`."""

    def __call__(self, batches: Iterable[ProducerBatch], code: str, message: str, *, running: bool = False) -> int: ...


class Shutdown:
    """Ends a pipeline.

    Args:
        name: the pipeline's, for messages.
        clock: the time.
        accumulator: ships what is open; its buffer has all batches that have not ended.
        schedule: those that are tried, or wait for their turn.
        retry_queue: those that wait to be tried again.
        pool: the threads that commit them.
        callbacks: the threads that tell what became of them.
        targets: what is closed at the end.
        threads: the producer's.
        metrics: what became of the batches.
        fail: lets batches fail that are not tried any more, and returns how many events they have.
        free: frees what a batch held.
        wake: wakes the mover, with the mutex held.
        forget: called when all has ended.

    Attributes:
        is_finished: whether all has ended.
        has_given_up: whether it lets everything fail that has not ended, and so no batch may be divided any more.
    """

    has_given_up: bool
    is_finished: bool

    def __init__(
        self,
        name: str,
        clock: Clock,
        accumulator: Accumulator,
        schedule: Schedule,
        retry_queue: RetryQueue,
        pool: IoPool,
        callbacks: tuple[Callbacks, ...],
        targets: Iterable[Target],
        threads: Threads,
        metrics: Metrics,
        *,
        fail: _Fail,
        free: Callable[[ProducerBatch], None],
        wake: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        self.is_finished = self.has_given_up = False
        self._name = name
        self._clock = clock
        self._accumulator = accumulator
        self._buffer = accumulator.buffer
        self._schedule = schedule
        self._retry_queue = retry_queue
        self._pool = pool
        self._callbacks = callbacks
        self._targets = list(targets)
        self._threads = threads
        self._metrics = metrics
        self._fail, self._free, self._wake, self._forget = fail, free, wake, forget
        self._mutex = accumulator.mutex
        self._errors: list[tuple[str, BaseException]] = []

    # ── a close ─────────────────────────────────────────────────────────────────────────────

    def close(self, timeout_seconds: float | None) -> None:
        """Take no more events, try everything once more, and end; from one of its own threads, wait for nothing.

        Raises:
            ProducerTimeoutError: it was not done in time; what nobody had begun to commit has failed.
            ProducerError: a target could not be closed.
        """

        def close() -> tuple[bool, list[ProducerBatch], int, int]:
            self._begin_close()
            if self._threads.are_here() or self.wait(lambda: self.is_finished, timeout_seconds):
                return True, [], 0, 0
            left, ended = self._withdraw(), sum(b.outcome is not None for b in self._buffer.batches)
            return False, left, len(self._buffer.batches) - len(left) - ended, ended

        done, left, running, ended = self._mutex.run(close)
        why = "the producer was closed before it was sent"
        if unsent := self._fail(left, ProducerClosedError.__name__, why):
            _log.error(
                "%s of %s failed: %s",
                counted(unsent, "event"),
                self._name,
                why,
                extra=fields(component=self._name, count=unsent),
            )
        if not done:
            raise ProducerTimeoutError(
                f"the close did not finish within {timeout_seconds:g} s: {_what_is_left(left, running, ended)}"
            )
        if self._errors:
            message, error = self._errors[0]
            raise ProducerError(message) from error

    def begin_close(self) -> None:
        """Take no more events and try everything once more; wait for nothing. May be called again."""
        self._mutex.run(self._begin_close)

    def _begin_close(self) -> None:
        self._buffer.refuse_new()
        self._accumulator.ship_all()
        self._buffer.room.wake_all()  # they are refused
        self._buffer.changed.notify_all()
        self._wake()

    def wait_until_finished(self, timeout_seconds: float | None) -> None:
        """Wait, at most for a time, until the close that was begun is done."""
        self._mutex.run(lambda: self.wait(lambda: self.is_finished, timeout_seconds))

    def wait(self, done: Callable[[], bool], timeout_seconds: float | None) -> bool:
        """Wait for something, with the mutex held, and tell whether it is so."""
        deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while not done():
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                return False
            self._clock.wait(self._buffer.changed, left)
        return True

    def _withdraw(self) -> list[ProducerBatch]:
        """Return the batches that are not being tried, and will not be; the mutex is held.

        They are found among all, not in the queues: an interrupt after this leaves them to the next who asks.
        """
        put_back = {*self._schedule.put_back(), *self._retry_queue.batches()}  # though their turns may not have ended
        running = self._schedule.running() - put_back
        found = [b for b in self._buffer.batches if b.outcome is None and b not in running]
        for batch in found:
            if not batch.sealed:
                batch.seal()
        self._schedule.withdraw()
        self._retry_queue.take_all()
        return found

    def is_over(self) -> bool:
        """Tell whether all batches have ended and no more will come. The mutex is held."""
        return self._buffer.closing and not self._buffer.batches

    def finish(self) -> None:
        """Let the other threads end and close the targets. The mover does it: no interrupt comes to its thread."""
        self.let_threads_end()
        for thread in self._pool.threads:
            thread.join()
        for target in self._targets:
            try:
                target.close()
            except BaseException as e:  # anybody's code
                _log.error("a target could not be closed", exc_info=e)
                self._errors.append((f"a target could not be closed: {text_of(e)}", e))
        self._forget()  # first: an end of the process that waited would find it still held
        with self._mutex:
            self.is_finished = True
            self._buffer.changed.notify_all()

    def let_threads_end(self) -> None:
        """Let all threads but the mover end, when what they were given is done."""
        self._pool.close()
        for callbacks in self._callbacks:
            callbacks.close()

    # ── the end of the process ──────────────────────────────────────────────────────────────

    def wait_until_told(self, timeout_seconds: float) -> None:
        """Wait, at most for a time, until every batch has ended, callbacks and all."""
        self._mutex.run(lambda: self.wait(lambda: not self._buffer.batches, timeout_seconds))

    def give_up(self) -> None:
        """Let everything fail that is not stored yet, and say in the log what that is."""

        def take() -> tuple[list[ProducerBatch], list[ProducerBatch]]:
            self.has_given_up = True
            left = self._withdraw()
            gone = set(left)
            return left, [b for b in self._buffer.batches if b.outcome is None and b not in gone]

        left, running = self._mutex.run(take)
        doubtful = [b for b in left if b.in_doubt]
        code, doubt = ProducerClosedError.__name__, "the process ended while it was being committed; it may be stored"
        unsent_events = self._fail((b for b in left if not b.in_doubt), code, "the process ended before it was sent")
        unknown_events = self._fail(doubtful, code, "the process ended before it was tried again; it may be stored")
        unknown_events += self._fail(running, code, doubt, running=True)
        what = "everything is stored, but its channels could not be closed before the process ended"
        if events := unsent_events + unknown_events:
            what = (
                f"{counted(events, 'event', 'were')} not stored before the process ended, and their futures "
                f"have failed with them; {unknown_events:,} of them were being committed, or tried before, and may be "
                "stored"
            )
        _log.of(self._name, count=events).error("%s", what)

    def abandon(self) -> None:
        """Let futures have what is known though callbacks are not through, and keep nobody waiting any more."""

        def abandon() -> None:
            for batch in list(self._buffer.batches):
                batch.settle()
                if batch.result is not None:
                    self._metrics.ended(batch)
                self._buffer.release(batch)

        self._mutex.run(abandon)

    def after_fork(self, mutex: Mutex) -> None:
        """In a forked child, where there are no threads: let the child's copies of the futures know.

        What keeps out other producers of the name is left to the parent.

        Args:
            mutex: the child's; the parent's may be taken.
        """
        self._mutex = mutex
        for target in self._targets:
            if isinstance(target, ChannelTarget):
                target.leave_claims()
        message = "it is the parent process's to send; this is a forked child"
        for batch in list(self._buffer.batches):
            attempt = Attempt(False, self._clock.time(), ProducerClosedError.__name__, message)
            batch.after_fork(Result(False, reserved_attempts=(attempt,)))
        self._buffer.batches.clear()
        self._buffer.held_bytes = 0
        self.let_threads_end()  # if it was one of them that forked, it ends there and does nothing

    # ── the failure of a thread ─────────────────────────────────────────────────────────────

    def fail_everything(self, error: BaseException) -> None:
        """Let everything fail, since a thread ends that must not: this one. The producer ends, too."""
        code, message = type(error).__name__, f"a thread of the producer ended: {text_of(error)}"
        with self._mutex:
            self.has_given_up = True
            self._buffer.failure = self._buffer.failure or error
            self._buffer.refuse_new()
            self._accumulator.ship_all()
            self._withdraw()
            batches, running = list(self._buffer.batches), self._schedule.running()
            self._errors.append((f"the producer failed, and with it all that was not stored: {code}: {message}", error))
        _log.of(self._name).critical("%s", message, exc_info=error)
        for batch in batches:
            reason = Attempt(False, time.time(), code, message)
            batch.seal()
            doubt = batch.in_doubt or batch in running
            failed = Result(False, 0, -1, (*batch.attempts, reason), batch.attempt_count, in_doubt=doubt)
            batch.decide(failed)
            batch.conclude(batch.outcome or failed)
            batch.settle()  # another thread tells it, which may be the one that ended
        try:
            for batch in batches:
                self._free(batch)
        finally:
            with self._mutex:
                self._buffer.batches.clear()  # whatever went wrong above: `close` must end
                self._buffer.room.wake_all()
                self._buffer.changed.notify_all()
                self._wake()


def _what_is_left(unsent: list[ProducerBatch], running: int, ended: int) -> str:
    """Return in words what a close in time has left: batches that nobody began, that are tried, and that have ended."""
    found = []
    if unsent:
        doubtful = sum(b.count for b in unsent if b.in_doubt)
        doubt = f" ({doubtful:,} of them were tried, and may be stored)" if doubtful else ""
        found.append(
            f"{counted(sum(b.count for b in unsent), 'event', 'were')} not sent, and their futures have them{doubt}"
        )
    if running:
        found.append(f"{counted(running, 'batch', 'are')} being committed and will tell")
    if ended:
        found.append(f"{counted(ended, 'batch', 'are')} done but for callbacks that have yet to return")
    return "; ".join(found) or "all of it is done, but its channels are not closed yet"
