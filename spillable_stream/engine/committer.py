"""Commits requests: picks a tier for each, groups it with concurrent commits, and waits for room."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from threading import get_ident
from typing import NoReturn

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.full_channel import FullChannel
from spillable_stream.engine.group_commit import GroupCommit, Ticket
from spillable_stream.engine.group_owners import GroupOwners
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.put_request import MemoryFullError, NoRoomYetError, Put
from spillable_stream.engine.repetition import MOST_REPEATS, commit_again
from spillable_stream.engine.requests import Request
from spillable_stream.engine.telemetry import Counters
from spillable_stream.engine.tier_ports import MemoryPort, MovingPort, RoomPort, StagedPort
from spillable_stream.errors import (
    ChannelClosedError,
    ChannelFullError,
    CommitOutcomeUnknownError,
    DiskSpaceError,
    SpillableError,
    StorageError,
)
from spillable_stream.format.file_names import DISK, MEMORY, Tier
from spillable_stream.format.head_page import CommitPoint

__all__ = ["Committer"]

_FULL_POLL_SECONDS = 0.01
_SIZE_BYTES = attrgetter("size_bytes")


class Committer:
    """Commits the requests of one process. Thread-safe.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        memory: its memory tier.
        moving: moves taken events out of a put's way.
        room: gives disk space back.
        staged: proves that what a put was staged in is there.
        owners: the owners of the groups, for the error of a put that finds no room (`FullChannel`).
        active_calls: the calls that are under way in this process.
        counters: what the handle counts.

    Attributes:
        group_commit: the requests that wait.
        deliver: called after a commit while delayed events wait; the engine sets it.
        when_full: called when a put finds no room, before it waits; the engine sets it.
        poll_seconds: how often a put that waits for room checks whether anybody has committed anything.
    """

    def __init__(
        self,
        log: Log,
        follower: Follower,
        appender: Appender,
        memory: MemoryPort,
        moving: MovingPort,
        room: RoomPort,
        staged: StagedPort,
        owners: GroupOwners,
        active_calls: ActiveCalls,
        counters: Counters,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._memory = memory
        self._moving = moving
        self._room = room
        self._staged = staged
        self._active_calls = active_calls
        self._counters = counters
        self._full = FullChannel(log.path, follower, memory, owners)
        self.group_commit: GroupCommit = GroupCommit(self.commit_group)
        self.deliver: Callable[[], bool] = lambda: False
        self.when_full: Callable[[], None] = lambda: None
        self.poll_seconds: float = _FULL_POLL_SECONDS

    def commit(
        self, request: Request, keep_alive_seconds: float = 0.0, waited_seconds: float | None = None
    ) -> CommitResult:
        """Commit a request, in the tier that it belongs to, and return what it got.

        Args:
            request: what to do.
            keep_alive_seconds: how long to wait for room.
            waited_seconds: how long of it a put has waited elsewhere, where it will wait on; None to wait here.

        Raises:
            PutTooLargeError: there would be no room in the empty channel.
            ChannelFullError: no room within ``keep_alive_seconds``.
            NoRoomYetError: none now, for a put that waits elsewhere.
            DiskSpaceError: ``minimumRequiredSpace`` is reached, or the disk is full.
            StorageError: the disk refused; nothing was committed.
            ChannelClosedError: the handle was closed, or is being closed.
            TransactionStateError: this thread is inside of another commit, or looks at the channel.
        """
        active_calls, me = self._active_calls, get_ident()
        snapshot = self._follower.snapshot
        if me in active_calls.threads or (snapshot.is_held() and snapshot.is_mine()):  # a call less for most
            active_calls.refuse("a commit")
        active_calls.threads[me] = "a commit"
        try:
            return self._commit(request, keep_alive_seconds, waited_seconds)
        except SpillableError:
            raise
        except BaseException:
            active_calls.let_go()
            raise
        finally:
            del active_calls.threads[me]

    def _commit(
        self,
        request: Request,
        keep_alive_seconds: float,
        waited_seconds: float | None,
        repeats_left: int = MOST_REPEATS,
    ) -> CommitResult:
        active_calls, gave_back = self._active_calls, False
        began = time.monotonic() - (waited_seconds or 0.0)
        spill_at = began + self._follower.state.options.overflow_timeout
        full_at = began + keep_alive_seconds
        if isinstance(request, Put) and request.segments:
            request.segments = [self._staged.found(s) for s in request.segments]
        while True:
            if active_calls.ended:
                self._refuse_at_the_end()
            before = self._follower.applied  # not later than what the request will find
            try:
                done = self.group_commit.submit(request)
            except CommitOutcomeUnknownError as e:
                again = partial(self._commit, request, keep_alive_seconds, waited_seconds)
                return commit_again(request, e, repeats_left, again, self._log.unasked())
            except DiskSpaceError:
                if gave_back or (isinstance(request, Put) and request.not_staged):
                    raise
                self._room.make_within_a_commit()  # or another thread just did
                gave_back = True
                continue
            except MemoryFullError:
                assert isinstance(request, Put)
                request.may_spill = time.monotonic() >= spill_at
                full_at, deadline = max(full_at, spill_at + keep_alive_seconds), spill_at  # then it is the disk's turn
            except ChannelFullError as e:
                assert isinstance(request, Put)
                self.when_full()
                self._full.require_time(e, request, began, full_at)
                deadline = full_at
            else:
                self._room.after_a_commit()
                if self._follower.state.delays.files:
                    self.deliver()
                return done
            if waited_seconds is not None and time.monotonic() < deadline:
                raise self._no_room_yet(before, deadline)
            while self._waits(before, deadline):
                time.sleep(self.poll_seconds)

    def _refuse_at_the_end(self) -> NoReturn:
        self._log.require_not_closed()
        raise ChannelClosedError(f"the channel {self._log.path} is being closed; open it again")

    def _waits(self, before: CommitPoint | None, deadline: float) -> bool:
        """Tell whether a put that found no room need not look again: nobody has committed anything since."""
        return time.monotonic() < deadline and self._log.position() == before and not self._active_calls.ended

    def _no_room_yet(self, before: CommitPoint | None, deadline: float) -> NoRoomYetError:
        return NoRoomYetError(f"{self._log.path} has no room yet", lambda: not self._waits(before, deadline))

    def commit_group(self, group: list[Ticket]) -> None:
        """Commit a group of tickets, in as few appends as its tiers allow, and mark each done or failed."""
        with self._appender.committing():
            waiting, with_memory = deque(group), self._follower.state.options.memory_capacity > 0
            while waiting:
                with_memory = self._append_run(waiting, with_memory)

    def _append_run(self, waiting: deque[Ticket], with_memory: bool) -> bool:
        """Append the requests at the head of a group that go to the same tier, as far as there is room for them.

        Returns:
            Whether memory can be written, as far as is known.
        """
        plan = AppendPlan(self._follower.state, start=None, recovery=self._log.recovery)
        if (tier := self._tier_of_next(waiting, plan, with_memory)) is None:
            return with_memory
        try:
            start = self._appender.reserve_room(tier, sum(map(_SIZE_BYTES, waiting)))
        except StorageError as e:
            self._refuse_memory(tier, e)
            return False
        plan.begin(self._follower.state, tier, start.offset)
        planned: list[Ticket] = []
        first, end = waiting[0], start.offset
        while waiting:
            ticket = waiting[0]
            try:
                if ticket is not first and ticket.request.tier(plan) is not tier:
                    break
                request = ticket.request
                if isinstance(request, Put):
                    self._staged.prepare(request, plan, start.file_id, end + ticket.size_bytes)
                ticket.result = plan.attempt(request.plan)
                planned.append(ticket)
                end += ticket.size_bytes
            except Exception as e:  # also what can't be encoded: it is nobody else's matter
                ticket.fail(e)
            waiting.popleft()
        try:
            if not self._appender.append(plan, start):  # another append took its place
                waiting.extendleft(reversed(planned))
                return with_memory
        except StorageError as e:
            self._refuse_memory(tier, e)
            waiting.extendleft(reversed(planned))
            return False
        self._counters.group_commits += 1
        self._counters.grouped_commits += len(planned)
        for ticket in planned:
            ticket.done = True
        state = self._follower.state
        if state.memory.open:  # else there is no log that could be lost
            for position in plan.positions.values():
                position.keep(state)
        if state.blocks.memory.emptied:
            self._memory.free_taken()
        return with_memory

    def _refuse_memory(self, tier: Tier, error: StorageError) -> None:
        """Do without the memory tier after its error; raise an error of the disk, or of a commit in doubt."""
        if tier is DISK or isinstance(error, CommitOutcomeUnknownError):
            raise error
        self._memory.refuse(error)

    def _tier_of_next(self, waiting: deque[Ticket], plan: AppendPlan, with_memory: bool) -> Tier | None:
        """Return the tier of the next request, or None after it failed.

        A put in memory finds the tier created, and IDs reserved.
        """
        try:
            if not with_memory:
                return waiting[0].request.tier(plan)
            puts = [t.request for t in waiting if isinstance(t.request, Put)]
            if self._memory.open() if puts else self._memory.is_ready():
                if puts and self._follower.state.options.keeps:
                    self._moving.make_room(sum([put.use.payload_bytes for put in puts]))
                plan.memory_room, plan.state = self._memory.has_pages_for, self._follower.state
            tier = waiting[0].request.tier(plan)
            if tier is MEMORY:
                self._memory.reserve_ids(self._follower.state.last_id + sum([put.use.events for put in puts]))
            return tier
        except Exception as e:
            waiting.popleft().fail(e)
            return None
