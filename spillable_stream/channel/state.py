"""The channel's state: what the log says, and nothing else.

`ChannelState.apply` is the only way the queue changes. Committing, following another process's
commits and replaying after a crash are this one function, fed from different places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spillable_stream.channel.blocks import Block, BlockIndex
from spillable_stream.channel.ranges import RangeSet
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.record import CommitRecord, TakeRecord, unpack

__all__ = ["ChannelState", "GroupState"]

_MAX_SINKS = 10_000


@dataclass(slots=True)
class GroupState:
    """A group's position.

    Args:
        position: every event up to this ID was taken.
        ahead: events after it that were taken too.
    """

    position: int
    ahead: RangeSet = field(default_factory=RangeSet)

    def take(self, first: int, last: int) -> None:
        """Note that the events of a range were taken."""
        self.ahead.add(max(first, self.position + 1), last)
        for start, end in self.ahead:
            if start == self.position + 1:
                self.position = end
                self.ahead.remove(start, end)
            break


@dataclass(slots=True)
class _Pending:
    """The records of a transaction whose COMMIT has not come."""

    frames: list[tuple[int, int, FrameHeader]] = field(default_factory=list)
    takes: list[TakeRecord] = field(default_factory=list)
    controls: list[tuple[FrameType, Any]] = field(default_factory=list)


class ChannelState:
    """The queue of one channel at one position of its log.

    Attributes:
        next_id: the next write-order ID.
        next_transaction: the next transaction ID.
        floor: the first event that some group still has to take.
        time_us: the time of the last commit.
        options: the stored channel options.
        schemas: the channel's schemas, as Arrow IPC messages, oldest first.
        groups: the consumers.
        sinks: the last batch ID of every Spark query that wrote here.
        blocks: where the events are.
        pending: transactions in flight.
    """

    def __init__(self, options: dict[str, Any], schemas: list[bytes]) -> None:
        self.next_id = 1
        self.next_transaction = 1
        self.floor = 1
        self.time_us = 0
        self.options = dict(options)
        self.schemas = list(schemas)
        self.groups: dict[str, GroupState] = {}
        self.sinks: dict[str, int] = {}
        self.blocks = BlockIndex()
        self.pending: dict[int, _Pending] = {}

    # ── snapshots ───────────────────────────────────────────────────────────────────────────

    def small(self) -> dict[str, Any]:
        """Return all but the blocks, as plain values: what every data file begins with."""
        return {
            "nextId": self.next_id,
            "nextTransaction": self.next_transaction,
            "floor": self.floor,
            "time": self.time_us,
            "options": dict(self.options),
            "schemas": list(self.schemas),
            "groups": {name: [g.position, list(g.ahead)] for name, g in self.groups.items()},
            "sinks": dict(self.sinks),
            "taking": {
                tx: [[t.group, t.ranges] for t in pending.takes]
                for tx, pending in self.pending.items()
                if pending.takes
            },
        }

    def image(self) -> dict[str, Any]:
        """Return the whole state as plain values, for a checkpoint."""
        return {**self.small(), "blocks": self.blocks.image()}

    @classmethod
    def from_image(cls, image: dict[str, Any]) -> ChannelState:
        """Return the state of which `image` or `small` was taken."""
        state = cls(image["options"], image["schemas"])
        state.next_id = image["nextId"]
        state.next_transaction = image["nextTransaction"]
        state.floor = image["floor"]
        state.time_us = image["time"]
        state.groups = {
            n: GroupState(p, RangeSet((a, b) for a, b in ahead)) for n, (p, ahead) in image["groups"].items()
        }
        state.sinks = dict(image["sinks"])
        state.blocks = BlockIndex(Block(*b) for b in image.get("blocks", ()))
        for tx, takes in image["taking"].items():
            records = [TakeRecord(group, [(a, b) for a, b in ranges]) for group, ranges in takes]
            state.pending[tx] = _Pending(takes=records)
        return state

    # ── derived ─────────────────────────────────────────────────────────────────────────────

    @property
    def last_id(self) -> int:
        """The last write-order ID in use."""
        return self.next_id - 1

    def stored(self) -> int:
        """Return how many events are in the channel: those that some group has yet to take."""
        return self.next_id - self.floor - self._taken_by_all().size()

    def _taken_by_all(self) -> RangeSet:
        """Return the events above the floor that no group needs any more."""
        groups = list(self.groups.values())
        if not groups or any(not g.ahead and g.position < self.floor for g in groups):
            return RangeSet()
        needed = RangeSet()
        for g in groups:
            for first, last in g.ahead.gaps(max(g.position + 1, self.floor), self.last_id):
                needed.add(first, last)
        return RangeSet(needed.gaps(self.floor, self.last_id))

    def missing(self) -> tuple[int, int] | None:
        """Return the range of events that should be here but have no place, or None."""
        if self.floor > self.last_id:
            return None
        first = self.blocks.first_id() or self.next_id
        return (self.floor, first - 1) if first > self.floor else None

    def open_takes(self, group: str) -> list[int]:
        """Return the IDs of the take transactions of a group that are written but not committed."""
        return [tx for tx, p in self.pending.items() if any(t.group == group for t in p.takes)]

    # ── the one way to change ───────────────────────────────────────────────────────────────

    def apply(self, file_id: int, offset: int, header: FrameHeader, payload: bytes | None) -> None:
        """Apply one frame of the log.

        Args:
            file_id: the data file that it is in.
            offset: where in the file.
            header: its header.
            payload: its payload; None for PUT frames, whose events stay where they are.
        """
        tx = header.transaction_id
        self.next_transaction = max(self.next_transaction, tx + 1)
        match header.type:
            case FrameType.PUT:
                self.pending.setdefault(tx, _Pending()).frames.append((file_id, offset, header))
            case FrameType.TAKE:
                self.pending.setdefault(tx, _Pending()).takes.append(TakeRecord.parse(payload or b""))
            case FrameType.OPTIONS | FrameType.SCHEMA | FrameType.GROUP:
                controls = self.pending.setdefault(tx, _Pending()).controls
                controls.append((header.type, unpack(payload or b"")))
            case FrameType.ROLLBACK:
                self.pending.pop(tx, None)
            case FrameType.COMMIT:
                self._commit(tx, file_id, header, CommitRecord.parse(payload or b""))

    def _commit(self, tx: int, file_id: int, header: FrameHeader, record: CommitRecord) -> None:
        pending = self.pending.pop(tx, _Pending())
        self.time_us = max(self.time_us, header.time_us)
        for type_, value in pending.controls:
            self._control(type_, value)
        self._put(tx, file_id, header, record, pending)
        for take in pending.takes:
            group = self.groups.get(take.group)
            if group is not None:
                for first, last in take.ranges:
                    group.take(first, last)
        if record.sink:
            query, batch = record.sink
            self.sinks.pop(query, None)
            self.sinks[query] = batch
            while len(self.sinks) > _MAX_SINKS:
                del self.sinks[next(iter(self.sinks))]
        self._raise_floor()

    def _put(self, tx: int, commit_file: int, header: FrameHeader, record: CommitRecord, pending: _Pending) -> None:
        first = header.write_order_id
        for s in record.segments:
            self.blocks.add(Block(first, s.count, s.name, 0, s.payload_bytes, header.time_us, first, tx, commit_file))
            first += s.count
        for file_id, offset, put in pending.frames:
            self.blocks.add(Block(put.write_order_id, put.count, file_id, offset, put.length, put.time_us))
        if record.kind == "put":
            self.next_id = max(self.next_id, header.write_order_id + header.count)

    def _control(self, type_: FrameType, value: Any) -> None:
        if type_ == FrameType.OPTIONS:
            self.options.update(value)
        elif type_ == FrameType.SCHEMA:
            if value["id"] == len(self.schemas):
                self.schemas.append(value["schema"])
        elif value.get("drop"):
            self.groups.pop(value["group"], None)
        else:
            # Events may have left between the choice of the position and its commit.
            self.groups.setdefault(value["group"], GroupState(max(value["position"], self.floor - 1)))

    def _raise_floor(self) -> None:
        """Let go of the events that every group has taken."""
        if self.groups:
            floor = min(g.position for g in self.groups.values()) + 1
            if floor > self.floor:
                self.floor = floor
                self.blocks.drop_through(floor - 1)
