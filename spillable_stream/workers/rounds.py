"""What each thread of a worker does again and again: it gets work, calls the function, and lets the events be settled.

Each thread gets its own work: events that wait and are due, or else the next ones of the group. Work
that failed waits aside, as IDs only, so that the group moves on; it stays claimed meanwhile.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.taken_events import events_from_batch, table_from_batches
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.tier_ports import IDLE_SECONDS
from spillable_stream.errors import DataLossError, WorkerError
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.workers.calls import Calls
from spillable_stream.workers.config import WorkerConfig, function_name
from spillable_stream.workers.judge import Judge
from spillable_stream.workers.settling import Settling
from spillable_stream.workers.shared_state import SharedState
from spillable_stream.workers.work import Fate, Work
from spillable_stream.workers.worker_threads import WorkerThread

__all__ = ["POLL_SECONDS", "WAITING_EVENTS", "Rounds"]

POLL_SECONDS = 0.05
# Beyond so many a worker claims no more, so that an outage of what it calls does not scatter a group.
WAITING_EVENTS = 1000


class Rounds:
    """The rounds of a worker's threads.

    Args:
        engine: the channel's engine.
        consumer: of the group.
        function: what to call.
        config: how.
        judge: decides what becomes of events.
        calls: lets calls begin.
        settling: commits what was decided.
        shared: what the worker's threads share.
    """

    def __init__(
        self,
        engine: Engine,
        consumer: Consumer,
        function: Callable[[Any], object],
        config: WorkerConfig,
        judge: Judge,
        calls: Calls,
        settling: Settling,
        shared: SharedState,
    ) -> None:
        self._engine = engine
        self._typed = engine.is_typed()
        self._consumer = consumer
        self._function = function
        self._config = config
        self._judge = judge
        self._calls = calls
        self._settling = settling
        self._shared = shared
        self._looking = threading.Lock()  # held by the one thread that claims, or waits for events

    def run(self, thread: WorkerThread) -> None:
        """Do the rounds of a thread, in it, until the worker ends, or nobody waits for the thread any more."""
        try:
            while self._next(thread):
                self._work(thread)
        except BaseException as e:
            with self._shared.changed:
                if not thread.is_left:
                    self._shared.fail(e)

    # ── what is next ────────────────────────────────────────────────────────────────────────

    def _next(self, thread: WorkerThread) -> bool:
        """Get the thread its next work; tell whether there is any."""
        shared = self._shared
        while True:
            with shared.changed:
                thread.work = None
                if shared.is_stopping or thread.is_left:
                    return False
                thread.work = shared.queue.pop_due(shared.clock())
                if thread.work is not None:
                    return True
                if shared.queue.events >= WAITING_EVENTS:
                    shared.changed.wait(POLL_SECONDS)
                    continue
            if self._looking.acquire(timeout=POLL_SECONDS):
                try:
                    if self._claim(thread):
                        return True
                    if shared.is_over():
                        return False
                    self._wait_for_events()
                finally:
                    self._looking.release()

    def _claim(self, thread: WorkerThread) -> bool:
        ranges, shared = self._consumer.claim(self._config.batch_size or 1), self._shared
        with shared.changed:
            if not ranges or thread.is_left:
                return False
            for work in self._calls.divide(ranges):
                if (waiting := self._judge.begun(work)) is None and thread.work is None:
                    thread.work = work
                else:
                    shared.queue.put(work, shared.clock() + waiting.seconds if waiting else 0.0)
            return thread.work is not None

    def _wait_for_events(self) -> None:
        consumer, shared = self._consumer, self._shared

        def is_due() -> bool:
            with shared.changed:
                due = shared.queue.next_due()
            return shared.is_stopping or (due is not None and due <= shared.clock()) or shared.is_over()

        self._engine.checkpointing.give_back_when_idle()
        self._engine.wait_for(lambda _: is_due() or consumer.available(), IDLE_SECONDS)

    # ── work ────────────────────────────────────────────────────────────────────────────────

    def _work(self, thread: WorkerThread) -> None:
        work, settling = thread.work, self._settling
        assert work is not None
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
        """Return the events; none if some have left the channel meanwhile: the others are claimed again."""
        consumer = self._consumer
        try:
            return consumer.read(work.ranges)
        except DataLossError:
            if not consumer.has_missed(work.ranges):
                raise
            consumer.release(work.ranges)
            with self._shared.changed:
                self._calls.settled(work)
            return []

    def _call(self, thread: WorkerThread, work: Work, found: list[ReadBatch]) -> bool:
        """Call the function, and note its error; tell whether this thread still has the work."""
        events, calls, shared, timeout = self._events(found), self._calls, self._shared, self._config.timeout
        if not calls.begin(work, lambda: not (thread.is_left or shared.is_stopping)):
            return False
        thread.deadline = math.inf if timeout is None else shared.clock() + timeout
        error: BaseException | None = None
        returned = None
        try:
            returned = self._function(events)
        except Exception as e:
            error = e
        with shared.changed:
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
