"""Retention: which taken events stay readable, by ``retentionMs`` and ``retentionBytes``, and when they leave.

Events leave from the oldest on, and file by file: a RETENTION record in the log says up to which event, and the next
checkpoint removes the files that hold none any more. Nothing is rewritten. So that there is always a file that can go,
the log begins a new one at an eighth of either limit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_owners import GroupOwners
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.requests import Control, Request
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import RetentionRecord
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import count_of, listed
from spillable_stream.state.wall_clock import ClockReading, WallClock
from spillable_stream.storage.boot import since_boot_us

__all__ = ["Retention"]

_log = log_of(__name__)


class Retention:
    """Lets events go. Callers do not hold the commit lock.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends the records.
        owners: the owners of the groups.
        boot: returns in which boot of this host the clock since the boot runs.
        begin_file: begins a new file of the log if it is time, given the time now in microseconds since 1970.

    Attributes:
        read_clocks: reads both clocks; tests replace it.
    """

    def __init__(
        self,
        log: Log,
        follower: Follower,
        appender: Appender,
        owners: GroupOwners,
        boot: Callable[[], str],
        begin_file: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._owners = owners
        self._begin_file = begin_file
        self.read_clocks: Callable[[], ClockReading] = lambda: ClockReading(
            boot(), since_boot_us(), time.time_ns() // 1000
        )
        self._reading: ClockReading | None = None  # the last one in this process

    def look(self) -> bool:
        """Let go what has stayed long enough, begin a new file if it is time, and tell whether events have left.

        Raises:
            StorageError: the disk refused.
        """
        if not self._follower.follow(unchecked=True).options.keeps:
            return False
        now_us = self._look_at_clocks().wall_us  # not a later reading: the clock may jump in between
        self._begin_file(now_us)
        return self._let_go(lambda state: _Limits.of(state, now_us))

    def let_go_for_space(self, size_bytes: int) -> bool:
        """Let go the oldest kept events of ``size_bytes`` at least, and tell whether any have left.

        Raises:
            StorageError: the disk refused.
        """
        return self._let_go(lambda state: _Limits.leaving(state, size_bytes))

    # ── the clock ───────────────────────────────────────────────────────────────────────────

    def _look_at_clocks(self) -> ClockReading:
        """Record the clocks once in a boot, and every jump of the wall clock; return what they say."""
        state = self._follower.state
        now = self.read_clocks()._replace(last_us=state.time_us)
        if not state.options.retention_ms:
            return now
        known, mine = state.clock.reading, self._reading
        # Slewing adds up to more than a jump in a month: this process compares with its own last reading.
        last = mine if known and mine is not None and mine.since_boot_us > known.since_boot_us else known
        if known is None or last is None or known.boot != now.boot:
            self._append({"clock": now})
        elif (jump := WallClock(last).jump_to(now)) is not None:
            _log.warning(
                "%s: the wall clock jumped by %+.1f s; no event leaves for that",
                self._log.path,
                jump.by_us / 1e6,
                extra=fields(self._log.path),
            )
            self._append({"clock": now, "jump": jump})
        self._reading = now  # not before a jump is recorded: the next look must find it again
        return now

    # ── what leaves ─────────────────────────────────────────────────────────────────────────

    def _let_go(self, limits_of: Callable[[ChannelState], _Limits]) -> bool:
        with self._follower.snapshot as state:
            limits = limits_of(state)
            found = _last_to_leave(state, limits, self._most(state, limits))
        if not found:
            return False
        request = _LetGo(lambda state: min(found, self._most(state, limits)))  # groups may have gone back meanwhile
        with self._appender.committing():
            self._appender.append_alone(request)
        through, untaken = request.through, request.untaken
        if not through:
            return False
        if untaken:
            _log.warning(
                "%s: events up to %d were removed before they were taken (%s is drop): %s",
                self._log.path,
                through,
                named("retentionUntaken"),
                ", ".join(untaken),
                extra=fields(self._log.path, last_id=through),
            )
        return True

    def _most(self, state: ChannelState, limits: _Limits) -> int:
        """Return the last event that may leave: no event that a group has yet to take, unless it may leave too."""
        if not limits.untaken_too:
            return state.needed_from() - 1
        return min([state.last_id, *(first - 1 for first in self._being_taken(state))])

    def _being_taken(self, state: ChannelState) -> Iterator[int]:
        """Yield the first event of each take that is under way: a live owner reads its events."""
        for name, group in state.groups.items():
            taking = (r for ranges in state.taking(name).values() for r in ranges)
            firsts = [max(first, group.position + 1) for first, last in taking if last > group.position]
            if firsts and self._owners.look(name).is_alive:
                yield min(firsts)

    def _append(self, record: RetentionRecord) -> None:
        with self._appender.committing():
            self._appender.append_alone(Control(FrameType.RETENTION, record))


@dataclass(slots=True)
class _LetGo(Request):
    """Let events go, as far as the state says where this is planned: an append that was lost is planned again.

    Args:
        most: returns the last event that may leave.

    Attributes:
        through: set by the plan: the last event that leaves; 0 if none does.
        untaken: what groups have yet to take of what leaves, for people.
    """

    most: Callable[[ChannelState], int]
    through: int = 0
    untaken: list[str] = field(default_factory=list)

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return Control(FrameType.RETENTION, RetentionRecord(through=1 << 62)).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write how far events leave; nothing if none does."""
        state, self.through, self.untaken = plan.state, 0, []
        through = self.most(state)
        if through < state.first_kept:
            return CommitResult()
        self.through, self.untaken = through, _untaken(state, through)
        return Control(FrameType.RETENTION, RetentionRecord(through=through)).plan(plan)


