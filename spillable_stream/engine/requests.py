"""Requests: the kinds of commits, and how each becomes log entries under the channel's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.delayed_puts import DelayedPuts
from spillable_stream.engine.group_owners import KeptPosition
from spillable_stream.errors import ChannelFullError, ProducerSequenceError, StorageError, TransactionCapacityError
from spillable_stream.format.file_names import Tier, in_memory
from spillable_stream.format.frame import MAX_COUNT, Frame, FrameType, frame_size, total_size
from spillable_stream.format.record import (
    ControlRecord,
    GroupRecord,
    NumberedBatch,
    SegmentRef,
    TakeRecord,
    pack,
    parse_record,
)
from spillable_stream.log.wal import Entry
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.producer_history import Answer
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.state.spill_rules import TierUsage, choose_tier

__all__ = [
    "Control",
    "MemoryFullError",
    "Move",
    "NoRoomYetError",
    "Prepare",
    "PrepareOnDisk",
    "Put",
    "Request",
    "Rollback",
    "Take",
    "Takes",
]

# An upper bound of a COMMIT frame's size, without and per segment.
_COMMIT_BYTES = 512
_SEGMENT_BYTES = 256
_DELAYED_RUN_BYTES = 80

_UNBOUNDED = 1 << 63


class MemoryFullError(ChannelFullError):
    """The memory tier has no room now; the put may spill to disk after it has waited."""


class NoRoomYetError(ChannelFullError):
    """The channel has no room now, and the caller retries instead of waiting here. Nothing was stored.

    Args:
        message: what is full.
        may_be_over: tells whether a retry makes sense now: something has changed, or the put has waited long enough.
    """

    def __init__(self, message: str, may_be_over: Callable[[], bool] = lambda: True) -> None:
        super().__init__(message)
        self.may_be_over = may_be_over


class Request:
    """A change that one transaction makes to the channel."""

    def tier(self, plan: AppendPlan) -> Tier:
        """Return the tier whose log takes the request; raise if it has no room."""
        return Tier.DISK

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        raise TypeError(f"{type(self).__name__} has no size")

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the request's entries to a plan, or raise and add nothing."""
        raise TypeError(f"{type(self).__name__} can't be planned")

    def may_repeat(self) -> bool:
        """Get ready to be planned again though the log may have it, and tell whether that does no harm."""
        return False

    def appended(self, state: ChannelState) -> None:
        """Finish after the log and the state have it; the channel's lock is still held."""


