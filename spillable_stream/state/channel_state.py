"""The channel's state, derived from the log alone.

`ChannelState.apply` is the only way to change the queue. Committing, following another process's
commits and replaying after a crash all call it; only the source of the frames differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.record import (
    CommitRecord,
    GroupRecord,
    GroupTaken,
    LostRecord,
    OptionsRecord,
    Record,
    ReserveRecord,
    RetentionRecord,
    SchemaRecord,
    Seen,
    TakeRecord,
    parse_record,
)
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.blocks import Block, BlockIndex, Blocks
from spillable_stream.state.group import GroupState
from spillable_stream.state.image import RetentionImage, SmallImage, StateImage, TierImage, image_of
from spillable_stream.state.producer_history import ProducerHistory
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.state.spill_rules import MemoryTierInfo, TierUsage, free_percent, overflow_lasts, payload_limit
from spillable_stream.state.wall_clock import ClockReading, Jump, WallClock

__all__ = ["ChannelState", "Pending"]

_MAX_SINKS = 10_000


@dataclass(slots=True)
class Pending:
    """The records of a transaction that is not committed yet."""

    frames: list[tuple[int, int, FrameHeader]] = field(default_factory=list)
    takes: list[TakeRecord] = field(default_factory=list)
    controls: list[tuple[FrameType, Record]] = field(default_factory=list)
    in_memory: bool = False


class ChannelState:
    """The queue of one channel at one position of its logs.

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
        lost: events that were lost with a memory tier before every group had taken them.
        doubtful: IDs that a lost memory tier may or may not have used.
        clock: by which clock the age of events is told.
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
        self._holders: list[str] = []  # groups that may hold the floor back: it rises only once none does

    # ── snapshots ───────────────────────────────────────────────────────────────────────────

    def small(self) -> SmallImage:
        """Return everything except the blocks, as plain values. Every data file begins with this image."""
        return {
            "nextId": self.next_id,
            "nextTransaction": self.next_transaction,
            "floor": self.floor,
            "time": self.time_us,
            "options": self.options.image(),
            "schemas": list(self.schemas),
            "groups": {name: g.image() for name, g in self.groups.items()},
            "sinks": dict(self.sinks),
            "taking": {
                tx: [(t.group, t.ranges) for t in pending.takes]
                for tx, pending in self.pending.items()
                if pending.takes
            },
            **self.producers.image(),
            **self._tier_image(),
            **self._retention_image(),
        }

    def _tier_image(self) -> TierImage:
        """Return the memory tier and the losses, as plain values; {} for a channel that never had either."""
        if not self.memory.generation and not self.lost and not self.doubtful:
            return {}
        in_memory = [tx for tx, p in self.pending.items() if p.takes and p.in_memory]
        image: TierImage = {
            "memory": (*self.memory.fields(), self.overflow, self.spilled, in_memory, dict(self.memory_only_sinks)),
            "lost": (list(self.lost), list(self.doubtful)),
        }
        if self.memory.open:
            image["unsaidGroups"] = list(self.memory_only_groups)
        return image

    def _retention_image(self) -> RetentionImage:
        """Return what is known of kept events, as plain values; {} for a channel that never kept any."""
        image: RetentionImage = {}
        if self.first_kept < self.floor:
            image["firstKept"] = self.first_kept
        if self.clock.reading is not None:
            image["clock"] = self.clock.reading
        if self.clock.jumps:
            image["jumps"] = list(self.clock.jumps)
        return image

    def image(self) -> StateImage:
        """Return the whole state as plain values, for a checkpoint."""
        return {**self.small(), "blocks": self.blocks.image()}

    @classmethod
    def from_image(cls, values: Mapping[str, object]) -> ChannelState:
        """Return the state that `image` or `small` returned; any other values raise one of `NONSENSE`."""
        image = image_of(values)
        state = cls(ChannelOptions.of(image["options"]), image["schemas"])
        state.next_id = image["nextId"]
        state.next_transaction = image["nextTransaction"]
        state.floor = image["floor"]
        state.time_us = image["time"]
        state.first_kept = image.get("firstKept", state.floor)
        state.groups = {name: GroupState.of(group) for name, group in image["groups"].items()}
        state.sinks = dict(image["sinks"])
        state.producers = ProducerHistory(image.get("producers"))
        state.blocks = Blocks(Block(*b) for b in image.get("blocks", ()))
        state.blocks.keep_through(state.floor - 1)
        state.clock = WallClock(
            ClockReading(*image["clock"]) if "clock" in image else None, [Jump(*j) for j in image.get("jumps", ())]
        )
        for tx, takes in image["taking"].items():
            records = [TakeRecord(group, [(a, b) for a, b in ranges]) for group, ranges in takes]
            state.pending[tx] = Pending(takes=records)
        if "memory" in image:
            state.memory = MemoryTierInfo(*image["memory"][:-4])
            state.overflow, state.spilled, in_memory, state.memory_only_sinks = image["memory"][-4:]
            for tx in in_memory:
                state.pending[tx].in_memory = True
            if state.memory.open:  # images of earlier versions lack the list: assume every group
                state.memory_only_groups = dict.fromkeys(image.get("unsaidGroups", state.groups))
            state.lost, state.doubtful = (RangeSet((a, b) for a, b in ranges) for ranges in image["lost"])
        return state

    # ── derived ─────────────────────────────────────────────────────────────────────────────

    @property
    def last_id(self) -> int:
        """The last write-order ID in use."""
        return self.next_id - 1

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
        return self.next_id - self.floor - self._not_needed().size()

    def use(self, in_memory: bool) -> TierUsage:
        """Return what a tier holds, counting only events that some group has yet to take for the first time."""
        index = self.blocks.memory if in_memory else self.blocks.disk
        events, size_bytes = index.events, index.payload_bytes
        taken: Iterable[Range] = self._not_needed()
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

    def drain_order(self) -> list[int]:
        """Return the lengths of runs of events in one tier, in take order; lengths of runs on disk are negative."""
        runs: list[int] = []
        not_needed = self._not_needed()
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

    def _not_needed(self, begin: int | None = None) -> RangeSet:
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
            for first, last in g.ahead.gaps(max(g.position + 1, begin), self.last_id):
                needed.add(first, last)
        return RangeSet(needed.gaps(begin, self.last_id))

    def _holds(self, name: str) -> bool:
        """Tell whether a group has yet to take the event at the floor, so the floor cannot rise."""
        group = self.groups.get(name)
        return group is not None and group.position < self.floor

    def missing(self) -> list[Range]:
        """Return the events that some group has yet to take but no file holds, in order."""
        not_needed: RangeSet | None = None
        found: list[Range] = []
        needed_from = self.needed_from()
        for first, last in self.blocks.gaps(needed_from, self.last_id):
            not_needed = self._not_needed(needed_from) if not_needed is None else not_needed
            found += not_needed.gaps(first, last)
        return found

    def open_takes(self, group: str) -> list[int]:
        """Return the IDs of a group's take transactions that are written but not committed."""
        return [tx for tx, p in self.pending.items() if any(t.group == group for t in p.takes)]

    def taking(self, group: str) -> dict[int, list[Range]]:
        """Return the ranges of a group's `open_takes`, by transaction ID, oldest first."""
        return {tx: [r for t in self.pending[tx].takes for r in t.ranges] for tx in sorted(self.open_takes(group))}

    def left_after(self, position: int) -> list[Range]:
        """Return the events after a position that no file holds, and that were not lost: they were taken ahead.

        In memory that frees them, though events before them are still there. A group that starts, or goes back, before
        them can't take them.
        """
        if not self.memory.generation:
            return []
        gone = self.gone()
        return [r for gap in self.blocks.gaps(position + 1, self.last_id) for r in gone.gaps(*gap)]

    # ── the one way to change ───────────────────────────────────────────────────────────────

    def apply(self, file_id: int, offset: int, header: FrameHeader, payload: bytes | None) -> None:
        """Apply one frame of the log.

        Args:
            file_id: the number of the frame's data file.
            offset: where the frame starts in the file, in bytes.
            header: the frame's header.
            payload: its payload; None for a PUT frame, whose events are not needed.
        """
        self.apply_record(file_id, offset, header, parse_record(header.type, payload))

    def apply_record(self, file_id: int, offset: int, header: FrameHeader, record: Record) -> None:
        """Apply one frame like `apply`, given its parsed payload (`parse_record`)."""
        tx = header.transaction_id
        self.next_transaction = max(self.next_transaction, tx + 1)
        if header.type != FrameType.FILE_HEADER:
            self.time_us = max(self.time_us, header.time_us)
        match header.type:
            case FrameType.PUT:
                self.pending.setdefault(tx, Pending()).frames.append((file_id, offset, header))
            case FrameType.TAKE:
                pending = self.pending.setdefault(tx, Pending())
                if pending.in_memory and not in_memory(file_id):  # the same take, repeated in the disk tier's log
                    pending.takes.clear()
                pending.in_memory = in_memory(file_id)
                assert isinstance(record, TakeRecord)
                pending.takes.append(record)
                if (group := self.groups.get(record.group)) is not None and group.is_automatic:
                    group.has_planned, group.idle_ms = True, 0
            case (
                FrameType.OPTIONS
                | FrameType.SCHEMA
                | FrameType.GROUP
                | FrameType.RESERVE
                | FrameType.LOST
                | FrameType.RETENTION
            ):
                controls = self.pending.setdefault(tx, Pending()).controls
                controls.append((header.type, record))
            case FrameType.ROLLBACK:
                self.pending.pop(tx, None)
            case FrameType.COMMIT:
                assert isinstance(record, CommitRecord)
                self._commit(tx, file_id, header, record)

    def _commit(self, tx: int, file_id: int, header: FrameHeader, record: CommitRecord) -> None:
        pending = self._take_pending(tx, file_id)
        if record.seen:
            self._merge(record.seen)
            self._raise_floor()
            self.memory_only_sinks.clear()
            self.memory_only_groups.clear()
            self.producers.memory_only.clear()
        for type_, value in pending.controls:
            self._control(type_, value)
        if record.kind == "take" and not pending.takes:
            raise ValueError("it commits a take that is not in the log")
        if record.kind == "move":
            self._move(file_id, record)
        elif record.kind == "put":
            self._put(tx, file_id, header, record, pending)
        for take in pending.takes:
            group = self.groups.get(take.group)
            if group is not None:
                for first, last in take.ranges:
                    group.took(first, last)
                if in_memory(file_id):
                    self.memory_only_groups[take.group] = None
        if record.sink:
            query, batch = record.sink
            self.sinks.pop(query, None)
            self.sinks[query] = batch
            if in_memory(file_id):
                self.memory_only_sinks[query] = batch
            while len(self.sinks) > _MAX_SINKS:
                del self.sinks[next(iter(self.sinks))]
        if record.producer:
            ids = header.write_order_id, header.write_order_id + header.count - 1
            self.producers.record(*record.producer, ids, in_memory=in_memory(file_id))
        self._raise_floor()
        if pending.takes and len(self.blocks.memory) and not self.options.keeps:
            self._drop_taken(r for take in pending.takes for r in take.ranges)
        self._settle_overflow(record)

    def _drop_taken(self, ranges: Iterable[Range]) -> None:
        """Forget blocks of the memory tier above the floor that no group needs, so their memory can be reused."""
        memory, not_needed = self.blocks.memory, self._not_needed()
        if not not_needed:
            return
        for block in [b for first, last in ranges for b in memory.between(first, last)]:
            if next(not_needed.gaps(max(block.first_id, self.floor), block.last_id), None) is None:
                memory.remove(block.first_id)

    def _take_pending(self, tx: int, file_id: int) -> Pending:
        """Remove and return the records that a COMMIT covers, and leave pending the frames of the other tier's log.

        The frames of a move keep their original transaction IDs, so both logs can have frames of one transaction.
        """
        pending = self.pending.pop(tx, None) or Pending()
        others = [f for f in pending.frames if in_memory(f[0]) != in_memory(file_id)]
        if others:
            self.pending[tx] = Pending(frames=others)
            pending.frames = [f for f in pending.frames if in_memory(f[0]) == in_memory(file_id)]
        return pending

    def _put(self, tx: int, commit_file: int, header: FrameHeader, record: CommitRecord, pending: Pending) -> None:
        first = header.write_order_id
        for s in record.segments:
            self.blocks.add(Block(first, s.count, s.name, 0, s.payload_bytes, header.time_us, first, tx, commit_file))
            first += s.count
        for file_id, offset, put in pending.frames:
            self.blocks.add(_block(file_id, offset, put))
        self.next_id = max(self.next_id, header.write_order_id + header.count)

    def _move(self, commit_file: int, record: CommitRecord) -> None:
        """Move the events in the frames and segments of this append from the memory tier's index to the disk tier's."""
        moved = [
            Block(s.first_id, s.count, s.name, 0, s.payload_bytes, s.time_us, s.first_id, s.transaction_id, commit_file)
            for s in record.segments
        ]
        for tx, pending in list(self.pending.items()):
            moved += [_block(*frame) for frame in pending.frames]
            pending.frames = []
            if not pending.takes and not pending.controls:
                del self.pending[tx]
        together = BlockIndex()
        for block in sorted(moved, key=lambda b: b.first_id):
            self.blocks.memory.remove(block.first_id)
            if block.last_id >= self.first_kept:
                together.add(block)
        for block in together:
            self.blocks.disk.insert(block)

    def memory_only(self) -> Seen:
        """Return what only the memory tier's log has recorded. The next COMMIT in the disk tier's log repeats it."""
        groups = {name: self.groups[name].taken() for name in self.memory_only_groups if name in self.groups}
        found: Seen = {"next": self.next_id, "groups": groups}
        if self.memory_only_sinks:
            found["sinks"] = dict(self.memory_only_sinks)
        if self.producers.memory_only:
            found["producers"] = self.producers.memory_only_image()
        return found

    def _merge(self, other: Seen | LostRecord) -> None:
        """Merge what only the memory tier's log had recorded."""
        self.next_id = max(self.next_id, other["next"])
        for query, batch in other.get("sinks", {}).items():
            self.sinks[query] = max(batch, self.sinks.get(query, batch))
        self.producers.merge(other.get("producers", {}))
        for name, (position, ahead) in other["groups"].items():
            if name in self.groups:
                self.groups[name].merge(position, ahead)

    def _settle_overflow(self, record: CommitRecord) -> None:
        """Start the overflow when a put finds memory full; end it once takes have freed enough."""
        if record.spilled:
            self.spilled += 1
            self.overflow = self.overflow or record.spilled == "full"
        elif self.overflow and record.kind != "put":
            self.overflow = overflow_lasts(self.memory_free_percent(), self.options.overflow_deactivation_threshold)

    def _control(self, type_: FrameType, value: Record) -> None:
        """Change what a control record says, which is as its frame's type has it, or raises when it is used."""
        match type_:
            case FrameType.OPTIONS:
                self._change_options(cast("OptionsRecord", value))
            case FrameType.SCHEMA:
                self._add_schema(cast("SchemaRecord", value))
            case FrameType.RESERVE:
                self._reserve(cast("ReserveRecord", value))
            case FrameType.LOST:
                self._lose(cast("LostRecord", value))
            case FrameType.GROUP:
                self._change_group(cast("GroupRecord", value))
            case FrameType.RETENTION:
                self._retain(cast("RetentionRecord", value))

    def _change_options(self, value: OptionsRecord) -> None:
        self.options = self.options.changed(value)
        self._let_go()
        if "byte_capacity" in value:
            self.memory.byte_capacity = self.options.byte_capacity or self.memory.byte_capacity

    def _add_schema(self, value: SchemaRecord) -> None:
        if value["id"] == len(self.schemas):
            self.schemas.append(value["schema"])

    def _reserve(self, value: ReserveRecord) -> None:
        tier = value["generation"], value["bytes"], value["open"], value["through"], value["token"]
        self.memory = MemoryTierInfo(*tier)
        if not self.memory.open:
            self._forget_memory()

    def _change_group(self, value: GroupRecord) -> None:
        group = self.groups.get(value["group"])
        if value.get("drop"):
            self.groups.pop(value["group"], None)
            self.memory_only_groups.pop(value["group"], None)
        elif "position" in value:
            if group is None:
                self._create_group(value)
        elif group is not None and "seek" in value:
            group.seek(min(max(value["seek"], self.beginning() - 1), self.last_id), value.get("reset", ""))
            self._tell_of_losses(group)
            _pass_over(group, value.get("left", ()))
        elif group is not None and "idle" in value:
            group.idle_ms = value["idle"]

    def _create_group(self, value: GroupRecord) -> None:
        # Events may have left the channel after the position was chosen and before this commit.
        first = max(value["position"], self.beginning() - 1)
        group = self.groups[value["group"]] = GroupState(first, is_automatic=value.get("auto", False))
        if "since" in value:  # the group that a stream had was dropped
            group.has_planned = True
            if value["since"] < first:
                group.expired.add(value["since"] + 1, first)
        self._tell_of_losses(group)
        _pass_over(group, value.get("left", ()))

    def _tell_of_losses(self, group: GroupState) -> None:
        for first, last in self.gone():
            group.lose(first, last)

    def _retain(self, value: RetentionRecord) -> None:
        """Let go of the oldest events, those too that some group has yet to take, and note what the clock is like."""
        reading, jump = value.get("clock"), value.get("jump")
        self.clock.note(ClockReading(*reading) if reading else None, Jump(*jump) if jump else None)
        through = min(value.get("through", 0), self.last_id)
        if through < self.first_kept:
            return
        for group in self.groups.values():
            group.expire(1, through)
        self.floor = max(self.floor, through + 1)
        self.first_kept = through + 1
        self.blocks.drop_through(through)
        self.blocks.keep_through(self.floor - 1)

    def do_without_memory(self, next_id: int, groups: dict[str, GroupTaken]) -> None:
        """Forget the events in memory, and keep what is known about them.

        Args:
            next_id: the next write-order ID, as far as it is known.
            groups: what each group has taken, by name.
        """
        self._merge({"next": next_id, "groups": groups})
        self.blocks.memory.clear()
        self._raise_floor()

    def _lose(self, value: LostRecord) -> None:
        """Record a loss, and forget the memory tier unless the record says that it was kept."""
        self._merge(value)
        for first, last in value["lost"]:
            self.lost.add(first, last)
        for first, last in value["doubtful"]:
            self.doubtful.add(first, last)
        gone = self.gone()
        for group in self.groups.values():
            for first, last in gone:
                group.lose(first, last)
        if not value.get("kept"):
            self.memory.open = False
            self._forget_memory()

    def _forget_memory(self) -> None:
        """Forget the memory tier's blocks, its uncommitted transactions and its overflow."""
        for tx in [tx for tx, pending in self.pending.items() if pending.in_memory]:
            del self.pending[tx]
        self.memory_only_groups.clear()
        self.blocks.memory.clear()
        self.overflow = False

    def _raise_floor(self) -> None:
        """Raise the floor past the events that every group has taken, and let go of what needs not be kept."""
        floor = self.floor
        if self.groups:
            while self._holders and not self._holds(self._holders[-1]):
                self._holders.pop()
            if self._holders:  # scanning all groups is slow when there are thousands
                if self.first_kept < floor:
                    self._let_go()
                return
            floor = min([g.position for g in self.groups.values()]) + 1
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
            self._let_go()

    def _let_go(self) -> None:
        """Forget events before the floor that nobody asks to keep: no option, and no group that went back."""
        if self.options.keeps or self.first_kept >= self.floor:
            return
        self.first_kept = max(self.first_kept, self.needed_from())
        self.blocks.drop_through(self.first_kept - 1)


def _pass_over(group: GroupState, left: Iterable[Range]) -> None:
    for first, last in left:
        group.take(first, last)


def _block(file_id: int, offset: int, put: FrameHeader) -> Block:
    return Block(put.write_order_id, put.count, file_id, offset, put.length, put.time_us)
