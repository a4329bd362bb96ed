"""The pipeline of a producer: accumulator → schedule → handlers, with the mover and the retry queue beside it.

::

    send ──▶ accumulator ──full, or lingered──▶ schedule ──▶ send task ──stored──▶ success handler
                  ▲             (mover)           ▲              ├──may pass──▶ retry queue
                  │                               ├──due (mover)─┼──────────────────┘
                  │                               └──in parts────┼──too large
                  └──────── room ─────────────────────────────── └──failed──▶ failure handler
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from threading import Thread

from spillable_stream.counted import counted
from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import ProducerTimeoutError
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import start_thread
from spillable_stream.producer import process_end
from spillable_stream.producer.accumulator import Accumulator
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.buffer import Buffer
from spillable_stream.producer.callbacks import Callbacks
from spillable_stream.producer.clock import Clock, SteadyClock
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.dead_letters import DeadLetters
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import DEAD_LETTER_BYTES, text_bytes
from spillable_stream.producer.io_pool import IoPool
from spillable_stream.producer.mover import Mover
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.result import Attempt, Result
from spillable_stream.producer.retry import RetryQueue, is_tried_again
from spillable_stream.producer.room import Poller
from spillable_stream.producer.schedule import Lane, Schedule, Turn
from spillable_stream.producer.send_task import SendTask
from spillable_stream.producer.shutdown import Shutdown
from spillable_stream.producer.stats import Metrics, ProducerStats
from spillable_stream.producer.target import Target
from spillable_stream.producer.threads import Threads

__all__ = ["Pipeline"]

_log = log_of("spillable_stream.producer")


class Pipeline:
    """The rooms of a producer and its threads, and how a batch goes from one to the next.

    Args:
        name: of its threads.
        config: the configuration.
        destinations: where batches go.
        dead_letters: where they go when they can't; None for nowhere.
        targets: what is closed at the end.
        clock: the time.
        rng: jitter.

    Raises:
        StorageError: the process can have no more threads. None of the threads stays.

    Attributes:
        name: whose it is, for messages.
        shutdown: how it ends.
    """

    own_threads: Threads

    def __init__(
        self,
        name: str,
        config: ProducerConfig,
        destinations: Iterable[Destination],
        dead_letters: DeadLetters | None,
        targets: Iterable[Target],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.name = name
        clock = clock if type(clock) is Clock else SteadyClock(clock)
        self.metrics: Metrics = Metrics()
        self.retry_queue: RetryQueue = RetryQueue()
        self._config = config
        self._dead_letters = dead_letters
        self._clock = clock
        self._rng = rng
        self.own_threads = threads = Threads(lambda error: self.shutdown.fail_everything(error))
        self._task = SendTask(clock, config.context_headers, self, self.metrics.tried)
        self._pool = IoPool(self._serve, config.io_thread_count, threads, f"{name}-io")
        self._success = Callbacks(self._ended, threads, f"{name}-success")
        self._failure = Callbacks(self._ended, threads, f"{name}-failure")
        self.accumulator: Accumulator = Accumulator(config, clock, self._ship, self._expect, threads)
        self.buffer: Buffer = self.accumulator.buffer
        self._mutex = self.accumulator.mutex
        self._schedule = self._make_schedule(list(destinations))
        self.shutdown: Shutdown = self._make_shutdown(targets)
        is_over, finish = self.shutdown.is_over, self.shutdown.finish
        self._mover = Mover(self._mutex, clock, self._move, is_over, finish, threads, f"{name}-mover")
        self.threads: list[Thread] = [
            *self._pool.threads,
            self._success.thread,
            self._failure.thread,
            self._mover.thread,
        ]
        try:
            for thread in self.threads:
                start_thread(thread)
        except BaseException:
            self.shutdown.let_threads_end()
            raise
        self._mutex.first.update(thread.ident or 0 for thread in self.threads)

    def _make_schedule(self, destinations: list[Destination]) -> Schedule:
        return Schedule(
            self._clock,
            self._config.io_thread_count,
            destinations,
            self.accumulator.seal_next,
            self._pool.put,
            self._expect,
            lambda: self.buffer.closing,
        )

    def _make_shutdown(self, targets: Iterable[Target]) -> Shutdown:
        return Shutdown(
            self.name,
            self._clock,
            self.accumulator,
            self._schedule,
            self.retry_queue,
            self._pool,
            (self._success, self._failure),
            targets,
            self.own_threads,
            self.metrics,
            fail=self._fail,
            free=self._ended,
            wake=lambda: self._mover.wake(),
            forget=partial(process_end.ended, self),
        )

    # ── on the way; the mutex is held ───────────────────────────────────────────────────────

    def _ship(self, destination: Destination) -> None:
        self._schedule.serve(destination)

    def _expect(self, due: float) -> None:
        self._mover.expect(due)

    def _move(self, now: float) -> float | None:
        """Ship what has lingered and what is due again; return when there will be more, None if nothing waits."""
        closing = self.buffer.closing
        for batch in self.retry_queue.take_all() if closing else self.retry_queue.take_due(now):
            self._schedule.submit(batch)
        due = self.accumulator.ship_lingered(now), self.retry_queue.next_due(), self._schedule.wake_due(now)
        return min((at for at in due if at is not None), default=None)

    def _serve(self, lane: Lane) -> None:
        """Try a lane's next batch, if it has a turn; in an I/O thread, without the mutex."""
        with self._mutex:
            turn = self._schedule.begin(lane)
        if turn is None:
            return
        error = self._try(turn)
        with self._mutex:
            self._schedule.end(turn, error)

    def _try(self, turn: Turn) -> BaseException | None:
        """Try once to commit a batch, and return what went wrong; nothing that does ends the thread."""
        batch = turn.batch
        try:
            return turn.no_room_yet() or self._task.run(batch, turn.began, turn.waited_seconds)
        except BaseException as e:
            if batch.outcome is not None:  # it is known, but not told to all
                self._failure.put(batch, batch.outcome)
                return e
            batch.in_doubt = True
            batch.record(Attempt(False, self._clock.time(), type(e).__name__, text_of(e)))
            batch.free_numbers()
            self.failed(batch, Result(False, 0, -1, batch.attempts, batch.attempt_count, in_doubt=True))
            return e

    # ── the ends of an attempt; in an I/O thread ────────────────────────────────────────────

    def stored(self, batch: ProducerBatch, result: Result) -> None:
        """Let a batch that is in its channel, or in the dead-letter channel, be concluded."""
        if batch.destination.in_order:
            with self._mutex:
                batch.destination.ended(batch, stored=True)
                self._schedule.serve(batch.destination)
        if batch.dead is not None:
            dead = batch.dead
            to, doubt, reason = dead.name, dead.in_doubt, dead.reason
            result = replace(result, successful=False, dead_letter=to, in_doubt=doubt, reason=reason)
        if not batch.decide(result):  # given up meanwhile
            return
        if batch.dead is not None:
            self._failure.put(batch, result)
            events = counted(batch.count, "event")
            _log.error(
                "%s for %s went to the dead-letter channel", events, batch.destination.name, extra=batch.log_fields()
            )
            return
        self.metrics.stored(batch, self._clock.monotonic())
        if batch.conclude_unwatched(result):
            self._ended(batch)
        else:
            self._success.put(batch, result)

    def retry(self, batch: ProducerBatch) -> bool:
        """Let a batch wait to be tried again, if the retry policy says so; tell whether it does."""
        with self._mutex:
            closing = self.buffer.closing
            if not is_tried_again(batch, self._config.retries, closing):
                return False
            batch.retry += 1
            self.buffer.grow(batch, batch.last_attempt_bytes())
            wait_seconds = 0.0 if closing else self._config.backoff_seconds(batch.retry, self._rng)
            due = self._clock.monotonic() + wait_seconds
            self.retry_queue.put(batch, due)
            self._mover.expect(due)
        self.metrics.retried()
        return True

    def divide(self, batch: ProducerBatch) -> bool:
        """Divide a batch that was refused as too large, and try its first part at once; tell whether that was done.

        The parts have its sequence, so each is tried when the one before has ended.
        """
        with self._mutex:
            rest = None if self.shutdown.has_given_up else batch.second_half()
            if rest is None:
                return False
            self.buffer.divide(batch, rest)
            self._schedule.submit_divided(batch, rest)
            batch.divide(rest)
            self.buffer.grow(batch, batch.last_attempt_bytes())
        batch.tell_divided()
        return True

    def dead_letter(self, batch: ProducerBatch) -> bool:
        """Send a batch to the dead-letter channel instead, if there is one."""
        if self._dead_letters is None or batch.dead is not None:
            return False
        batch.dead, batch.retry = self._dead_letters.address(batch), 0
        reason_bytes = text_bytes(batch.attempts[-1].error_message)
        with self._mutex:
            self.buffer.grow(batch, batch.last_attempt_bytes() + DEAD_LETTER_BYTES + reason_bytes)
            self._schedule.submit(batch)
        return True

    def failed(self, batch: ProducerBatch, result: Result) -> None:
        """Let a batch that is nowhere be concluded, and those that must not be committed without it."""
        if not batch.decide(result):
            return
        with self._mutex:
            failing = batch.destination.ended(batch, stored=False)
        self._failure.put(batch, result)
        code, message = result.error_code, result.error_message
        after = self._fail(failing, code, f"batch {batch.sequence} before it failed: {message}")
        what = f"{counted(batch.count, 'event')} for {batch.destination.name} failed: {code}: {message}"
        more = f"; {counted(after, 'event')} after it failed with it" if after else ""
        _log.error("%s%s", what, more, extra=batch.log_fields())

    def _fail(self, batches: Iterable[ProducerBatch], code: str, message: str, *, running: bool = False) -> int:
        """Let batches fail that are not tried any more, and return how many events they have.

        Args:
            batches: these; an interrupt leaves some of them undecided.
            code: why, as an error's name.
            message: why.
            running: whether they are being committed.
        """
        events = 0
        for batch in batches:
            reason = Attempt(False, self._clock.time(), code, message)
            doubt = running or batch.in_doubt
            result = Result(False, 0, -1, (*batch.attempts, reason), batch.attempt_count, in_doubt=doubt)
            if batch.outcome is None:
                self._failure.put(batch, result)  # first: what is decided must be told
                batch.decide(result)
                events += batch.count
        return events

    def _ended(self, batch: ProducerBatch) -> None:
        """Free what a batch held, whose futures have their result."""
        with self._mutex:
            if batch in self.buffer.batches:  # else it is freed: something failed meanwhile
                self.buffer.release(batch)
                self.metrics.ended(batch)
            if self.buffer.closing:
                self._mover.wake()

    def leave(self, poller: Poller) -> None:
        """Take a poller off the queue for room."""
        self._mutex.run(lambda: self.buffer.leave(poller))

    def stats(self, producer_id: str) -> ProducerStats:
        """Return what is queued, and what became of the rest."""
        buffer = self.buffer

        def look() -> tuple[int, int, int, int]:
            return buffer.held_bytes, len(buffer.batches), len(self.retry_queue), buffer.sent_events()

        queued, metrics = self._mutex.run(look), self.metrics
        state = "closed" if self.shutdown.is_finished else "closing" if buffer.closing else "running"
        if buffer.failure is not None:
            state = f"failed: {type_and_text(buffer.failure)}"
        ended = metrics.stored_events, metrics.dead_letter_events, metrics.failed_events
        counts = metrics.stored_batches, metrics.retries, metrics.failed_attempts
        events, sizes, seconds = metrics.sizes()
        return ProducerStats(
            producer_id, *queued, *ended, *counts, metrics.last_error, events, sizes, seconds, state=state
        )

    # ── for all of them ─────────────────────────────────────────────────────────────────────

    def flush(self, timeout_seconds: float | None) -> None:
        """Ship everything and wait until all of it has ended; from one of its own threads, only ship.

        Raises:
            ProducerTimeoutError: it did not end in time.
        """

        def flush() -> int:
            self.accumulator.ship_all()
            left, outstanding = list(self.buffer.batches), self.buffer.batches
            if self.own_threads.are_here():
                return 0

            def done() -> bool:
                while left and left[-1] not in outstanding:  # each is looked at until it has ended, one at a time
                    batch = left.pop()
                    if batch.rest is not None:
                        left.append(batch.rest[1])
                return not left

            self.shutdown.wait(done, timeout_seconds)
            parts = {part for batch in left for part in batch.parts() if part in outstanding}
            return sum(part.count or len(part) for part in parts)

        if late := self._mutex.run(flush):
            raise ProducerTimeoutError(
                f"the flush did not finish within {timeout_seconds:g} s: {counted(late, 'event', 'are')} still "
                "under way"
            )

    def after_fork(self) -> None:
        """In a forked child, where there are no threads: let the child's copies of the futures know."""
        self._mutex = Mutex()  # the parent's may be taken
        self.shutdown.after_fork(self._mutex)
