"""A worker: calls a function with a group's events until it is stopped.

Each thread gets its own work: events that wait and are due, or else the next ones of the group. Work
that failed waits aside, as IDs only, so that the group moves on; it stays claimed meanwhile.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from spillable_stream.arguments import flag, seconds
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.channel.taken_events import events_from_batch, table_from_batches
from spillable_stream.counted import counted
from spillable_stream.engine.tier_ports import IDLE_SECONDS
from spillable_stream.error_text import text_of
from spillable_stream.errors import DataLossError, SpillableError, StorageError, WorkerError
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log_records import RecordFields, Seldom, fields, log_of
from spillable_stream.quantities import Duration
from spillable_stream.termination import calling_on_sigterm
from spillable_stream.workers.calls import Calls
from spillable_stream.workers.config import WorkerConfig, function_name
from spillable_stream.workers.judge import Judge
from spillable_stream.workers.reporting import Reporting
from spillable_stream.workers.settling import Settling, Tally
from spillable_stream.workers.transfer import Transfer, transfer_name
from spillable_stream.workers.unfinished import Unfinished
from spillable_stream.workers.work import Fate, Work, WorkQueue
from spillable_stream.workers.worker_threads import WorkerThread, WorkerThreads

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["Worker"]

_log = log_of(__name__)

_POLL_SECONDS = 0.05
# Beyond so many a worker claims no more, so that an outage of what it calls does not scatter a group.
_WAITING_EVENTS = 1000
_MOST_LEFT = 10
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

    def __init__(
        self,
        channel: Channel,
        group: str,
        function: Callable[[Any], object],
        config: WorkerConfig,
        dead_letter: Channel | None,
        *,
        owns_dead_letter: bool = False,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.group: str = group
        self._channel = channel
        self._engine = channel.engine()
        self._function = function
        self._config = config
        self._dead_letter = dead_letter
        self._owns_dead_letter = owns_dead_letter
        self._clock = clock
        self._judging = Judge(function, str(channel.path), config, dead_letter is not None, rng)
        self._typed = channel.typed
        self._consumer: Consumer | None = None
        self._changed = threading.Condition()
        self._calls: Calls | None = None
        self._settling: Settling | None = None
        self._looking = threading.Lock()  # held by the one thread that claims, or waits for events
        self._threads = WorkerThreads(self._changed, f"worker-{group}")
        self._warning = Seldom()  # of threads that the process can't have
        self._queue = WorkQueue()
        self._state = "new"
        self._stopping = False
        self._until_empty = False
        self._error: BaseException | None = None
        self._tally = Tally()
        self._reporting: Reporting | None = None

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
            OptionError: an argument is not of its type.
            WorkerError: it ran before; or a call returned a coroutine or a generator, which has done nothing.
            WorkerFailedError: an event kept failing, and there is no dead-letter channel.
            WorkerTimeoutError: too many calls have not returned.
            StorageError: the process can have no thread for it.
            SpillableError: a channel failed. In any case nothing is lost: what was not committed is in the queue.
        """
        run = self.begun(until_empty=until_empty, stop_timeout_seconds=stop_timeout_seconds)
        with calling_on_sigterm(self.stop):
            run()

    def begun(self, *, until_empty: bool, stop_timeout_seconds: Duration) -> Callable[[], None]:
        """Return what works, in whatever thread calls it: the rest of `run`, which explains it and its arguments.

        Raises:
            OptionError: an argument is not of its type.
            WorkerError: it ran before.
        """
        until_empty = flag("until_empty", until_empty)
        stop_seconds = seconds("stop_timeout_seconds", stop_timeout_seconds)
        with self._changed:
            if self._state != "new":
                raise WorkerError(f"a worker runs once, and that of the group {self.group!r} did; create another one")
            self._state, self._until_empty = "running", until_empty
        return partial(self._run, stop_seconds)

    def not_begun(self) -> None:
        """Be as before `begun`: there is no thread for what that returned."""
        with self._changed:
            self._state = "new"

    def _run(self, stop_seconds: float) -> None:
        with ExitStack() as stack:
            stack.callback(self._close)
            try:
                self._own()
                self._watch()
            except BaseException as e:
                self._error = self._error or e
                raise
            finally:
                self._finish(stop_seconds)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Let `run` end, from any thread or a signal handler; returns at once."""
        self._stopping = True

    def stats(self) -> WorkerStats:
        """Return what the worker does, and did."""
        with self._changed:
            tally = self._tally
            trouble = text_of(self._error) if self._error is not None else tally.trouble
            return WorkerStats(
                group=self.group,
                state="stopping" if self._state == "running" and self._stopping else self._state,
                is_healthy=self._state in ("new", "running") and not trouble and not self._threads.left,
                done_events=tally.settled[Fate.DONE],
                dropped_events=tally.settled[Fate.DROPPED],
                dead_letter_events=tally.settled[Fate.DEAD],
                failed_calls=tally.failed_calls,
                waiting_events=self._queue.events,
                busy_threads=self._threads.busy(),
                left_calls=len(self._threads.left),
                trouble=trouble,
                last_error=tally.last_error,
            )

    def close(self) -> None:
        """Stop, and close the dead-letter channel that was opened for a worker which never ran."""
        self.stop()
        with self._changed:
            if self._state != "new":
                return
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def leave(self) -> None:
        """In a forked child, which has no thread of it: leave the group to the parent."""
        if self._reporting is not None:
            self._reporting.leave()
        if self._consumer is not None:
            self._consumer.leave()

    # ── its life ────────────────────────────────────────────────────────────────────────────

    def _own(self) -> None:
        self._engine = self._channel.engine()  # in a child that was forked since, its own
        most = _WAITING_EVENTS + _HANDS * self._config.threads * (self._config.batch_size or 1)
        note = Unfinished(most, [], []).note()
        self._consumer = consumer = Consumer(self._engine, self.group, resume=self._dead_letter is not None, note=note)
        about = fields(self._channel.path, group=self.group)
        self._calls = Calls(self._changed, most, consumer.write_note, about)
        self._calls.take_over(consumer.former_owner, consumer.untaken)
        transfer = None
        if self._dead_letter is not None:
            transfer = Transfer(consumer, self._dead_letter, transfer_name("worker", self._channel.uuid, self.group))
        self._settling = Settling(
            self._channel, consumer, transfer, self._judging, self._calls, self._queue, self._tally, self._changed,
            self._clock,
        )  # fmt: skip
        self._reporting = Reporting(self._engine.worker_statuses.open(self.group), self.stats)

    def _calls_of_it(self) -> Calls:
        assert self._calls is not None
        return self._calls

    def _watch(self) -> None:
        """Start the threads, wait until there is a reason to end, and replace threads whose calls don't return."""
        assert self._reporting is not None
        self._threads.start(self._run_thread)  # one at least: it does what others can't be started for
        missing = self._start_threads(self._config.threads - 1)
        while True:
            self._reporting.look()
            with self._changed:
                if self._stopping or not self._threads.at_work:
                    return
                self._changed.wait(_POLL_SECONDS)
            missing = self._start_threads(missing + self._leave_late_calls())

    def _start_threads(self, number: int) -> int:
        """Start threads, and return how many the process can't have yet.

        Raises:
            StorageError: it can have none, and all others are left behind in calls that don't return.
        """
        for started in range(number):
            try:
                self._threads.start(self._run_thread)
            except StorageError as e:
                with self._changed:
                    if not (self._threads.at_work or self._stopping or self._is_over()):
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
        with self._changed:
            late, left = self._threads.late(self._clock()), self._threads.left
            for thread in late:
                work = self._leave(thread)
                work.error, work.is_left = self._judging.late(work), True
                self._queue.put(work)
            if len(left) >= _MOST_LEFT and self._error is None:
                self._error, self._stopping = self._judging.too_many_late(len(left)), True
        return len(late) if not self._stopping else 0

    def _leave(self, thread: WorkerThread) -> Work:
        work = self._threads.leave(thread)
        self._calls_of_it().end(work)
        return work

    def _finish(self, timeout_seconds: float) -> None:
        """Let the calls under way end, and leave those that take too long; what has ended is settled and counted."""
        self._stopping = True
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while self._threads.at_work and time.monotonic() < deadline:
                if self._reporting is not None:
                    self._reporting.look()
                self._changed.wait(_POLL_SECONDS)
            while self._threads.leave_idle():
                if not (late := self._threads.late(math.inf)):
                    self._changed.wait(_POLL_SECONDS)
                for thread in late:
                    self._leave_at_stop(thread, timeout_seconds)

    def _leave_at_stop(self, thread: WorkerThread, timeout_seconds: float) -> None:
        work = self._leave(thread)
        _log.warning(
            "a call of %s with %s of %s did not end within the %g s of the stop; they are back in the queue",
            function_name(self._function), work, self._channel.path, timeout_seconds,
            extra=self._about(work) | fields(seconds=timeout_seconds),
        )  # fmt: skip

    def _close(self) -> None:
        try:
            with self._changed:
                self._state = "ended" if self._error is None else "failed"
            if self._reporting is not None:  # while the group is owned: the next worker's is the same file
                self._reporting.close()
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
        if self._consumer is not None:
            self._consumer.leave_note(self._calls.last_note() if self._calls is not None else "")
            self._consumer.close()

    # ── a thread ────────────────────────────────────────────────────────────────────────────

    def _run_thread(self, thread: WorkerThread) -> None:
        try:
            while self._next(thread):
                self._work(thread)
        except BaseException as e:
            with self._changed:
                if not thread.is_left and self._error is None:
                    self._error, self._stopping = e, True

    def _next(self, thread: WorkerThread) -> bool:
        """Get the thread its next work; tell whether there is any."""
        while True:
            with self._changed:
                thread.work = None
                if self._stopping or thread.is_left:
                    return False
                thread.work = self._queue.pop_due(self._clock())
                if thread.work is not None:
                    return True
                if self._queue.events >= _WAITING_EVENTS:
                    self._changed.wait(_POLL_SECONDS)
                    continue
            if self._looking.acquire(timeout=_POLL_SECONDS):
                try:
                    if self._claim(thread):
                        return True
                    if self._is_over():
                        return False
                    self._wait_for_events()
                finally:
                    self._looking.release()

    def _claim(self, thread: WorkerThread) -> bool:
        assert self._consumer is not None
        ranges = self._consumer.claim(self._config.batch_size or 1)
        with self._changed:
            if not ranges or thread.is_left:
                return False
            for work in self._calls_of_it().divide(ranges):
                if (waiting := self._judging.begun(work)) is None and thread.work is None:
                    thread.work = work
                else:
                    self._queue.put(work, self._clock() + waiting.seconds if waiting else 0.0)
            return thread.work is not None

    def _is_over(self) -> bool:
        """Tell whether nothing is left to do, for a worker that runs until then; nothing can be claimed now."""
        with self._changed:
            return self._until_empty and not len(self._queue) and not self._threads.busy()

    def _wait_for_events(self) -> None:
        consumer = self._consumer
        assert consumer is not None

        def is_due() -> bool:
            with self._changed:
                due = self._queue.next_due()
            return self._stopping or (due is not None and due <= self._clock()) or self._is_over()

        self._engine.checkpointing.give_back_when_idle()
        self._engine.wait_for(lambda _: is_due() or consumer.available(), IDLE_SECONDS)

    def _work(self, thread: WorkerThread) -> None:
        work, settling = thread.work, self._settling
        assert work is not None and settling is not None
        found: list[ReadBatch] = []
        if work.fate is None or (work.fate is Fate.DEAD and not work.prepared):
            found = self._read(work)
            if not found:
                return
        if work.fate is None:
            if not work.is_left and not self._call(thread, work, found):
                return
            work.is_left = False
            if not settling.judge(work):
                return
        settling.settle(work, found)

    def _read(self, work: Work) -> list[ReadBatch]:
        """Return the events; none if they have expired meanwhile."""
        consumer = self._consumer
        assert consumer is not None
        try:
            return consumer.read(work.ranges)
        except DataLossError:
            if not consumer.is_taken(*work.ranges[0]):
                raise
            consumer.release(work.ranges)
            with self._changed:
                self._calls_of_it().settled(work)
            return []

    def _call(self, thread: WorkerThread, work: Work, found: list[ReadBatch]) -> bool:
        """Call the function, and note its error; tell whether this thread still has the work."""
        events, calls = self._events(found), self._calls_of_it()
        if not calls.begin(work, lambda: not (thread.is_left or self._stopping)):
            return False
        thread.deadline = math.inf if self._config.timeout is None else self._clock() + self._config.timeout
        error: BaseException | None = None
        returned = None
        try:
            returned = self._function(events)
        except Exception as e:
            error = e
        with self._changed:
            if thread.is_left:
                return False
            thread.deadline = None
            calls.end(work)
        if isinstance(returned, (AsyncGeneratorType, CoroutineType, GeneratorType)):
            if not isinstance(returned, AsyncGeneratorType):
                returned.close()
            raise WorkerError(
                f"{function_name(self._function)} returned a {type(returned).__name__}, so it has done nothing: "
                "let it do its work and return, or give a coroutine function to async_worker"
            )
        work.error = error
        if error is not None:
            calls.failed(work)
        return True

    def _events(self, found: list[ReadBatch]) -> Any:
        if self._typed:
            return table_from_batches(found, self._engine.schemas()[-1])
        events = events_from_batch(found[0])
        for read in found[1:]:
            events += events_from_batch(read)
        return events if self._config.batch_size else events[0]

    def _about(self, work: Work) -> RecordFields:
        return fields(self._channel.path, group=self.group, first_id=work.first_id, last_id=work.last_id)