@dataclass(slots=True)
class Put(Request):
    """A put transaction: all of it goes to one tier.

    Args:
        frames: PUT frames that go into the log.
        segments: staged files to adopt; their events come first.
        sink: query ID and batch ID of a streaming sink; a batch is committed only once.
        producer: a producer's numbered batch; likewise.
        may_spill: whether it has waited long enough for room in memory.
        not_staged: why a staged file could not be copied from memory to disk, if that failed.
        follows: the producer's last number in the channel, on which the batch was cut; None for any.
        delayed: events that wait until they are due; all of the put goes to disk with them.
    """

    frames: list[Frame]
    segments: list[SegmentRef] = field(default_factory=list)
    sink: tuple[str, int] | None = None
    producer: NumberedBatch | None = None
    may_spill: bool = False
    not_staged: StorageError | None = None
    follows: int | None = None
    delayed: DelayedPuts | None = None
    _spilled: str = ""
    _use: TierUsage | None = None
    _expires: bool = False
    _size_bytes: int = 0

    def may_repeat(self) -> bool:
        return bool(self.sink or self.producer)  # which the state knows

    def size_bytes(self) -> int:
        if not self._size_bytes:
            note_bytes = len(self.producer.note) if self.producer else 0
            self._size_bytes = (
                total_size(self.frames) + _COMMIT_BYTES + _SEGMENT_BYTES * len(self.segments) + note_bytes
            )
            if self.delayed:
                self._size_bytes += _DELAYED_RUN_BYTES * len(self.delayed.chunks)
        return self._size_bytes

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""
        if self._use is None:
            events = size_bytes = 0
            for frame in self.frames:
                events += frame.count
                size_bytes += len(frame.payload)
                if frame.ttl_us:
                    self._expires = True
            for segment in self.segments:
                events += segment.count
                size_bytes += segment.payload_bytes
                if segment.least_ttl_us:
                    self._expires = True
            self._use = TierUsage(events, size_bytes)
            if self.delayed:
                self._use = self._use.plus(self.delayed.use())
        return self._use

    def fits_empty(self, state: ChannelState) -> bool:
        """Tell whether it would fit into the channel if that were empty."""
        wanted, limits, disk = self.use(), state.memory_limits(), state.options.overflow_capacity
        most_bytes = limits.payload_bytes or wanted.payload_bytes  # unknown until the memory tier exists
        fits_memory = wanted.events <= limits.events and wanted.payload_bytes <= most_bytes
        return wanted.events <= disk or (fits_memory and not self.delayed)

    def done(self, plan: AppendPlan) -> CommitResult | None:
        """Return the result again if a query's or a producer's batch was committed before; otherwise None.

        Raises:
            ProducerSequenceError: the producer's batch can't have this number.
        """
        if self.sink:
            query, batch = self.sink
            return CommitResult() if batch <= plan.sinks.get(query, plan.state.sinks.get(query, -1)) else None
        if self.producer:
            name, numbers, _ = self.producer
            if self.follows is not None and (last := plan.state.producers.last(name)) != self.follows:
                raise ProducerSequenceError(
                    f"the producer {name!r} has batches up to {last:,} in the channel, and not up to {self.follows:,} "
                    "as when this one was cut. Nothing was stored: cut it anew"
                )
            planned = plan.batches.get((name, numbers.last))
            answer = planned.to(name, numbers) if planned else plan.state.producers.answer(name, numbers)
            return CommitResult(0, answer.first_id, answer.last_id) if answer else None
        return None

    def tier(self, plan: AppendPlan) -> Tier:
        """Return the tier that the spill rules choose (`spillable_stream.state.spill_rules.choose_tier`).

        Raises:
            MemoryFullError: memory has no room, and the put has not waited for it yet.
            ChannelFullError: neither tier has room.
            TransactionCapacityError: the transaction has more events than a COMMIT can count.
        """
        self._spilled = ""
        if (self.sink or self.producer) and self.done(plan):
            return plan.tier
        wanted = self.use()
        if wanted.events > MAX_COUNT:
            raise TransactionCapacityError(
                f"a transaction puts at most {MAX_COUNT:,} events, not {wanted.events:,}; put them in several"
            )
        options = plan.state.options
        if (
            plan.memory_room
            and not self.delayed
            and (not self.segments or all([in_memory(s.name) for s in self.segments]))
        ):
            limits = plan.state.memory_limits()
            waits = options.overflow_capacity > 0 and not (plan.overflow or self.may_spill)
            tier, self._spilled = choose_tier(wanted, limits, waits, partial(self._fits_memory, plan, wanted, limits))
            if tier is Tier.MEMORY:
                return tier
            if tier is None:
                raise MemoryFullError("the memory tier is full")
        if not plan.fits(wanted, (Tier.DISK,), TierUsage(options.overflow_capacity, _UNBOUNDED)):
            events = "1 event does" if wanted.events == 1 else f"{wanted.events:,} events do"
            raise ChannelFullError(f"{events} not fit ({wanted.payload_bytes:,} bytes)")
        return Tier.DISK

    def _fits_memory(self, plan: AppendPlan, wanted: TierUsage, limits: TierUsage) -> bool:
        # Without a disk tier, the events that a close moved to disk count against memory too.
        tiers = (Tier.MEMORY,) if plan.state.options.overflow_capacity else (Tier.MEMORY, Tier.DISK)
        if not plan.fits(wanted, tiers, limits) or plan.memory_room is None:
            return False
        return plan.memory_room(plan.put.payload_bytes + wanted.payload_bytes)

    def plan(self, plan: AppendPlan) -> CommitResult:
        if (self.sink or self.producer) and (done := self.done(plan)):
            return done
        wanted = self.use()
        plan.is_extended = plan.is_extended or self._expires
        tx = plan.new_transaction()
        first = plan.next_id
        for segment in self.segments:
            plan.next_id += segment.count
        for frame in self.frames:
            plan.add(frame, tx, plan.next_id)
            plan.next_id += frame.count
        delayed = plan.delay(self.delayed.files).place(self.delayed.chunks) if self.delayed else None
        plan.put = wanted.plus(plan.put)
        plan.overflow = plan.overflow or self._spilled == "full"
        plan.commit(
            "put",
            plan.next_id - first,
            tx,
            first,
            segments=self.segments,
            sink=self.sink,
            producer=self.producer,
            spilled=self._spilled,
            delayed=delayed,
        )
        if self.sink:
            plan.sinks[self.sink[0]] = self.sink[1]
        if self.producer:
            name, numbers, _ = self.producer
            plan.batches[name, numbers.last] = Answer(first, plan.next_id - 1, numbers.fingerprint)
        return CommitResult(tx, first, plan.next_id - 1)