def _untaken(state: ChannelState, through: int) -> list[str]:
    """Return what groups have yet to take of what leaves, for people."""
    found: list[str] = []
    for name, group in state.groups.items():
        if group.position < through and (ranges := list(group.ahead.gaps(group.position + 1, through))):
            found.append(f"{count_of(ranges):,} by the group {name!r}, {listed(ranges)}")
    return found


@dataclass(frozen=True, slots=True)
class _Limits:
    """How old events may be, and how many bytes of them there may be.

    Args:
        cutoff_us: events put before that leave; None if age does not matter.
        most_bytes: what is more leaves; None if size does not matter.
        untaken_too: whether events leave that some group has yet to take.
        whole_files: whether a file leaves though less than ``most_bytes`` are left then.
    """

    cutoff_us: int | None
    most_bytes: int | None
    untaken_too: bool
    whole_files: bool = False

    @classmethod
    def of(cls, state: ChannelState, now_us: int) -> _Limits:
        """Return the limits that the options set."""
        options = state.options
        cutoff_us = now_us - options.retention_ms * 1000 if options.retention_ms else None
        return cls(cutoff_us, options.retention_bytes or None, options.retention_untaken == "drop")

    @classmethod
    def leaving(cls, state: ChannelState, size_bytes: int) -> _Limits:
        """Return the limits by which so many bytes of kept events leave, or more: files go whole."""
        return cls(None, state.kept().payload_bytes - size_bytes, untaken_too=False, whole_files=True)

    def size_bytes(self, state: ChannelState) -> int:
        """Return the size of the events that count, in bytes."""
        disk, memory = state.blocks.disk, state.blocks.memory
        return state.kept().payload_bytes + (disk.payload_bytes + memory.payload_bytes if self.untaken_too else 0)


def _last_to_leave(state: ChannelState, limits: _Limits, most_id: int) -> int:
    """Return the last event that leaves: the last one in some file, of those that no limit keeps; 0 if there is none.

    Args:
        state: the channel's state.
        limits: what keeps events.
        most_id: the last event that may leave.
    """
    disk_files, memory_files = state.blocks.disk.files, state.blocks.memory.files
    leaving: Counter[int | str] = Counter()  # only of what is looked at: there may be very many files
    left_bytes, through = limits.size_bytes(state), 0
    in_files_bytes = left_bytes  # in the files that have not left
    for block, newest_us in _with_ends(state):
        left_bytes -= block.payload_bytes
        counted_bytes = in_files_bytes - 1 if limits.whole_files else left_bytes
        too_old = limits.cutoff_us is not None and state.clock.now_of(newest_us) < limits.cutoff_us
        too_many = limits.most_bytes is not None and counted_bytes >= limits.most_bytes
        if block.last_id > most_id or not (too_old or too_many):
            break
        leaving[block.file] += 1
        if leaving[block.file] == disk_files.get(block.file, 0) + memory_files.get(block.file, 0):
            through, in_files_bytes = block.last_id, left_bytes
    return through


def _with_ends(state: ChannelState) -> Iterator[tuple[Block, int]]:
    """Yield each block with a time at which all of its events had been put, in microseconds since 1970."""
    before: Block | None = None
    for block in state.blocks:
        if before is not None:
            yield before, before.until_us or max(before.time_us, block.time_us)
        before = block
    if before is not None:
        yield before, before.until_us or max(before.time_us, state.time_us)
