"""Committing: which tier a transaction goes to, in which company, and what it waits for."""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from dataclasses import replace
from operator import attrgetter
from threading import get_ident

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.checkpointing import Checkpointing
from spillable_stream.engine.group_commit import GroupCommit, Ticket
from spillable_stream.engine.memory_tier import MemoryTier
from spillable_stream.engine.replica import Replica
from spillable_stream.engine.requests import MemoryFullError, NoRoomYetError, Put, Request
from spillable_stream.errors import (
    ChannelClosedError,
    ChannelFullError,
    CommitOutcomeUnknownError,
    DiskSpaceError,
    LockTimeoutError,
    StorageError,
)
from spillable_stream.format.file_names import Tier, disk_segment, in_memory
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.record import SegmentRef
from spillable_stream.log.disk_space import DiskSpace, required_bytes
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.recent import Recent

__all__ = ["Engine"]

_log = logging.getLogger(__name__)

_FULL_POLL_SECONDS = 0.01
_SIZE_BYTES = attrgetter("size_bytes")
_OPEN_OF_GROUPS = 32
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NEARLY_FULL_BYTES = 64 << 20
_GIVE_BACK_SECONDS = 1.0


class Engine(Replica):
    """The channel as one process uses it. Thread-safe.

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.

    Attributes:
        readers: those of the groups that were taken from last, by group. There may be thousands of groups.
        position_files: those that keep the positions of these groups.
    """

    def __init__(self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0) -> None:
        super().__init__(fs, layout, lock_timeout_seconds)
        self._group_commit = GroupCommit(self._commit_group)
        self._disk_space = DiskSpace(self.fs, self.layout)
        self._emptied = 0  # how many files on disk were emptied when the space was looked at last,
        self._look_at = float("-inf")  # and when a commit that finds more looks again
        self.readers: Recent[EventReader] = Recent(_OPEN_OF_GROUPS)
        self.position_files: Recent[File] = Recent(_OPEN_OF_GROUPS)
        self.memory = MemoryTier(self)
        self.checkpointing = Checkpointing(self, self.memory)

    def close(self, *, forked: bool = False) -> None:
        """Close every file, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        super().close(forked=forked)
        self.checkpointing.close()
        self.readers.clear()
        self.position_files.clear()

    def _leave_files(self) -> None:
        super()._leave_files()
        self.readers.clear()

    def commit(
        self, request: Request, keep_alive_seconds: float = 0.0, waited_seconds: float | None = None
    ) -> CommitResult:
        """Commit a request, in the tier that it belongs to, and return what it got.

        Args:
            request: what to do.
            keep_alive_seconds: how long to wait for room.
            waited_seconds: how long of it a put has waited elsewhere, where it will wait on; None to wait here.

        Raises:
            ChannelFullError: no room within ``keep_alive_seconds``.
            NoRoomYetError: none now, for a put that waits elsewhere.
            DiskSpaceError: ``minimumRequiredSpace`` is reached.
            StorageError: the disk refused; nothing was committed.
            ChannelClosedError: the handle was closed, or is being closed.
            TransactionStateError: this thread is inside of another commit, or looks at the channel.
        """
        under_way, me = self.under_way, get_ident()
        if me in under_way.threads or self.looker == me:
            under_way.refuse("a commit")
        under_way.threads[me] = "a commit"
        try:
            return self._commit(request, keep_alive_seconds, waited_seconds)
        finally:
            del under_way.threads[me]

    def _commit(self, request: Request, keep_alive_seconds: float, waited_seconds: float | None) -> CommitResult:
        under_way, began, gave_back = self.under_way, time.monotonic() - (waited_seconds or 0.0), False
        spill_at = began + self.state.options["overflow_timeout"]
        full_at = began + keep_alive_seconds
        if isinstance(request, Put):
            request.segments = [self._found(s) for s in request.segments]
        while True:
            if under_way.ended:
                self.require_not_closed()
                raise ChannelClosedError(f"the channel {self.layout.path} is being closed; open it again")
            seen = self._applied  # not later than what the request will find
            try:
                done = self._group_commit.submit(request)
            except (DiskSpaceError, StorageError) as e:
                if gave_back or not _is_of_space(e, request):
                    raise
                self._give_back(self.lock_timeout_seconds)  # or another thread just did
                gave_back = True
                continue
            except MemoryFullError:
                assert isinstance(request, Put)
                request.may_spill = time.monotonic() >= spill_at
                full_at = max(full_at, spill_at + keep_alive_seconds)  # to find room on disk, then
                deadline = spill_at
            except ChannelFullError as e:
                assert isinstance(request, Put)
                if not request.fits_empty(self.state) or time.monotonic() >= full_at:
                    raise self._full(e, request, time.monotonic() - began) from None
                deadline = full_at
            else:
                if self.state.blocks.disk.emptied_count != self._emptied and time.monotonic() >= self._look_at:
                    self._give_back_if_short()
                return done
            if waited_seconds is not None and time.monotonic() < deadline:
                raise self._no_room_yet(seen, deadline)
            while self._waits(seen, deadline):
                time.sleep(_FULL_POLL_SECONDS)

    def _waits(self, seen: CommitPoint | None, deadline: float) -> bool:
        """Tell whether a put that found no room need not look again: nobody has committed anything since."""
        return time.monotonic() < deadline and self.lock.published() == seen and not self.under_way.ended

    def _no_room_yet(self, seen: CommitPoint | None, deadline: float) -> NoRoomYetError:
        return NoRoomYetError(f"{self.layout.path} has no room yet", lambda: not self._waits(seen, deadline))

    def make_room(self) -> None:
        """Give back the disk space of taken events, for a put that is to be tried again; a failure is logged."""
        self.under_way.run("a checkpoint", lambda: self._give_back(self.lock_timeout_seconds))

    def make_room_if_short(self) -> None:
        """Do so if puts are refused for want of space, or nearly."""
        if self._is_short():
            self.under_way.run("a checkpoint", lambda: self._give_back(0))

    def _give_back_if_short(self) -> None:
        """Let files go that a take has emptied, if puts are refused for want of space, or nearly."""
        self._emptied = self.state.blocks.disk.emptied_count
        self._look_at = time.monotonic() + _GIVE_BACK_SECONDS
        if self._is_short():
            self._give_back(0)

    def _is_short(self) -> bool:
        given = self.state.options["minimum_required_space"]
        try:
            free = min(self.fs.free_bytes(d) - required_bytes(self.fs, d, given) for d in self.layout.data_dirs)
        except StorageError as e:
            _log.warning("the free space is not known: %s", e)
            return False
        return free < _NEARLY_FULL_BYTES

    def _give_back(self, timeout_seconds: float) -> None:
        """Give back the disk space of taken events; a failure is logged: what was committed is committed."""
        try:
            self.checkpointing.give_back_within_a_commit(timeout_seconds)
        except LockTimeoutError:
            return  # somebody is at it
        except Exception as e:
            if not self.closed:
                _log.warning("taken events keep their disk space: %s", e)

    def _full(self, error: ChannelFullError, request: Put, waited_seconds: float) -> ChannelFullError:
        with self.looking() as state:
            wanted, rates = request.use(), self.samples.rates(state)
            put_at = state.blocks.time_of(state.floor)
            memory, disk, limits = state.use(in_memory=True), state.use(in_memory=False), state.memory_limits()
            lags = ", ".join(f"{n} has {state.lag(n):,} to take" for n in state.groups) or "there is no group"
            options = state.options
        held = f"disk holds {disk.events:,} of overflowCapacity {options['overflow_capacity']:,} events"
        if options["memory_capacity"]:
            held = (
                f"memory holds {memory.events:,} of memoryCapacity {limits.events:,} events and "
                f"{memory.payload_bytes:,} of {limits.payload_bytes:,} bytes (byteCapacity less its buffer), {held}"
            )
        if options["overflow_capacity"]:
            option = "overflowCapacity"
        elif (why := self.memory.why_not()) is not None:
            return ChannelFullError(
                f"{self.layout.path}: {error}: there is no memory tier ({why}), and overflowCapacity is 0. It is tried "
                "again within a minute; to continue before that, set memoryDir, or raise overflowCapacity"
            )
        else:
            option = "memoryCapacity" if memory.events + wanted.events > limits.events else "byteCapacity"
        age = f"{time.time() - put_at / 1e6:,.0f} s" if put_at else "unknown"
        fits = request.fits_empty(self.state)
        return ChannelFullError(
            f"{self.layout.path}: {error}; {held}. Waited {waited_seconds:.2f} s; in the last {rates.seconds:,.0f} s "
            f"{rates.put:,.0f} events/s were put and {rates.taken:,.0f} taken; the oldest event's age is {age}; "
            f"{lags}. "
            + (f"To continue, take events, or raise {option}" if fits else f"Raise {option}, or put fewer at once")
        )

    def _commit_group(self, group: list[Ticket]) -> None:
        with self.committing():
            waiting, with_memory = deque(group), True
            while waiting:
                with_memory = self._append_run(waiting, with_memory)

    def _append_run(self, waiting: deque[Ticket], with_memory: bool) -> bool:
        """Append the requests at the head of a group that go to the same tier, as far as there is room for them.

        Returns:
            Whether memory can be written, as far as is known.
        """
        plan = AppendPlan(self.state)
        try:
            tier = self._tier_of_next(waiting, plan, with_memory)
        except Exception as e:
            waiting.popleft().fail(e)
            return with_memory
        try:
            start = self.reserve_room(tier, sum(map(_SIZE_BYTES, waiting)))
        except StorageError as e:
            if tier is Tier.DISK:
                raise
            self.memory.refuse(e)
            return False
        plan.begin(self.state, tier, start.offset)
        planned: list[Ticket] = []
        first, end = waiting[0], start.offset
        while waiting:
            ticket, kept = waiting[0], plan.kept()
            try:
                if ticket is not first and ticket.request.tier(plan) is not tier:
                    break
                self._prepare(ticket.request, plan, start.file_id, end + ticket.size_bytes)
                ticket.result = ticket.request.plan(plan)
                planned.append(ticket)
                end += ticket.size_bytes
            except Exception as e:  # also what can't be encoded: it is nobody else's matter
                plan.take_back(kept)
                ticket.fail(e)
            waiting.popleft()
        try:
            self.append(plan, start)
        except CommitOutcomeUnknownError:
            raise
        except StorageError as e:
            if tier is Tier.DISK:
                raise
            self.memory.refuse(e)
            waiting.extendleft(reversed(planned))
            return False
        self.counters.group_commits += 1
        self.counters.grouped_commits += len(planned)
        for ticket in planned:
            ticket.done = True
        for ticket in planned:
            ticket.request.appended(self.state)
        self.memory.free_taken()
        return with_memory

    def _tier_of_next(self, waiting: deque[Ticket], plan: AppendPlan, with_memory: bool) -> Tier:
        """Return the tier of the next request; a put in memory finds the tier made, and IDs reserved."""
        puts = [t.request for t in waiting if isinstance(t.request, Put)]
        if with_memory and (self.memory.open() if puts else self.memory.is_ready()):
            plan.memory_room, plan.state = self.memory.has_pages_for, self.state
        tier = waiting[0].request.tier(plan)
        if tier is Tier.MEMORY:
            self.memory.reserve_ids(self.state.last_id + sum([put.use().events for put in puts]))
        return tier

    def _prepare(self, request: Request, plan: AppendPlan, file_id: int, end: int) -> None:
        """Refuse a put for which there is no disk space, or whose staged files are not there.

        Args:
            request: what is about to be planned.
            plan: where to.
            file_id: the file of the append.
            end: where that ends with it, at most.
        """
        if not isinstance(request, Put) or request.done(plan):  # a batch that is over has no staging any more
            return
        if plan.tier is Tier.DISK:
            self._require_space(request, file_id, end)
            try:
                request.segments = [self._on_disk(s) for s in request.segments]
            except StorageError as e:
                request.not_staged = e
                raise
        for segment in request.segments:  # every event that is acknowledged can be read
            path = self.layout.segment_file(segment.name)
            if self.fs.size_bytes(path) < segment.end:
                raise StorageError(f"the staged file {path} is gone or cut; nothing was committed: do the write again")

    def _require_space(self, request: Put, file_id: int, end: int) -> None:
        staged = copied = 0
        for segment in request.segments:
            staged += segment.end
            copied += segment.end if in_memory(segment.name) else 0
        self._disk_space.require(self.state.options["minimum_required_space"], file_id, end, staged, copied)

    def _found(self, segment: SegmentRef) -> SegmentRef:
        """Return where a staged segment is: the memory tier may have been closed since, which moved it to disk."""
        if not in_memory(segment.name):
            return segment
        on_disk = replace(segment, name=disk_segment(segment.name))
        return on_disk if self.fs.exists(self.layout.segment_file(on_disk.name)) else segment

    def _on_disk(self, segment: SegmentRef) -> SegmentRef:
        """Move a segment that was staged in memory to disk."""
        if not in_memory(segment.name):
            return segment
        source = self.layout.segment_file(segment.name)
        if self.fs.size_bytes(source) >= segment.end:
            copy_to_disk(self.fs, self.layout, segment.name)
            self.fs.remove(source)
        return replace(segment, name=disk_segment(segment.name))


def _is_of_space(error: DiskSpaceError | StorageError, request: Request) -> bool:
    """Tell whether a request failed for want of space, and can be tried again: not after a sync that failed."""
    if isinstance(error, CommitOutcomeUnknownError) or (isinstance(request, Put) and request.not_staged):
        return False
    cause = error.__cause__  # of a failed sync it is another StorageError
    return isinstance(error, DiskSpaceError) or (isinstance(cause, OSError) and cause.errno in _NO_SPACE)
