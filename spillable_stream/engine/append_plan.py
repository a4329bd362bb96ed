"""The entries of one append, built request by request under the commit lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spillable_stream.engine.delay_plan import DelayPlan
from spillable_stream.engine.group_owners import KeptPosition
from spillable_stream.format.commit_record import CommitRecord, DelayedRun, DeliveredRun, Merged, Seen, SegmentRef
from spillable_stream.format.file_names import DISK, MEMORY, Tier
from spillable_stream.format.frame import Frame
from spillable_stream.format.numbered_batch import NumberedBatch
from spillable_stream.format.record import Record
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.wal import Entry
from spillable_stream.state.channel_state import ChannelState, Pending
from spillable_stream.state.producer_history import Answer
from spillable_stream.state.ranges import Range
from spillable_stream.state.spill_rules import TierUsage

__all__ = ["NOTHING_COMMITTED", "AppendPlan", "CommitResult"]

_UNBOUNDED = 1 << 63  # bytes


class CommitResult(NamedTuple):
    """The result of a commit.

    Args:
        transaction_id: the transaction; 0 if nothing was written.
        first_id: the write-order ID of the first event; 0 without events.
        last_id: the write-order ID of the last event; less than ``first_id`` without events.
    """

    transaction_id: int = 0
    first_id: int = 0
    last_id: int = -1


NOTHING_COMMITTED = CommitResult()


class AppendPlan:
    """The entries of one append, built request by request.

    Args:
        state: the channel's state, up to date.
        tier: the tier whose log takes the entries. Until it is chosen, a placeholder.
        start: the offset at which the append begins; None where that is not known before a tier is chosen, and `begin`
            says it.
        recovery: the token of the channel's last recovery, for the first append to disk after it; "" if not known.

    Attributes:
        memory_room: tells whether the memory tier's files have room for that many more bytes; None where they have no
            part in the append. Whoever plans for memory sets it.
        entries: what it has so far.
        put_events: how many events its puts have.
        put_bytes: the size of their payloads.
        sinks: the last batch that it puts of each Spark query.
        batches: which events it puts for the batches of producers, by the producer and the batch's last number.
        settled: the prepared takes that it commits or rolls back, by their transaction IDs.
        overflow: whether the channel overflows once this is in the log (`ChannelState.overflow`).
        is_extended: whether it has records that earlier versions of this package can't read.
        positions: where it is kept, once this is in the log, what groups have taken, by group.
        next_side_file: the number of the next side file in a store; on a disk `delays` counts them.
    """

    start: int
    state: ChannelState
    tier: Tier

    def __init__(self, state: ChannelState, tier: Tier = DISK, start: int | None = 0, recovery: str = "") -> None:
        self.memory_room: Callable[[int], bool] | None = None
        self.entries: list[Entry] = []
        self.put_events: int = 0
        self.put_bytes: int = 0
        self.sinks: dict[str, int] = {}
        self.batches: dict[tuple[str, int], Answer] = {}
        self.settled: set[int] = set()
        self.positions: dict[str, KeptPosition] = {}
        self.state, self.tier = state, tier
        self._recovery = recovery
        self.overflow: bool = state.overflow
        if start is not None:
            self.begin(state, tier, start)

    def begin(self, state: ChannelState, tier: Tier, start: int) -> None:
        """Set where the append goes, after room was made for it and before anything is planned."""
        self.state, self.tier, self.start = state, tier, start
        # No two appends have the same time: the time orders the appends of the two tiers.
        self.time_us: int = max(time.time_ns() // 1000, state.time_us + 1)
        self.next_id: int = state.next_id
        self.next_transaction: int = state.next_transaction
        self.overflow = state.overflow
        self.is_extended: bool = False
        self._has_summary = False  # of the memory tier's log (`Seen`): the first COMMIT has all of it
        recoveries, recovery = state.recoveries, self._recovery
        is_recorded = tier is not DISK or (recoveries and recoveries[-1].token == recovery)
        self._unrecorded_recovery: str = "" if is_recorded else recovery
        self._plain: tuple[str, int, CommitRecord, Frame] | None = None  # the last COMMIT that says nothing else
        self.delays: DelayPlan | None = None
        self.next_side_file: int = state.delays.next_number

    def delay(self, files: DelayedFiles) -> DelayPlan:
        """Return what the append puts into side files so far, to be added to."""
        if self.delays is None:
            self.delays = DelayPlan(files, self.state.delays)
            self.is_extended = True
        return self.delays

    def attempt(self, plan_request: Callable[[AppendPlan], CommitResult]) -> CommitResult:
        """Plan one more request, or nothing of it: raises what ``plan_request`` raises."""
        entries, next_id, next_transaction = len(self.entries), self.next_id, self.next_transaction
        put_events, put_bytes = self.put_events, self.put_bytes
        overflow, has_summary, next_side_file = self.overflow, self._has_summary, self.next_side_file
        settled, recovery = self.settled.copy() if self.settled else None, self._unrecorded_recovery
        positions = self.positions.copy() if self.positions else None
        delays = self.delays.mark() if self.delays else None
        try:
            return plan_request(self)
        except BaseException:
            del self.entries[entries:]
            self.next_id, self.next_transaction = next_id, next_transaction
            self.put_events, self.put_bytes = put_events, put_bytes
            self.overflow, self._has_summary, self.next_side_file = overflow, has_summary, next_side_file
            self.settled, self._unrecorded_recovery = settled or set(), recovery
            self.positions = positions or {}
            if delays is not None:
                delays()
            else:
                self.delays = None
            raise

    def open_take(self, transaction_id: int) -> Pending | None:
        """Return a take transaction that `Prepare` wrote; None if an earlier request of this append ended it."""
        return None if transaction_id in self.settled else self.state.pending.get(transaction_id)

    def new_transaction(self) -> int:
        """Allocate a transaction ID."""
        self.next_transaction += 1
        return self.next_transaction - 1

    def add(self, frame: Frame, transaction_id: int, write_order_id: int = 0, record: Record = None) -> None:
        """Append a frame; ``record`` is its payload, parsed."""
        header = frame.header(transaction_id, write_order_id, self.time_us)
        self.entries.append((header, frame.payload, record))

    def commit(
        self,
        kind: str,
        count: int,
        transaction_id: int,
        write_order_id: int = 0,
        *,
        segments: list[SegmentRef] | None = None,
        sink: tuple[str, int] | None = None,
        producer: NumberedBatch | None = None,
        spilled: str = "",
        merged: Merged | None = None,
        delayed: list[DelayedRun] | None = None,
        delivered: list[DeliveredRun] | None = None,
    ) -> None:
        """Append the COMMIT of a transaction; `CommitRecord` explains the arguments.

        Most transactions of an append say the same there: they share a record and a frame.
        """
        # Only the first COMMIT of an append carries these: whatever a crash leaves of an append starts there.
        recovery, self._unrecorded_recovery = self._unrecorded_recovery, ""
        memory_only: Seen | None = None
        if self.tier is DISK and self.state.memory.open:
            memory_only = {"next": self.state.next_id, "groups": {}} if self._has_summary else self.state.memory_only()
            self._has_summary = True
        says_more = segments or sink or producer or spilled or merged or delayed or delivered or memory_only or recovery
        if not says_more and self._plain is not None and self._plain[0] == kind and self._plain[1] == count:
            _, _, record, frame = self._plain
            self.add(frame, transaction_id, write_order_id, record)
            return
        record = CommitRecord(kind, self.start, segments or [], sink, spilled, memory_only, producer, merged)
        if delayed:
            record.delayed = delayed
        if delivered:
            record.delivered = delivered
        record.recovery = recovery
        frame = record.frame(count)
        if not says_more:
            self._plain = kind, count, record, frame
        self.add(frame, transaction_id, write_order_id, record)

    def fits_disk(self, wanted: TierUsage) -> bool:
        """Tell whether the disk tier stays within ``overflowCapacity``, with the plan so far and what is wanted now."""
        state = self.state
        most = state.options.overflow_capacity
        planned = self.put_events if self.tier is DISK else 0
        # As `fits` has it, first without the objects that it makes: every put comes here.
        if wanted.events + planned + state.blocks.disk.events + state.delays.events <= most:
            return True
        return self.fits(wanted, (DISK,), TierUsage(most, _UNBOUNDED))

    def fits(self, wanted: TierUsage, tiers: Sequence[Tier], limits: TierUsage) -> bool:
        """Tell whether tiers stay within ``limits`` together, with the plan so far and what is wanted now."""
        blocks, events, payload_bytes = self.state.blocks, *wanted
        if self.tier in tiers:
            events += self.put_events
            payload_bytes += self.put_bytes
        held_events, held_bytes = events, payload_bytes
        for tier in tiers:
            index = blocks.memory if tier is MEMORY else blocks.disk
            events += index.events
            payload_bytes += index.payload_bytes
            if tier is DISK:
                events += self.state.delays.events
                payload_bytes += self.state.delays.payload_bytes
        # An upper bound: it counts blocks whole, even where a part was taken.
        if events <= limits.events and payload_bytes <= limits.payload_bytes:
            return True
        held = TierUsage(held_events, held_bytes)
        for tier in tiers:
            held = held.plus(self.state.use(tier is MEMORY))
        return held.is_within(limits)

    def all_in_memory(self, ranges: list[Range]) -> bool:
        """Tell whether none of these events is on disk."""
        if self.memory_room is None:
            return False
        disk = self.state.blocks.disk
        return not len(disk) or not any(True for first, last in ranges for _ in disk.between(first, last))
