"""Appends to the log under the commit lock, and applies to the state what was appended."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.repetition import MOST_REPEATS, commit_again
from spillable_stream.engine.requests import Request
from spillable_stream.engine.telemetry import Counters
from spillable_stream.errors import CommitOutcomeUnknownError, StorageError
from spillable_stream.format.file_names import DISK, MEMORY, Tier
from spillable_stream.log.wal import Position

__all__ = ["Appender"]


class Appender:
    """The one way to the log's end. All but `committing`, `commit_alone` and `unasked` are called in `committing`."""

    def __init__(self, log: Log, follower: Follower, counters: Counters) -> None:
        self._log = log
        self._follower = follower
        self._counters = counters

    def committing(self) -> AbstractContextManager[None]:
        """Hold the commit lock, with the logs healed and the state up to date.

        Raises:
            ChannelClosedError: the channel was closed, or its log failed.
            LockTimeoutError: another thread or process holds the lock for too long.
            ReadonlyChannelError: the channel is only looked at.
            TransactionStateError: this thread holds the lock.
        """
        return self._log.hold(self._log.lock_timeout_seconds, self._prepare)

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for work that no call asked for; `Log.unasked` explains it."""
        return self._log.unasked()

    def _prepare(self) -> None:
        """Bring the state up to date, and heal what a holder of the lock that died left; the lock was just acquired."""
        log, follower = self._log, self._follower
        log.require_not_closed()  # that the channel is where it was, the lock has proven
        if not follower.catch_up().is_clean():
            log.heal(follower)
            follower.catch_up()

    def reserve_room(self, tier: Tier, size_bytes: int) -> Position:
        """Return where the next append of a tier goes, with room for ``size_bytes``; its log may roll."""
        follower, before = self._follower, self._follower.applied
        known = follower.positions.memory if tier is MEMORY else follower.positions.disk
        start = self._log.reserve(tier, size_bytes, follower)
        if start.file_id != known.file_id and not follower.is_far:  # a file began, which a log far away does anyway
            if tier is MEMORY and before is not None:
                follower.began_file(before)
            follower.catch_up()
        return start

    def append(self, plan: AppendPlan, start: Position) -> bool:
        """Append what was planned, and apply it.

        Returns:
            Whether it is in the log. If not, another append took its place: nothing of it counts, the state is up
            to date, and the requests must be planned again.

        Raises:
            StorageError: it could not be written; nothing of it counts.
        """
        if not plan.entries:
            return True
        log, follower, tier = self._log, self._follower, plan.tier
        if plan.is_extended:
            log.extend_format()
        if plan.delays is not None:
            plan.delays.write()
        try:
            end = log.append(plan, start, follower)
        except StorageError as e:
            is_settled = not isinstance(e, CommitOutcomeUnknownError) and log.held_position().is_clean()
            if plan.delays is not None and is_settled:
                plan.delays.take_back()
            raise
        if end is None:
            follower.catch_up()
            return False
        follower.apply_own(tier, start, end, plan.entries)
        if tier is DISK:
            self._counters.disk_syncs += 1
            self._counters.disk_bytes += end.offset - start.offset
        return True

    def commit_alone(self, request: Request, repeats_left: int = MOST_REPEATS) -> CommitResult:
        """Do what `append_alone` does, with the commit lock held for that time, and again where it may be repeated.

        Raises what `committing`, `append` and `commit_again` raise.
        """
        try:
            with self.committing():
                return self.append_alone(request)
        except CommitOutcomeUnknownError as e:
            again = partial(self.commit_alone, request)
            return commit_again(request, e, repeats_left, again, self.unasked())

    def append_alone(self, request: Request) -> CommitResult:
        """Append a request to the disk tier at once; for what no user asked for."""
        while True:
            start = self.reserve_room(DISK, request.size_bytes())
            plan = AppendPlan(self._follower.state, DISK, start=start.offset, recovery=self._log.recovery)
            result = request.plan(plan)
            if self.append(plan, start):
                return result
