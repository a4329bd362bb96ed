"""Settles the work of a worker whose function was called: lets it wait, or commits what becomes of its events."""

from __future__ import annotations

from dataclasses import replace

from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.engine import Engine
from spillable_stream.error_text import type_and_text
from spillable_stream.errors import REFUSALS
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log_records import fields, log_of
from spillable_stream.workers.calls import Calls
from spillable_stream.workers.judge import Judge
from spillable_stream.workers.letters import LetterOrigin, dead_letters
from spillable_stream.workers.reporting import one_line
from spillable_stream.workers.shared_state import SharedState
from spillable_stream.workers.transfer import Transfer
from spillable_stream.workers.work import Deferred, Fate, Work, halves

__all__ = ["Settling"]

_log = log_of(__name__)


class Settling:
    """Settles work, in the thread that called the function. Thread-safe.

    Args:
        engine: the channel's engine.
        consumer: of the group.
        transfer: takes events to the dead-letter channel; None without one.
        judge: decides what becomes of events.
        calls: remembers which calls have failed.
        shared: what the worker's threads share.
    """

    def __init__(
        self,
        engine: Engine,
        consumer: Consumer,
        transfer: Transfer | None,
        judge: Judge,
        calls: Calls,
        shared: SharedState,
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._transfer = transfer
        self._judge = judge
        self._calls = calls
        self._shared = shared

    def judge(self, work: Work) -> bool:
        """Set the work's fate, and tell that it has one; else let it wait: another thread may have it by now."""
        try:
            waiting = self._judge.judge(work)
        finally:
            self._calls.judged(work)
        with self._shared.changed:
            if self._judge.is_failure(work.error):
                self._shared.tally.failed_calls += 1
                self._shared.tally.last_error = one_line(work.error)
        is_decided = work.fate is not None
        self._wait(waiting)
        self._calls.say_what_failed()
        return is_decided

    def _wait(self, waiting: list[Deferred]) -> None:
        with self._shared.changed:
            for work, seconds in waiting:
                if work.error is not None:
                    work.error.__traceback__ = None  # it holds the events that the call got
                self._shared.queue.put(work, self._shared.clock() + seconds if seconds else 0.0)

    def settle(self, work: Work, found: list[ReadBatch]) -> None:
        """Commit what is decided; where a channel has no room or no time now, later.

        Args:
            work: events that have a fate.
            found: the events, where they become dead letters.
        """
        try:
            if work.fate is Fate.DEAD and not work.prepared:
                work.prepared = self._store(work, found)
            self._consumer.commit(work.ranges, work.prepared)
        except REFUSALS as e:
            with self._shared.changed:
                self._shared.tally.trouble = str(e)
            self._wait([self._judge.refused(part) for part in self._parts(work)])
            self._calls.failed(work)
            return
        with self._shared.changed:
            if work.is_refused:
                self._shared.tally.trouble = ""
            assert work.fate is not None
            self._calls.settled(work)
            self._shared.tally.settled[work.fate] += work.count
        if work.fate is not Fate.DONE:
            path, why = self._engine.path, type_and_text(work.error)
            about = fields(path, group=self._consumer.group, first_id=work.first_id, last_id=work.last_id)
            _log.warning("%s of %s: %s: %s", work, path, work.fate.value, why, extra=about)

    def _parts(self, work: Work) -> list[Work]:
        """Return refused work as it is tried again: dead letters in halves, since all may be more than ever fit."""
        if work.fate is not Fate.DEAD or work.prepared or work.count == 1:
            return [work]
        return [replace(work, ranges=ranges) for ranges in halves(work.ranges)]

    def _store(self, work: Work, found: list[ReadBatch]) -> int:
        """Store events in the dead-letter channel, and return the take transaction that takes them from this one."""
        engine, transfer = self._engine, self._transfer
        assert transfer is not None
        origin = LetterOrigin(str(engine.path), engine.channel, self._consumer.group, work.attempts, work.error)
        schema = engine.schemas()[-1] if engine.is_typed() else None
        return transfer.store(work.ranges, dead_letters(found, origin, schema))
