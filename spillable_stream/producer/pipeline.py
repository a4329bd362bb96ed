"""The pipeline of a producer: accumulator → schedule → handlers, with the mover and the retry queue beside it.

::

    send ──▶ accumulator ──full, or lingered──▶ schedule ──▶ send task ──stored──▶ success handler
                  ▲             (mover)           ▲              ├──may pass──▶ retry queue
                  │                               └──due (mover)─┼──────────────────┘
                  └──────── room ─────────────────────────────── └──failed──▶ failure handler
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Thread

from spillable_stream.errors import ProducerClosedError, ProducerError, ProducerTimeoutError
from spillable_stream.producer import process_end
from spillable_stream.producer.accumulator import Accumulator
from spillable_stream.producer.batch import ProducerBatch, counted
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
from spillable_stream.producer.retry_policy import is_tried_again
from spillable_stream.producer.retry_queue import RetryQueue
from spillable_stream.producer.room import Place
from spillable_stream.producer.schedule import Lane, Schedule, Turn
from spillable_stream.producer.send_task import SendTask
from spillable_stream.producer.stats import Metrics, ProducerStats
from spillable_stream.producer.target import Target
from spillable_stream.producer.threads import Threads
from spillable_stream.producer.trouble import say, text_of

__all__ = ["Pipeline"]


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

    Attributes:
        name: whose it is, for messages.
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
        self._destinations = list(destinations)
        self._dead_letters = dead_letters
        self._targets = list(targets)
        self._clock = clock
        self._rng = rng
        self._finished = False
        self._errors: list[tuple[str, BaseException]] = []
        self.own_threads = threads = Threads(self._broken)
        self._task = SendTask(clock, config.context_headers, self, self.metrics.tried)
        self._pool = IoPool(self._serve, config.io_thread_count, threads, f"{name}-io")
        self._success = Callbacks(self._ended, threads, f"{name}-success")
        self._failure = Callbacks(self._ended, threads, f"{name}-failure")
        self.accumulator: Accumulator = Accumulator(config, clock, self._ship, self._expect, threads)
        self._schedule = Schedule(
            clock,
            config.io_thread_count,
            self._destinations,
            self.accumulator.seal_next,
            self._pool.put,
            self._expect,
            lambda: self.accumulator.closing,
        )
        self._mutex = self.accumulator.mutex
        self._mover = Mover(self._mutex, clock, self._move, self._is_over, self._finish, threads, f"{name}-mover")
        self.threads: list[Thread] = [
            *self._pool.threads,
            self._success.thread,
            self._failure.thread,
            self._mover.thread,
        ]
        for thread in self.threads:
            thread.start()
        self._mutex.first.update(thread.ident or 0 for thread in self.threads)

    # ── on the way; the mutex is held ───────────────────────────────────────────────────────

    def _ship(self, destination: Destination) -> None:
        self._schedule.serve(destination)

    def _expect(self, due: float) -> None:
        self._mover.expect(due)

    def _move(self, now: float) -> float | None:
        """Ship what has lingered and what is due again; return when there will be more, None if nothing waits."""
        closing = self.accumulator.closing
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
            batch.note(Attempt(False, self._clock.time(), type(e).__name__, text_of(e)))
            batch.destination.free(batch)
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
            result = replace(result, successful=False, dead_letter=batch.dead.name)
        if not batch.decide(result):  # given up meanwhile
            return
        if batch.dead is not None:
            self._failure.put(batch, result)
            events = counted(batch.count, "event")
            say(logging.ERROR, "%s for %s went to the dead-letter channel", events, batch.destination.name)
        elif batch.conclude_unwatched(result):
            self._ended(batch)
        else:
            self._success.put(batch, result)

    def retry(self, batch: ProducerBatch) -> bool:
        """Let a batch wait to be tried again, if the retry policy says so; tell whether it does."""
        with self._mutex:
            closing = self.accumulator.closing
            if not is_tried_again(batch, self._config.retries, closing):
                return False
            batch.retry += 1
            self.accumulator.grow(batch, batch.last_attempt_bytes())
            wait_seconds = 0.0 if closing else self._config.backoff_seconds(batch.retry, self._rng)
            due = self._clock.monotonic() + wait_seconds
            self.retry_queue.put(batch, due)
            self._mover.expect(due)
        self.metrics.retried()
        return True

    def dead_letter(self, batch: ProducerBatch) -> bool:
        """Send a batch to the dead-letter channel instead, if there is one."""
        if self._dead_letters is None or batch.dead is not None:
            return False
        batch.dead, batch.retry = self._dead_letters.address(batch), 0
        reason_bytes = text_bytes(batch.attempts[-1].error_message)
        with self._mutex:
            self.accumulator.grow(batch, batch.last_attempt_bytes() + DEAD_LETTER_BYTES + reason_bytes)
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
        after = self._fail(failing, code, f"batch {batch.sequence:,} before it failed: {message}")
        what = f"{counted(batch.count, 'event')} for {batch.destination.name} failed: {code}: {message}"
        more = f"; {counted(after, 'event')} after it failed with it" if after else ""
        say(logging.ERROR, "%s%s", what, more)

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
            if batch in self.accumulator.batches:  # else it is freed: something failed meanwhile
                self.accumulator.release(batch)
                self.metrics.ended(batch, self._clock.monotonic())
            if self.accumulator.closing:
                self._mover.wake()

    def leave(self, place: Place) -> None:
        """Give up a place in the line for room."""
        self._mutex.run(lambda: self.accumulator.leave(place))

    def stats(self, producer_id: str) -> ProducerStats:
        """Return what is queued, and what became of the rest."""
        accumulator = self.accumulator

        def look() -> tuple[int, int, int, int]:
            return accumulator.held_bytes, len(accumulator.batches), len(self.retry_queue), accumulator.sent_events()

        queued, metrics = self._mutex.run(look), self.metrics
        state = "closed" if self._finished else "closing" if accumulator.closing else "running"
        if accumulator.failure is not None:
            state = f"failed: {type(accumulator.failure).__name__}: {text_of(accumulator.failure)}"
        ended = metrics.stored_events, metrics.dead_letter_events, metrics.failed_events
        counts = metrics.stored_batches, metrics.retries, metrics.failed_attempts
        events, sizes, seconds = metrics.sizes()
        return ProducerStats(
            producer_id, *queued, *ended, *counts, metrics.last_error, events, sizes, seconds, state=state
        )

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def flush(self, timeout_seconds: float | None) -> None:
        """Ship everything and wait until all of it has ended; from one of its own threads, only ship.

        Raises:
            ProducerTimeoutError: it did not end in time.
        """

        def flush() -> int:
            self.accumulator.ship_all()
            left, outstanding = list(self.accumulator.batches), self.accumulator.batches
            if self.own_threads.are_here():
                return 0

            def done() -> bool:
                while left and left[-1] not in outstanding:  # each is looked at until it has ended, one at a time
                    left.pop()
                return not left

            self._wait(done, timeout_seconds)
            return sum(b.count or len(b) for b in left if b in outstanding)

        if late := self._mutex.run(flush):
            raise ProducerTimeoutError(
                f"a flush was not done after {timeout_seconds:g} s: {late:,} events are still on their way"
            )

    def close(self, timeout_seconds: float | None) -> None:
        """Take no more events, try everything once more, and end; from one of its own threads, wait for nothing.

        Raises:
            ProducerTimeoutError: it was not done in time; what nobody had begun to commit has failed.
            ProducerError: a target could not be closed.
        """

        def close() -> tuple[bool, list[ProducerBatch], int]:
            self._begin_close()
            if self.own_threads.are_here() or self._wait(lambda: self._finished, timeout_seconds):
                return True, [], 0
            left = self._withdraw()
            return False, left, len(self.accumulator.batches) - len(left)

        done, left, running = self._mutex.run(close)
        why = "the producer was closed before it was sent"
        if unsent := self._fail(left, ProducerClosedError.__name__, why):
            say(logging.ERROR, "%s of %s failed: %s", counted(unsent, "event"), self.name, why)
        if not done:
            doubtful = sum(b.count for b in left if b.in_doubt)
            doubt = f" ({doubtful:,} of them were tried, and may be stored)" if doubtful else ""
            raise ProducerTimeoutError(
                f"a close was not done after {timeout_seconds:g} s: {sum(b.count for b in left):,} events were not "
                f"sent, and their futures have them{doubt}; {running:,} batches are being committed and will tell"
            )
        if self._errors:
            message, error = self._errors[0]
            raise ProducerError(message) from error

    def begin_close(self) -> None:
        """Take no more events and try everything once more; wait for nothing. May be called again."""
        self._mutex.run(self._begin_close)

    def _begin_close(self) -> None:
        self.accumulator.closing = True
        self.accumulator.ship_all()
        self.accumulator.room.wake_all()  # they are refused
        self.accumulator.changed.notify_all()
        self._mover.wake()

    def _wait(self, done: Callable[[], bool], timeout_seconds: float | None) -> bool:
        """Wait for something, with the mutex held, and tell whether it is so."""
        deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while not done():
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                return False
            self._clock.wait(self.accumulator.changed, left)
        return True

    def _withdraw(self) -> list[ProducerBatch]:
        """Return the batches that are not being tried, and will not be; the mutex is held.

        They are found among all, not in the queues: an interrupt after this leaves them to the next who asks.
        """
        running = self._schedule.running()
        found = [b for b in self.accumulator.batches if b.outcome is None and b not in running]
        for batch in found:
            if not batch.sealed:
                batch.seal()
        self._schedule.withdraw()
        self.retry_queue.take_all()
        for destination in self._destinations:
            destination.withdraw()
        return found

    def _is_over(self) -> bool:
        """Tell whether all batches have ended and no more will come. The mutex is held."""
        return self.accumulator.closing and not self.accumulator.batches

    def _finish(self) -> None:
        """Let the other threads end and close the targets. The mover does it: no interrupt comes to its thread."""
        self._pool.close()
        self._success.close()
        self._failure.close()
        for thread in self._pool.threads:
            thread.join()
        for target in self._targets:
            try:
                target.close()
            except BaseException as e:  # anybody's code
                say(logging.ERROR, "a target could not be closed", error=e)
                self._errors.append((f"a target could not be closed: {text_of(e)}", e))
        with self._mutex:
            self._finished = True
            self.accumulator.changed.notify_all()
        process_end.ended(self)

    # ── the end of the process ──────────────────────────────────────────────────────────────

    def wait_until_finished(self, timeout_seconds: float | None) -> None:
        """Wait, at most for a time, until the close that was begun is done."""
        self._mutex.run(lambda: self._wait(lambda: self._finished, timeout_seconds))

    def wait_until_told(self, timeout_seconds: float) -> None:
        """Wait, at most for a time, until every batch has ended, callbacks and all."""
        self._mutex.run(lambda: self._wait(lambda: not self.accumulator.batches, timeout_seconds))

    def give_up(self) -> None:
        """Let everything fail that is not stored yet, and say in the log what that is."""

        def take() -> tuple[list[ProducerBatch], list[ProducerBatch]]:
            left = self._withdraw()
            gone = set(left)
            return left, [b for b in self.accumulator.batches if b.outcome is None and b not in gone]

        left, running = self._mutex.run(take)
        doubtful = [b for b in left if b.in_doubt]
        code, doubt = ProducerClosedError.__name__, "the process ended while it was being committed; it may be stored"
        unsent_events = self._fail((b for b in left if not b.in_doubt), code, "the process ended before it was sent")
        unknown_events = self._fail(doubtful, code, "the process ended before it was tried again; it may be stored")
        unknown_events += self._fail(running, code, doubt, running=True)
        what = "everything is stored, but its channels could not be closed before the process ended"
        if events := unsent_events + unknown_events:
            what = (
                f"{events:,} events were not stored before the process ended, and their futures have failed with them; "
                f"{unknown_events:,} of them were being committed, or tried before, and may be stored"
            )
        say(logging.ERROR, "%s: %s", self.name, what)

    def abandon(self) -> None:
        """Let futures have what is known though callbacks are not through, and keep nobody waiting any more."""

        def abandon() -> None:
            for batch in list(self.accumulator.batches):
                batch.settle()
                if batch.result is not None:
                    self.metrics.ended(batch, self._clock.monotonic())
                self.accumulator.release(batch)

        self._mutex.run(abandon)

    def _broken(self, error: BaseException) -> None:
        """Let everything fail, since a thread ends that must not: this one. The producer ends, too."""
        code, message = type(error).__name__, f"a thread of the producer ended: {text_of(error)}"
        with self._mutex:
            self.accumulator.failure = self.accumulator.failure or error
            self.accumulator.closing = True
            self.accumulator.ship_all()
            self._withdraw()
            batches, running = list(self.accumulator.batches), self._schedule.running()
            self._errors.append((f"the producer failed, and what it had not stored with it: {code}: {message}", error))
        say(logging.CRITICAL, "%s", message, error=error)
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
                self._ended(batch)
        finally:
            with self._mutex:
                self.accumulator.batches.clear()  # whatever went wrong above: `close` must end
                self.accumulator.room.wake_all()
                self.accumulator.changed.notify_all()
                self._mover.wake()

    def after_fork(self) -> None:
        """In a forked child, where there are no threads: let the child's copies of the futures know."""
        self._mutex = Mutex()  # the parent's may be taken
        message = "it is the parent process's to send; this is a forked child"
        for batch in list(self.accumulator.batches):
            attempt = Attempt(False, self._clock.time(), ProducerClosedError.__name__, message)
            batch.after_fork(Result(False, reserved_attempts=(attempt,)))
        self.accumulator.batches.clear()
        self.accumulator.held_bytes = 0
        for own in (self._pool, self._success, self._failure):
            own.close()  # if it was one of their threads that forked, it ends there and does nothing