@dataclass(slots=True)
class Prepare(Request):
    """Record that a group takes events, without committing the take: a micro-batch has begun.

    Args:
        group: the group.
        ranges: the events, as inclusive ranges of write-order IDs.
        require_owner: as in `Take`.
        after: the transaction's ID is greater than this one. Those that only a lost memory tier had are used again.
        expired: those of the events that have expired.
    """

    group: str
    ranges: list[Range]
    require_owner: Callable[[], None] | None = None
    after: int = 0
    expired: list[Range] = field(default_factory=list)
    _may_be_there: bool = False

    def may_repeat(self) -> bool:
        self._may_be_there = True
        return True

    def size_bytes(self) -> int:
        return _COMMIT_BYTES + 20 * (len(self.ranges) + len(self.expired))

    def tier(self, plan: AppendPlan) -> Tier:
        return Tier.MEMORY if plan.all_in_memory(self.ranges) else Tier.DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.require_owner is not None:
            self.require_owner()
        if self._may_be_there:
            prepared = plan.state.taking(self.group)
            if found := [tx for tx in prepared if tx > self.after and RangeSet(prepared[tx]) == RangeSet(self.ranges)]:
                return CommitResult(found[-1])
        plan.next_transaction = max(plan.next_transaction, self.after + 1)
        tx = plan.new_transaction()
        record = TakeRecord(self.group, list(self.ranges), self.expired)
        plan.add(record.frame(count_of(self.ranges)), tx, record=record)
        return CommitResult(tx)


@dataclass(slots=True)
class Take(Request):
    """Commit a take transaction.

    Args:
        group: the group that took.
        ranges: the events, as inclusive ranges of write-order IDs.
        prepared: the transaction's ID if `Prepare` wrote it; otherwise 0.
        position: where the group's position is kept beside the log; None if it is nowhere, or the caller updates it.
        require_owner: raises if the consumer no longer owns the group.
        expired: those of the events that had expired when they were taken; of a prepared one, its TAKE says it.
    """

    group: str
    ranges: list[Range]
    prepared: int = 0
    position: KeptPosition | None = None
    require_owner: Callable[[], None] | None = None
    expired: list[Range] = field(default_factory=list)

    def size_bytes(self) -> int:
        return 2 * _COMMIT_BYTES + 20 * (len(self.ranges) + len(self.expired))

    def tier(self, plan: AppendPlan) -> Tier:
        prepared = plan.state.pending.get(self.prepared)
        if prepared is not None and not prepared.in_memory:
            return Tier.DISK
        return Tier.MEMORY if plan.all_in_memory(self.ranges) else Tier.DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.require_owner is not None:
            self.require_owner()
        count = count_of(self.ranges)
        tx = self.prepared
        prepared = plan.open_take(tx)
        if prepared is None:
            tx = plan.new_transaction()
        if prepared is None or (prepared.in_memory and plan.tier is Tier.DISK):  # a log's COMMIT needs its own TAKE
            expired = self.expired if prepared is None else [r for take in prepared.takes for r in take.expired]
            record = TakeRecord(self.group, list(self.ranges), expired)
            plan.add(record.frame(count), tx, record=record)
        plan.commit("take", count, tx)
        plan.settled.add(tx)
        return CommitResult(tx)

    def appended(self, state: ChannelState) -> None:
        if self.position is not None:
            self.position.keep(state)


@dataclass(slots=True)
class Takes(Request):
    """Commit several take transactions of one group in one append.

    Args:
        takes: the transactions, in order; at least one.
    """

    takes: list[Take]
    _may_be_there: bool = field(default=False, kw_only=True)

    def may_repeat(self) -> bool:
        self._may_be_there = all(take.prepared for take in self.takes)
        return self._may_be_there

    def size_bytes(self) -> int:
        return sum(take.size_bytes() for take in self.takes)

    def tier(self, plan: AppendPlan) -> Tier:
        in_memory = all(take.tier(plan) is Tier.MEMORY for take in self.takes)
        return Tier.MEMORY if in_memory else Tier.DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        left = [take for take in self.takes if not self._may_be_there or plan.open_take(take.prepared) is not None]
        return [CommitResult(), *[take.plan(plan) for take in left]][-1]

    def appended(self, state: ChannelState) -> None:
        self.takes[-1].appended(state)


