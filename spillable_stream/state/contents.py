"""What a channel holds and remembers at one position of its logs, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from spillable_stream.format.commit_record import Seen
from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.record import LostRecord, Record
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.names import SPOOL_PREFIX
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.delays import Delays
from spillable_stream.state.group import GroupState
from spillable_stream.state.producer_history import ProducerHistory
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.state.spill_rules import MemoryTierInfo, TierUsage, free_percent, payload_limit
from spillable_stream.state.wall_clock import WallClock

__all__ = ["Contents", "OwnerRecord", "Pending", "Recovery", "Restore", "Trimmed"]

_MOST_RECOVERIES = 32
_POSITION = attrgetter("position")


@dataclass(slots=True)
class Pending:
    """The records of a transaction that is not committed yet."""

    frames: list[tuple[int, int, FrameHeader]] = field(default_factory=list)
    takes: tuple[TakeRecord, ...] = ()  # few have any, and none many
    controls: tuple[tuple[FrameType, Record], ...] = ()
    in_memory: bool = False


class OwnerRecord(NamedTuple):
    """The owner of a group, in a log of objects. On a disk, a lock says it.

    Args:
        epoch: the number of the ownership, which no other has. What an earlier owner wants to write is refused.
        note: what the owner says of itself.
        claim: the name of one that asks whether it is alive; "" if nobody does.
        process: the owner's process, by which others of its host can tell that it is gone; "" if that is not known.
    """

    epoch: int
    note: str
    claim: str = ""
    process: str = ""


class Trimmed(NamedTuple):
    """What nobody needs any more of a log of objects.

    Args:
        through: the last slot that may be deleted; -1 if none may.
        births: a staged segment may be adopted if its writer knew of this slot when it began it.
        deleted: every slot up to this one has been deleted; -1 if none has.
    """

    through: int = -1
    births: int = 0
    deleted: int = -1


class Restore(NamedTuple):
    """A restore of the channel: with it, its history parts from the original's, which had other events under later IDs.

    Args:
        last_id: the last event of the backup.
        token: a random text, which no other restore has.
    """

    last_id: int
    token: str


class Recovery(NamedTuple):
    """A recovery of the channel after which something was appended; a copy of the channel has other ones from then on.

    Args:
        last_id: the last event before it.
        token: a random text, which no other recovery has.
    """

    last_id: int
    token: str


class Contents:
    """The events and groups of a channel, and everything else that its log says.

    Attributes:
        next_id: the next write-order ID.
        next_transaction: the next transaction ID.
        floor: the first event that counts as stored: every group has taken those before it, at least once. It never
            goes back.
        first_kept: the first event that is still there, or would be if it had not been lost: those from here to the
            floor are kept for retention, or for a group that went back.
        time_us: the time of the last append, in microseconds since 1970. It is unique, so it orders appends across
            the logs of both tiers.
        options: the stored channel options.
        schemas: the channel's schemas, as Arrow IPC messages, oldest first.
        groups: the state of each group, by name.
        sinks: the last batch ID of each Spark query that wrote to the channel.
        producers: the batches that producers committed.
        blocks: the locations of the events.
        pending: the transactions in flight, by ID.
        memory: the memory tier.
        overflow: whether a put that finds memory full goes to disk at once, without waiting for room.
        spilled: how many put transactions went to disk because memory was full.
        memory_only_sinks: the entries of `sinks` that only the memory tier's log has recorded.
        memory_only_groups: the groups with takes that only the memory tier's log has recorded.
        lost: events that were lost with a memory tier or to damage before every group had taken them.
        doubtful: IDs that a lost memory tier may or may not have used.
        clock: by which clock the age of events is told.
        trimmed: what nobody needs any more of a log of objects.
        owners: the groups of a log of objects that somebody owns, by name.
        delays: the events that wait until they are due; they have no IDs yet.
        restores: those by which the channel was created from backups, oldest first.
        recoveries: the last ones, oldest first; none of a log of objects.
    """

    def __init__(self, options: ChannelOptions, schemas: list[bytes]) -> None:
        self.next_id: int = 1
        self.next_transaction: int = 1
        self.floor: int = 1
        self.first_kept: int = 1
        self.time_us: int = 0
        self.options: ChannelOptions = options
        self.schemas: list[bytes] = list(schemas)
        self.groups: dict[str, GroupState] = {}
        self.sinks: dict[str, int] = {}
        self.producers: ProducerHistory = ProducerHistory()
        self.blocks: Blocks = Blocks()
        self.pending: dict[int, Pending] = {}
        self.memory: MemoryTierInfo = MemoryTierInfo()
        self.overflow: bool = False
        self.spilled: int = 0
        self.memory_only_sinks: dict[str, int] = {}
        self.memory_only_groups: dict[str, None] = {}
        self.lost: RangeSet = RangeSet()
        self.doubtful: RangeSet = RangeSet()
        self.clock: WallClock = WallClock()
        self.trimmed: Trimmed = Trimmed()
        self.owners: dict[str, OwnerRecord] = {}
        self.delays: Delays = Delays()
        self.restores: list[Restore] = []
        self.recoveries: list[Recovery] = []
        self._holders: list[str] = []  # groups that may hold the floor back: it rises only once none does

    @property
    def last_id(self) -> int:
        """The last write-order ID in use."""
        return self.next_id - 1

    def restore_before(self, event_id: int) -> str:
        """Return the token of the last restore before an event was put; "" without one.

        Two channels of one UUID that have the same token for an event have the same events up to there.
        """
        return next((restore.token for restore in reversed(self.restores) if restore.last_id < event_id), "")

    def recovery_before(self, event_id: int) -> str:
        """Return the token of the last recovery before an event was put; "" if it is not known any more, or never was.

        Two channels of one UUID that have different tokens for an event have different events under its ID.
        """
        return next((recovery.token for recovery in reversed(self.recoveries) if recovery.last_id < event_id), "")

    def may_have(self, event_id: int, restore: str, recovery: str) -> bool:
        """Tell whether an event of some channel with this UUID is this channel's, as far as its marks tell.

        Args:
            event_id: its ID; the next event of that ID counts where there is none yet.
            restore: what `restore_before` said of it.
            recovery: what `recovery_before` said of it.
        """
        known = self.recovery_before(event_id)
        return restore == self.restore_before(event_id) and (not known or not recovery or known == recovery)

    def begin_recovery(self, token: str) -> None:
        """Note that what follows was appended after a recovery."""
        if self.recoveries and self.recoveries[-1].last_id == self.last_id:
            self.recoveries.pop()  # no event came after it
        self.recoveries.append(Recovery(self.last_id, token))
        del self.recoveries[:-_MOST_RECOVERIES]

    def gone(self) -> RangeSet:
        """Return the lost and the doubtful IDs, which count as taken by every group."""
        return self.lost.union(self.doubtful)

    def beginning(self) -> int:
        """Return the ID where a read from `earliest` begins: the first event, or the start of a loss right before it.

        A new reader is therefore told about the loss, until an event after it leaves the channel.
        """
        return next((first for first, last in self.gone() if first < self.first_kept <= last + 1), self.first_kept)

    def needed_from(self) -> int:
        """Return the first event that some group has yet to take; it is before the floor if a group went back."""
        return min([self.floor, *(g.position + 1 for g in self.groups.values())])

    def kept(self) -> TierUsage:
        """Return what is kept although every group has taken it, at least once: whole blocks, in both tiers."""
        disk, memory = self.blocks.disk, self.blocks.memory
        return TierUsage(disk.kept_events + memory.kept_events, disk.kept_bytes + memory.kept_bytes)

    def stored(self) -> int:
        """Return the number of events that some group has yet to take for the first time."""
        return self.next_id - self.floor - self.not_needed().size()

    def use(self, in_memory: bool) -> TierUsage:
        """Return what a tier holds, counting only events that some group has yet to take for the first time."""
        index = self.blocks.memory if in_memory else self.blocks.disk
        events, size_bytes = index.events, index.payload_bytes
        if not in_memory:  # what waits counts from its put
            events += self.delays.events
            size_bytes += self.delays.payload_bytes
        taken: Iterable[Range] = self.not_needed()
        first = index.first_held()
        if first is not None and first.first_id < self.floor:
            taken = [(first.first_id, self.floor - 1), *taken]
        for a, b in taken:
            for block in index.between(a, b):
                inside = min(b, block.last_id) - max(a, block.first_id) + 1
                events -= inside
                size_bytes -= block.payload_bytes * inside // block.count
        return TierUsage(events, size_bytes)

    def memory_byte_capacity(self) -> int:
        """Return how much memory the memory tier may use, in bytes; 0 if the channel never had one."""
        return self.memory.byte_capacity if self.memory.generation else 0

    def memory_limits(self) -> TierUsage:
        """Return the most that the memory tier may hold."""
        return TierUsage(self.options.memory_capacity, self.payloads_within(self.memory_byte_capacity()))

    def payloads_within(self, byte_capacity: int) -> int:
        """Return how many bytes of payload fit into ``byte_capacity``, less the percentage reserved for overhead."""
        return payload_limit(byte_capacity, self.options.byte_capacity_buffer_percentage)

    def lag(self, group: str) -> int:
        """Return the number of events that a group has yet to take."""
        g = self.groups[group]
        return self.last_id - g.position - g.ahead.size()

    def memory_free_percent(self) -> float:
        """Return the free part of the memory tier in percent, by events or by bytes, whichever is less."""
        return free_percent(self.use(in_memory=True), self.memory_limits())

    def put_at_us(self, event_id: int) -> int | None:
        """Return when the first event at or after an ID was put, by the clock's setting now; None without one.

        It is in microseconds since 1970, about as exact as `Blocks.time_of`, and may be in the future.
        """
        time_us = self.blocks.time_of(event_id)
        return None if time_us is None else self.clock.now_of(time_us)

    def drain_order(self) -> list[int]:
        """Return the lengths of runs of events in one tier, in take order; lengths of runs on disk are negative."""
        runs: list[int] = []
        not_needed = self.not_needed()
        for block in self.blocks.between(self.floor, self.last_id):
            first = max(block.first_id, self.floor)
            count = count_of(not_needed.gaps(first, block.last_id))
            if count == 0:
                continue
            signed = count if in_memory(block.file) else -count
            if runs and (runs[-1] > 0) == (signed > 0):
                runs[-1] += signed
            else:
                runs.append(signed)
        return runs

    def not_needed(self, begin: int | None = None) -> RangeSet:
        """Return the IDs at or above ``begin``, by default the floor, that no group needs any more."""
        begin = self.floor if begin is None else begin
        if not self.groups:
            gone = ((max(a, begin), b) for a, b in self.gone() if b >= begin)
            return RangeSet() if not self.lost and not self.doubtful else RangeSet(gone)
        holder = next((self.groups.get(name) for name in self._holders[-1:]), None)
        for g in chain([holder], self.groups.values()):
            if g is not None and not g.ahead and g.position < begin:
                return RangeSet()
        needed = RangeSet()
        for g in self.groups.values():
            for first, last in g.untaken(begin, self.last_id):
                needed.add(first, last)
        return RangeSet(needed.gaps(begin, self.last_id))

    def missing(self) -> list[Range]:
        """Return the events that some group has yet to take but no file holds, in order."""
        not_needed: RangeSet | None = None
        found: list[Range] = []
        needed_from = self.needed_from()
        for first, last in self.blocks.gaps(needed_from, self.last_id):
            not_needed = self.not_needed(needed_from) if not_needed is None else not_needed
            found += not_needed.gaps(first, last)
        return found

    def open_takes(self, group: str) -> list[int]:
        """Return the IDs of a group's take transactions that are written but not committed."""
        return [tx for tx, p in self.pending.items() if any(t.group == group for t in p.takes)]

    def taking(self, group: str) -> dict[int, list[Range]]:
        """Return the ranges of a group's `open_takes`, by transaction ID, oldest first."""
        return {tx: [r for t in self.pending[tx].takes for r in t.ranges] for tx in sorted(self.open_takes(group))}

    @property
    def is_extended(self) -> bool:
        """Whether earlier versions of this package can't read it: it has, or had, events that expire or are delayed.

        Of a spool's events that are delayed only their frames know, so a spool counts as one that has some. And a
        restore leaves a mark that an earlier version would drop with its next checkpoint.
        """
        return (
            self.blocks.has_expiry
            or bool(self.restores)
            or bool(self.delays.image())
            or any(name.startswith(SPOOL_PREFIX) for name in self.groups)
            or any(group.passed for group in self.groups.values())
            or any(take.expired for pending in self.pending.values() for take in pending.takes)
        )

    def segments(self) -> set[str]:
        """Return the segments in which events are, or wait until they are due."""
        return self.blocks.segments() | self.delays.names()

    def passing(self, group: str) -> RangeSet:
        """Return the expired events of a group's `open_takes`: the takes pass over them."""
        return RangeSet(r for tx in self.open_takes(group) for t in self.pending[tx].takes for r in t.expired)

    def left_after(self, position: int) -> list[Range]:
        """Return the events after a position that no file holds, and that were not lost: they were taken ahead.

        In memory that frees them, though events before them are still there. A group that starts, or goes back, before
        them can't take them.
        """
        return list(self.absent(position + 1, self.last_id)) if self.memory.generation else []

    def absent(self, first_id: int, last_id: int) -> Iterator[Range]:
        """Yield the events of a range that no file holds and that were not lost, whether a group needs them or not."""
        gone = self.gone()
        for first, last in self.blocks.gaps(first_id, last_id):
            yield from gone.gaps(first, last)

    def merge(self, other: Seen | LostRecord) -> None:
        """Merge what only the memory tier's log had recorded."""
        self.next_id = max(self.next_id, other["next"])
        for query, batch in other.get("sinks", {}).items():
            self.sinks[query] = max(batch, self.sinks.get(query, batch))
        self.producers.merge(other.get("producers", {}), other.get("notes", {}))
        for name, (position, ahead) in other["groups"].items():
            if name in self.groups:
                self.groups[name].merge(position, ahead)
        for name, passed in other.get("passed", {}).items():
            if name in self.groups:
                self.groups[name].passed = max(passed, self.groups[name].passed)

    # ── the floor ───────────────────────────────────────────────────────────────────────────────

    def raise_floor(self) -> None:
        """Raise the floor past the events that every group has taken, and let go of what needs not be kept."""
        floor = self.floor
        if self.groups:
            while self._holders:  # scanning all groups is slow when there are thousands
                holder = self.groups.get(self._holders[-1])
                if holder is not None and holder.position < floor:  # it has yet to take the event at the floor
                    if self.first_kept < floor:
                        self.let_go()
                    return
                self._holders.pop()
            floor = min(map(_POSITION, self.groups.values())) + 1
            self._holders = [name for name, g in self.groups.items() if g.position < floor]
        elif self.lost or self.doubtful:
            floor = next(self.gone().gaps(floor, self.next_id), (floor, 0))[0]
        if floor > self.floor:
            self.floor = floor
            if self.options.keeps:
                self.blocks.keep_through(floor - 1)
            else:  # no group is before it
                self.first_kept = floor
                self.blocks.drop_through(floor - 1)
        elif self.first_kept < floor:
            self.let_go()

    def let_go(self) -> None:
        """Forget events before the floor that nobody asks to keep: no option, and no group that went back."""
        if self.options.keeps or self.first_kept >= self.floor:
            return
        self.first_kept = max(self.first_kept, self.needed_from())
        self.blocks.drop_through(self.first_kept - 1)
