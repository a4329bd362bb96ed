"""A worker: calls a function with a group's events until it is stopped. Its threads do that in `Rounds`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from spillable_stream.arguments import flag, seconds
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.counted import counted
from spillable_stream.engine.active_calls import LONG_SECONDS
from spillable_stream.error_text import text_of
from spillable_stream.errors import LockTimeoutError, OptionError, SpillableError, StorageError, WorkerError
from spillable_stream.interruptible import Begun, begun_or_made
from spillable_stream.log_records import RecordFields, Seldom, fields, log_of
from spillable_stream.quantities import Duration
from spillable_stream.termination import calling_on_sigterm
from spillable_stream.workers.calls import Calls
from spillable_stream.workers.config import WorkerConfig, function_name
from spillable_stream.workers.handle import ChannelHandle
from spillable_stream.workers.judge import Judge
from spillable_stream.workers.reporting import Reporting
from spillable_stream.workers.rounds import POLL_SECONDS, WAITING_EVENTS, Rounds
from spillable_stream.workers.settling import Settling
from spillable_stream.workers.shared_state import SharedState
from spillable_stream.workers.transfer import Transfer, transfer_name
from spillable_stream.workers.unfinished import Unfinished
from spillable_stream.workers.work import Fate, Work
from spillable_stream.workers.worker_threads import WorkerThread

__all__ = ["Worker"]

_log = log_of(__name__)

_MOST_LEFT = 10
_CANCEL_SECONDS = 5.0  # for calls that were cancelled to end
_HANDS = 2  # each thread has work in its call, and may bring as much back to that which waits


class Worker:
    """Calls a function with the events of a group, until it is stopped. Created by `Channel.worker`, which explains it.

    Args:
        channel: the channel.
        group: the group, which it owns while it runs.
        function: what to call.
        config: how.
        dead_letter: the dead-letter channel; None if there is none.
        owns_dead_letter: whether to close that at the end.
        clock: the time, in seconds, for tests.
        rng: the jitter of the backoff, from 0 to 1, for tests.
    """

    def __new__(cls, *given: object, **_: object) -> Self:
        """Refuse a call that is not `Channel.worker`'s."""
        if not any(isinstance(value, WorkerConfig) for value in given):
            raise OptionError("a worker is created by channel.worker(group, function): call that, and not Worker(…)")
        return super().__new__(cls)

    def __init__(
        self,
        channel: ChannelHandle,
        group: str,
        function: Callable[[Any], object],
        config: WorkerConfig,
        dead_letter: ChannelHandle | None,
        *,
        owns_dead_letter: bool = False,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.group: str = group
        self._channel = channel
        self._function = function
        self._config = config
        self._dead_letter = dead_letter
        self._owns_dead_letter = owns_dead_letter
        self._judge = Judge(function, str(channel.path), config, dead_letter is not None, rng)
        self._shared = SharedState(group, clock)
        self._state = "new"
        self._has_run = False  # `close` gives up what that left, after an interrupt or an error
        self._warning = Seldom()  # of threads that the process can't have
        self._consumer: Consumer | None = None
        self._calls: Calls | None = None
        self._reporting: Reporting | None = None
        self._last_words: Begun[None] | None = None

    def __repr__(self) -> str:
        return f"Worker({self.group!r}, {self._state})"

    # ── use ─────────────────────────────────────────────────────────────────────────────────

    def run(self, *, until_empty: bool = False, stop_timeout_seconds: Duration = 30.0) -> None:
        """Work until `stop` is called, or the process gets SIGTERM while this is the main thread.

        Calls that are under way then may end. Those that have not ended in time are left behind: nothing of them is
        committed, and their events are back in the queue. It runs once.

        Args:
            until_empty: whether to return once the group has nothing more to take and nothing waits to be tried again;
                delayed events that are not due are no reason to stay.
            stop_timeout_seconds: how long to wait for the calls under way.

        Raises:
            ChannelClosedError: the channel was closed.
            GroupOwnedError: another live consumer owns the group.
            LockTimeoutError: it was stopped, but a commit, or the writing down of how it ended, does not end: the
                storage may not answer. `close` gives the group up once that has ended.
            OptionError: an argument is not of its type.
            WorkerError: it ran before, or was closed; or a call returned a coroutine or a generator, which has done
                nothing.
            WorkerFailedError: an event kept failing, and there is no dead-letter channel.
            WorkerTimeoutError: too many calls have not returned.
            StorageError: the process can have no thread for it.
            SpillableError: a channel failed. In any case nothing is lost: what was not committed is in the queue.
        """
        run = self.begun(until_empty=until_empty, stop_timeout_seconds=stop_timeout_seconds)
        with calling_on_sigterm(self.stop):
            run()

    def begun(
        self, *, until_empty: bool, stop_timeout_seconds: Duration, cancel: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Return what works, in whatever thread calls it: the rest of `run`, which explains it and its arguments.

        Args:
            until_empty: as in `run`.
            stop_timeout_seconds: likewise.
            cancel: ends the calls under way that outlast a stop, while their events are nobody else's yet; None where
                nothing can.

        Raises:
            OptionError: an argument is not of its type.
            WorkerError: it ran before, or was closed.
        """
        until_empty = flag("until_empty", until_empty)
        stop_seconds = seconds("stop_timeout_seconds", stop_timeout_seconds)
        with self._shared.changed:
            if self._state != "new":
                raise WorkerError(
                    f"a worker runs once, and this one of {self.group!r} has run or was closed; create another one"
                )
            self._state, self._shared.until_empty = "running", until_empty
        return partial(self._run, stop_seconds, cancel)

    def not_begun(self) -> None:
        """Be as before `begun`: there is no thread for what that returned."""
        with self._shared.changed:
            self._state = "new"

    def _run(self, stop_seconds: float, cancel: Callable[[], None] | None) -> None:
        try:
            try:
                self._work(stop_seconds, cancel)
            finally:
                self._close()
        finally:
            self._has_run = True
        if self._shared.error is not None:
            raise self._shared.error

    def _work(self, stop_seconds: float, cancel: Callable[[], None] | None) -> None:
        try:
            self._watch(self._own())
        except BaseException as e:
            self._shared.error = self._shared.error or e
            raise
        finally:
            self._finish(stop_seconds, cancel)

    def stop(self) -> None:
        """Let `run` end, from any thread or a signal handler; returns at once."""
        self._shared.is_stopping = True

    def stats(self) -> WorkerStats:
        """Return what the worker does, and did."""
        shared = self._shared
        with shared.changed:
            tally, threads = shared.tally, shared.threads
            trouble = text_of(shared.error) if shared.error is not None else tally.trouble
            return WorkerStats(
                group=self.group,
                state="stopping" if self._state == "running" and shared.is_stopping else self._state,
                is_healthy=self._state in ("new", "running") and not trouble and not threads.left,
                done_events=tally.settled[Fate.DONE],
                dropped_events=tally.settled[Fate.DROPPED],
                dead_letter_events=tally.settled[Fate.DEAD],
                failed_calls=tally.failed_calls,
                waiting_events=shared.queue.events,
                busy_threads=threads.busy(),
                left_calls=len(threads.left),
                trouble=trouble,
                last_error=tally.last_error,
            )

    def close(self) -> None:
        """Stop; close the dead-letter channel of a worker which never ran, and give up what its end could not.

        Raises:
            LockTimeoutError: `run` raised it, and what it waited for has still not ended.
        """
        self.stop()
        with self._shared.changed:
            if self._state != "new" and not self._has_run:
                return
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._is_held_up():  # else a close would wait for what `run` has waited for
            self.close()

    def _is_held_up(self) -> bool:
        """Tell whether storage that does not answer keeps the group from being given up."""
        if (consumer := self._consumer) is None:
            return False
        return bool(consumer.active_calls.threads) or not (self._last_words is None or self._last_words.has_ended)

    def leave(self) -> None:
        """In a forked child, which has no thread of it: leave the group to the parent."""
        if self._reporting is not None:
            self._reporting.leave()
        if self._consumer is not None:
            self._consumer.leave()

    # ── its life ────────────────────────────────────────────────────────────────────────────

    def _own(self) -> Rounds:
        """Own the group, and return what the threads do."""
        engine = self._channel.engine()  # in a child that was forked since, its own
        most = WAITING_EVENTS + _HANDS * self._config.threads * (self._config.batch_size or 1)
        note = Unfinished(most, [], []).note()
        self._consumer = consumer = Consumer(engine, self.group, resume=self._dead_letter is not None, note=note)
        about, shared = fields(self._channel.path, group=self.group), self._shared
        self._calls = calls = Calls(shared.changed, most, consumer.write_note, about)
        calls.take_over(consumer.former_owner, consumer.untaken)
        transfer = None
        if self._dead_letter is not None:
            transfer = Transfer(consumer, self._dead_letter, transfer_name("worker", engine.channel, self.group))
        settling = Settling(engine, consumer, transfer, self._judge, calls, shared)
        self._reporting = Reporting(engine.worker_statuses.open(self.group), self.stats)
        return Rounds(engine, consumer, self._function, self._config, self._judge, calls, settling, shared)

    def _watch(self, rounds: Rounds) -> None:
        """Start the threads, wait until there is a reason to end, and replace threads whose calls don't return."""
        assert self._reporting is not None
        shared = self._shared
        shared.threads.start(rounds.run)  # one at least: it does what others can't be started for
        missing = self._start_threads(rounds, self._config.threads - 1)
        while True:
            self._reporting.look()
            with shared.changed:
                if shared.is_stopping or not shared.threads.at_work:
                    return
                shared.changed.wait(POLL_SECONDS)
            missing = self._start_threads(rounds, missing + self._leave_late_calls())

    def _start_threads(self, rounds: Rounds, number: int) -> int:
        """Start threads, and return how many the process can't have yet.

        Raises:
            StorageError: it can have none, and all others are left behind in calls that don't return.
        """
        shared = self._shared
        for started in range(number):
            try:
                shared.threads.start(rounds.run)
            except StorageError as e:
                with shared.changed:
                    if not (shared.threads.at_work or shared.is_stopping or shared.is_over()):
                        raise
                if self._warning.is_due():
                    _log.warning(
                        "a worker of %s does without %s for now: %s", self._channel.path,
                        counted(number - started, "thread"), e, extra=fields(self._channel.path, group=self.group),
                    )  # fmt: skip
                return number - started
        return 0

    def _leave_late_calls(self) -> int:
        """Leave the threads whose calls have taken too long, and return how many they are: others get their work."""
        shared = self._shared
        with shared.changed:
            late, left = shared.threads.late(shared.clock()), shared.threads.left
            for thread in late:
                work = self._leave(thread)
                work.error, work.is_left = self._judge.late(work), True
                shared.queue.put(work)
            if len(left) >= _MOST_LEFT:
                shared.fail(self._judge.too_many_late(len(left)))
        return len(late) if not shared.is_stopping else 0

    def _leave(self, thread: WorkerThread) -> Work:
        assert self._calls is not None
        work = self._shared.threads.leave(thread)
        self._calls.end(work)
        return work

    def _finish(self, timeout_seconds: float, cancel: Callable[[], None] | None) -> None:
        """Let the calls under way end, and leave those that take too long; what has ended is settled and counted.

        A commit that is under way can't be left. Where one takes very long, the close of the consumer says so.
        """
        shared = self._shared
        shared.is_stopping = True
        with shared.changed:
            self._wait_for_threads(timeout_seconds)
            if cancel is not None and shared.threads.at_work:
                cancel()
                self._wait_for_threads(_CANCEL_SECONDS)
            deadline = time.monotonic() + LONG_SECONDS
            while shared.threads.leave_idle() and time.monotonic() < deadline:
                if not (late := shared.threads.late(math.inf)):
                    shared.changed.wait(POLL_SECONDS)
                for thread in late:
                    self._leave_at_stop(thread, timeout_seconds)

    def _wait_for_threads(self, timeout_seconds: float) -> None:
        """Wait until the threads have ended, at most for a time; the mutex is held."""
        shared, deadline = self._shared, time.monotonic() + timeout_seconds
        while shared.threads.at_work and time.monotonic() < deadline:
            if self._reporting is not None:
                self._reporting.look()
            shared.changed.wait(POLL_SECONDS)

    def _leave_at_stop(self, thread: WorkerThread, timeout_seconds: float) -> None:
        work = self._leave(thread)
        _log.warning(
            "a call of %s with %s of %s did not end within the %g s of the stop; they are back in the queue",
            function_name(self._function), work, self._channel.path, timeout_seconds,
            extra=self._about(work) | fields(seconds=timeout_seconds),
        )  # fmt: skip

    def _close(self) -> None:
        try:
            with self._shared.changed:
                self._state = "ended" if self._shared.error is None else "failed"
            self._give_up()
        except SpillableError:
            raise
        except BaseException:  # of a signal handler
            self._give_up()  # else nobody could own the group while somebody has this object
            raise
        finally:
            if self._dead_letter is not None and self._owns_dead_letter:
                self._dead_letter.close()

    def _give_up(self) -> None:
        """Give the group up, once it is written down how the worker has ended."""
        if (consumer := self._consumer) is not None:
            self._last_words = self._last_words or begun_or_made(partial(self._say_last, consumer))
            if not self._last_words.ends_within(LONG_SECONDS):
                raise LockTimeoutError(
                    f"a worker of the group {self.group!r} of {self._channel.path} has waited {LONG_SECONDS:g} s to "
                    "write down how it ended; its storage may be slow, or not answer. Close it once that does"
                )
            consumer.close()
            self._consumer = None

    def _say_last(self, consumer: Consumer) -> None:
        """Write down how the worker ended while the group is owned: the next worker's note and status are the same."""
        consumer.leave_note(self._calls.last_note() if self._calls is not None else "")
        if self._reporting is not None:
            self._reporting.close()

    def _about(self, work: Work) -> RecordFields:
        return fields(self._channel.path, group=self.group, first_id=work.first_id, last_id=work.last_id)