@dataclass(slots=True)
class TakesAndPrepare(Request):
    """Commit take transactions and record another one, in one append: a micro-batch ends and the next begins.

    Args:
        takes: what ends.
        prepare: what begins.
    """

    takes: Takes
    prepare: Prepare

    def may_repeat(self) -> bool:
        return self.takes.may_repeat() and self.prepare.may_repeat()

    def size_bytes(self) -> int:
        return self.takes.size_bytes() + self.prepare.size_bytes()

    def tier(self, plan: AppendPlan) -> Tier:
        in_memory = all(request.tier(plan) is Tier.MEMORY for request in (self.takes, self.prepare))
        return Tier.MEMORY if in_memory else Tier.DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        self.takes.plan(plan)
        return self.prepare.plan(plan)

    def appended(self, state: ChannelState) -> None:
        self.takes.appended(state)


@dataclass(slots=True)
class Rollback(Request):
    """Roll back take transactions that `Prepare` wrote, by their IDs."""

    transactions: list[int]

    def may_repeat(self) -> bool:
        return True

    def size_bytes(self) -> int:
        return _COMMIT_BYTES * len(self.transactions)

    def tier(self, plan: AppendPlan) -> Tier:
        pending = [plan.state.pending[tx] for tx in self.transactions if tx in plan.state.pending]
        in_memory = plan.memory_room is not None and all(p.in_memory for p in pending)
        return Tier.MEMORY if pending and in_memory else Tier.DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        for tx in self.transactions:
            if plan.open_take(tx) is not None:
                plan.settled.add(tx)
                plan.add(Frame.of(FrameType.ROLLBACK, b""), tx)
        return CommitResult()


@dataclass(slots=True)
class PrepareOnDisk(Request):
    """Copy take transactions that `Prepare` wrote in memory to the disk tier.

    Args:
        transactions: the TAKE records by transaction ID.
    """

    transactions: dict[int, list[TakeRecord]]

    def size_bytes(self) -> int:
        every = [take for takes in self.transactions.values() for take in takes]
        return sum(_COMMIT_BYTES + 20 * (len(take.ranges) + len(take.expired)) for take in every)

    def plan(self, plan: AppendPlan) -> CommitResult:
        for tx, takes in self.transactions.items():
            for take in takes:
                plan.add(take.frame(count_of(take.ranges)), tx, record=take)
        return CommitResult()


@dataclass(slots=True)
class Control(Request):
    """A change of options, schemas or groups, or a record about the memory tier.

    Args:
        type: OPTIONS, SCHEMA, GROUP, RESERVE or LOST.
        value: the record, as the type has it (`spillable_stream.format.record`).
    """

    type: FrameType
    value: ControlRecord

    def may_repeat(self) -> bool:
        return True  # each states a result, and not a difference

    def size_bytes(self) -> int:
        return 2 * _COMMIT_BYTES + len(pack(self.value))

    def plan(self, plan: AppendPlan) -> CommitResult:
        tx = plan.new_transaction()
        value = self.value
        if self.type == FrameType.GROUP:
            value = _of_events_left(cast("GroupRecord", value), plan.state)
        packed = pack(value)
        plan.add(Frame.of(self.type, packed), tx, record=parse_record(self.type, packed))
        plan.commit("control", 0, tx)
        return CommitResult(tx)


def _of_events_left(group: GroupRecord, state: ChannelState) -> GroupRecord:
    """Return the record of a group that begins at events that have not left since its position was chosen."""
    if "position" not in group:
        return group
    position = max(group["position"], state.beginning() - 1)
    found: GroupRecord = {**group, "position": position}
    if left := state.left_after(position):
        found["left"] = left
    return found


@dataclass(slots=True)
class Move(Request):
    """Move events from the memory tier to the disk tier. They keep their IDs, times and transactions.

    Args:
        entries: the PUT frames, unchanged.
        segments: segments that were copied to disk, with the IDs of their events.
    """

    entries: list[Entry]
    segments: list[SegmentRef]

    def size_bytes(self) -> int:
        return (
            sum([frame_size(e.header.length) for e in self.entries])
            + 2 * _COMMIT_BYTES
            + _SEGMENT_BYTES * len(self.segments)
        )

    def plan(self, plan: AppendPlan) -> CommitResult:
        tx = plan.new_transaction()
        plan.entries += self.entries
        count = sum(e.header.count for e in self.entries) + sum(s.count for s in self.segments)
        plan.commit("move", count, tx, segments=self.segments)
        return CommitResult(tx)
