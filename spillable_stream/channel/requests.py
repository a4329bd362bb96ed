"""What can be committed: requests, and how each becomes log entries under the channel's lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spillable_stream.channel.ranges import Range
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import ChannelFullError
from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.record import CommitRecord, SegmentRef, TakeRecord, pack
from spillable_stream.log.wal import Entry

__all__ = ["Abandon", "Committed", "Control", "Plan", "Prepare", "Put", "Request", "Take"]

# A bound of what a COMMIT frame takes, beside its segments.
_COMMIT_BYTES = 512
_SEGMENT_BYTES = 256


@dataclass(slots=True)
class Committed:
    """What a commit gave.

    Args:
        transaction_id: the transaction; 0 if nothing was written.
        first_id: the first event's write-order ID; 0 if there are none.
        last_id: the last event's; before ``first_id`` if there are none.
    """

    transaction_id: int = 0
    first_id: int = 0
    last_id: int = -1


@dataclass(slots=True)
class Plan:
    """The entries of one append, built request by request.

    Args:
        state: the channel's state, up to date.
        start: the offset at which the append begins.
        time_us: the time of its commits.
    """

    state: ChannelState
    start: int
    time_us: int
    entries: list[Entry] = field(default_factory=list)
    next_id: int = 0
    next_transaction: int = 0
    put: int = 0
    sinks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next_id = self.state.next_id
        self.next_transaction = self.state.next_transaction

    def new_transaction(self) -> int:
        """Return a new transaction's ID."""
        self.next_transaction += 1
        return self.next_transaction - 1

    def add(self, frame: Frame, transaction_id: int, write_order_id: int = 0) -> None:
        """Append a frame."""
        self.entries.append(Entry(frame, transaction_id, write_order_id, self.time_us))


class Request:
    """Something that one transaction does to the channel."""

    def size_bytes(self) -> int:
        """Return at most how many bytes it takes in the log."""
        raise TypeError(f"{type(self).__name__} has no size")

    def plan(self, plan: Plan) -> Committed:
        """Add the request's entries to a plan, or raise and add nothing."""
        raise TypeError(f"{type(self).__name__} can't be planned")


@dataclass(slots=True)
class Put(Request):
    """A put transaction.

    Args:
        frames: PUT frames that go into the log.
        segments: staged files that are adopted; their events come first.
        sink: query ID and batch ID; a batch that was committed before is not again.
    """

    frames: list[Frame]
    segments: list[SegmentRef] = field(default_factory=list)
    sink: tuple[str, int] | None = None

    def size_bytes(self) -> int:
        return total_size(self.frames) + _COMMIT_BYTES + _SEGMENT_BYTES * len(self.segments)

    def count(self) -> int:
        """Return how many events there are."""
        return sum(f.count for f in self.frames) + sum(s.count for s in self.segments)

    def plan(self, plan: Plan) -> Committed:
        if self.sink:
            query, batch = self.sink
            if batch <= plan.sinks.get(query, plan.state.sinks.get(query, -1)):
                return Committed()
        count = self.count()
        capacity = plan.state.options["overflow_capacity"]
        stored = plan.state.stored() + plan.put
        if stored + count > capacity:
            raise ChannelFullError(
                f"{count:,} events do not fit: the channel holds {stored:,} of overflowCapacity {capacity:,}"
            )
        tx = plan.new_transaction()
        first = plan.next_id
        plan.next_id += sum(s.count for s in self.segments)
        for frame in self.frames:
            plan.add(frame, tx, plan.next_id)
            plan.next_id += frame.count
        plan.put += count
        plan.add(CommitRecord("put", plan.start, self.segments, self.sink).frame(count), tx, first)
        if self.sink:
            plan.sinks[self.sink[0]] = self.sink[1]
        return Committed(tx, first, plan.next_id - 1)


@dataclass(slots=True)
class Prepare(Request):
    """Write that a group takes a range, without committing it: a micro-batch has begun."""

    group: str
    ranges: list[Range]

    def size_bytes(self) -> int:
        return _COMMIT_BYTES + 20 * len(self.ranges)

    def plan(self, plan: Plan) -> Committed:
        tx = plan.new_transaction()
        plan.add(TakeRecord(self.group, self.ranges).frame(sum(b - a + 1 for a, b in self.ranges)), tx)
        return Committed(tx)


@dataclass(slots=True)
class Take(Request):
    """Commit a take transaction.

    Args:
        group: the group that took.
        ranges: what it took.
        prepared: the transaction's ID if `Prepare` wrote it, else 0.
    """

    group: str
    ranges: list[Range]
    prepared: int = 0

    def size_bytes(self) -> int:
        return 2 * _COMMIT_BYTES + 20 * len(self.ranges)

    def plan(self, plan: Plan) -> Committed:
        count = sum(b - a + 1 for a, b in self.ranges)
        tx = self.prepared
        if tx not in plan.state.pending:
            tx = plan.new_transaction()
            plan.add(TakeRecord(self.group, self.ranges).frame(count), tx)
        plan.add(CommitRecord("take", plan.start).frame(count), tx)
        return Committed(tx)


@dataclass(slots=True)
class Abandon(Request):
    """Roll back take transactions that `Prepare` wrote."""

    transactions: list[int]

    def size_bytes(self) -> int:
        return _COMMIT_BYTES * len(self.transactions)

    def plan(self, plan: Plan) -> Committed:
        for tx in self.transactions:
            if tx in plan.state.pending:
                plan.add(Frame.of(FrameType.ROLLBACK, b""), tx)
        return Committed()


@dataclass(slots=True)
class Control(Request):
    """A change of options, schemas or groups.

    Args:
        type: OPTIONS, SCHEMA or GROUP.
        value: the record's map (`spillable_stream.format.record`).
    """

    type: FrameType
    value: dict[str, Any]

    def size_bytes(self) -> int:
        return 2 * _COMMIT_BYTES + len(pack(self.value))

    def plan(self, plan: Plan) -> Committed:
        tx = plan.new_transaction()
        plan.add(Frame.of(self.type, pack(self.value)), tx)
        plan.add(CommitRecord("control", plan.start).frame(0), tx)
        return Committed(tx)
