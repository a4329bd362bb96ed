"""The channel's state, derived from the log alone.

`ChannelState.apply` is the only way to change the queue. Committing, following another process's
commits and replaying after a crash all call it; only the source of the frames differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spillable_stream.errors import CorruptionError
from spillable_stream.format.commit_record import CommitRecord, Merged, Seen
from spillable_stream.format.expiry import NEVER, Expiry
from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import COMMIT, CONTROL_TYPES, FILE_HEADER, PUT, TAKE, FrameHeader, FrameType
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.record import Record, parse_record
from spillable_stream.format.take_record import GroupTaken, TakeRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.block import Block
from spillable_stream.state.block_index import BlockIndex
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.contents import Contents, OwnerRecord, Pending, Recovery, Restore, Trimmed
from spillable_stream.state.control_records import apply_control
from spillable_stream.state.delays import Delays
from spillable_stream.state.group import GroupState
from spillable_stream.state.image import (
    ObjectsImage,
    RecoveriesImage,
    RestoresImage,
    RetentionImage,
    SmallImage,
    StateImage,
    TierImage,
    image_of,
)
from spillable_stream.state.producer_history import ProducerHistory
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.state.spill_rules import MemoryTierInfo, overflow_lasts
from spillable_stream.state.wall_clock import ClockReading, Jump, WallClock

__all__ = ["ChannelState", "Pending", "restored"]

_MAX_SINKS = 10_000


class ChannelState(Contents):
    """The queue of one channel at one position of its logs.

    Args:
        options: the stored channel options.
        schemas: the channel's schemas, as Arrow IPC messages, oldest first.
    """

    # Declared again for type checkers, since it is set here: `Contents` explains them.
    next_id: int
    next_transaction: int
    time_us: int
    overflow: bool
    spilled: int

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
                tx: [(t.group, t.ranges, t.expired) if t.expired else (t.group, t.ranges) for t in pending.takes]
                for tx, pending in self.pending.items()
                if pending.takes
            },
            **self.producers.image(),
            **self._tier_image(),
            **self._retention_image(),
            **self._objects_image(),
            **self.delays.image(),
            **self._restores_image(),
            **self._recoveries_image(),
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

    def _objects_image(self) -> ObjectsImage:
        """Return what only a log of objects has, as plain values; {} for a channel on a disk."""
        image: ObjectsImage = {}
        if self.trimmed != Trimmed():
            image["trimmed"] = self.trimmed
        if self.owners:
            image["owners"] = {group: (o.epoch, o.note, o.claim, o.process) for group, o in self.owners.items()}
        return image

    def _restores_image(self) -> RestoresImage:
        """Return the restores, as plain values; {} for a channel that no restore made."""
        return {"restores": list(self.restores)} if self.restores else {}

    def _recoveries_image(self) -> RecoveriesImage:
        """Return the last recoveries, as plain values; {} if none was recorded."""
        return {"recoveries": list(self.recoveries)} if self.recoveries else {}

    def image(self) -> StateImage:
        """Return the whole state as plain values, for a checkpoint."""
        return {**self.small(), "blocks": self.blocks.image()}

    def copy(self) -> ChannelState:
        """Return another state with the same contents; raises what `restored` raises."""
        return restored(self.image())

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
        state.blocks = Blocks((Block(*b) for b in image.get("blocks", ())), state.floor - 1)
        state.clock = WallClock(
            ClockReading(*image["clock"]) if "clock" in image else None, [Jump(*j) for j in image.get("jumps", ())]
        )
        state.trimmed = Trimmed(*image.get("trimmed", ()))
        state.owners = {group: OwnerRecord(*owner) for group, owner in image.get("owners", {}).items()}
        state.delays = Delays(*image.get("delays", ()))
        state.restores = [Restore(*restore) for restore in image.get("restores", ())]
        state.recoveries = [Recovery(*recovery) for recovery in image.get("recoveries", ())]
        for tx, takes in image["taking"].items():
            records = [TakeRecord(take[0], *([(a, b) for a, b in ranges] for ranges in take[1:])) for take in takes]
            state.pending[tx] = Pending(takes=tuple(records))
        if "memory" in image:
            state.memory = MemoryTierInfo(*image["memory"][:-4])
            state.overflow, state.spilled, in_memory, state.memory_only_sinks = image["memory"][-4:]
            for tx in in_memory:
                state.pending[tx].in_memory = True
            if state.memory.open:  # images of earlier versions lack the list: assume every group
                state.memory_only_groups = dict.fromkeys(image.get("unsaidGroups", state.groups))
            state.lost, state.doubtful = (RangeSet((a, b) for a, b in ranges) for ranges in image["lost"])
        return state

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
        tx, kind = header.transaction_id, header.type
        if tx >= self.next_transaction:
            self.next_transaction = tx + 1
        if header.time_us > self.time_us and kind is not FILE_HEADER:
            self.time_us = header.time_us
        if kind is PUT:
            if (pending := self.pending.get(tx)) is None:
                pending = self.pending[tx] = Pending()
            pending.frames.append((file_id, offset, header))
        elif kind is COMMIT:
            assert isinstance(record, CommitRecord)
            self._commit(tx, file_id, header, record)
        elif kind is TAKE:
            pending = self.pending.setdefault(tx, Pending())
            if pending.in_memory and not in_memory(file_id):  # the same take, repeated in the disk tier's log
                pending.takes = ()
            pending.in_memory = in_memory(file_id)
            assert isinstance(record, TakeRecord)
            pending.takes += (record,)
            if (group := self.groups.get(record.group)) is not None and group.is_automatic:
                group.has_planned, group.idle_ms = True, 0
        elif kind is FrameType.ROLLBACK:
            self.pending.pop(tx, None)
        elif kind in CONTROL_TYPES:
            self.pending.setdefault(tx, Pending()).controls += ((kind, record),)

    def _commit(self, tx: int, file_id: int, header: FrameHeader, record: CommitRecord) -> None:
        is_in_memory = in_memory(file_id)
        pending = self.pending.pop(tx, None) or Pending()
        if self.memory.generation:
            self._leave_frames(tx, pending, is_in_memory)
        if record.seen:
            self.merge(record.seen)
            self.raise_floor()
            self.memory_only_sinks.clear()
            self.memory_only_groups.clear()
            self.producers.memory_only.clear()
        if record.recovery:
            self.begin_recovery(record.recovery)
        for type_, value in pending.controls:
            apply_control(self, type_, value)
        if record.kind == "take" and not pending.takes:
            raise ValueError("it commits a take that is not in the log")
        if record.kind == "move":
            self._move(file_id, record)
        elif record.merged is not None:
            self._merge(record.merged)
        elif record.kind == "put":
            self._put(file_id, header, record, pending, self.blocks.memory if is_in_memory else self.blocks.disk)
        for take in pending.takes:
            group = self.groups.get(take.group)
            if group is not None:
                for first, last in take.expired:
                    group.pass_over(first, last)
                for first, last in take.ranges:
                    group.took(first, last)
                if is_in_memory:
                    self.memory_only_groups[take.group] = None
        if record.sink:
            self._remember_sink(*record.sink, is_in_memory)
        if record.producer:
            ids = header.write_order_id, header.write_order_id + header.count - 1
            name, numbers, note = record.producer
            self.producers.record(name, numbers, ids, in_memory=is_in_memory, note=note)
        if record.delayed or record.delivered:
            self.delays.apply(record.delayed, record.delivered)
        if pending.takes or pending.controls or record.kind != "put":  # no group is further with what is put
            self.raise_floor()
        if pending.takes and len(self.blocks.memory):
            self._drop_taken(r for take in pending.takes for r in take.ranges)
        if record.spilled or self.overflow:
            self._settle_overflow(record)

    def _remember_sink(self, query: str, batch: int, is_in_memory: bool) -> None:
        """Note the last batch of a Spark query; of very many queries, those that committed last are remembered."""
        self.sinks.pop(query, None)
        self.sinks[query] = batch
        if is_in_memory:
            self.memory_only_sinks[query] = batch
        while len(self.sinks) > _MAX_SINKS:
            del self.sinks[next(iter(self.sinks))]

    def _drop_taken(self, ranges: Iterable[Range]) -> None:
        """Forget blocks of the memory tier above the floor that no group needs, so their memory can be reused."""
        memory, not_needed = self.blocks.memory, self.not_needed()
        if not not_needed or self.options.keeps:
            return
        for block in [b for first, last in ranges for b in memory.between(first, last)]:
            if next(not_needed.gaps(max(block.first_id, self.floor), block.last_id), None) is None:
                memory.remove(block.first_id)

    def _leave_frames(self, tx: int, pending: Pending, is_in_memory: bool) -> None:
        """Leave the frames of the other tier's log pending, which a COMMIT does not cover.

        The frames of a move keep their original transaction IDs, so both logs can have frames of one transaction.
        """
        others = [f for f in pending.frames if in_memory(f[0]) != is_in_memory]
        if others:
            self.pending[tx] = Pending(frames=others)
            pending.frames = [f for f in pending.frames if in_memory(f[0]) == is_in_memory]

    def _put(self, file: int, header: FrameHeader, record: CommitRecord, pending: Pending, index: BlockIndex) -> None:
        first, time_us, is_dated = header.write_order_id, header.time_us, self.options.retention_ms > 0
        for s in record.segments:
            where = first, s.count, s.name, 0, s.payload_bytes, time_us
            until_us = time_us if is_dated else 0
            self.blocks.add(Block(*where, first, header.transaction_id, file, until_us, *s.expiry.since(time_us)))
            first += s.count
        for file_id, offset, put in pending.frames:
            _, length, _, first_id, count, _, put_us, _, ttl_us, _ = put
            expiry = Expiry.after(ttl_us, put_us) if ttl_us else NEVER
            until_us = put_us if is_dated else 0
            if not index.extend(file_id, offset, first_id, count, length, put_us, until_us, expiry):
                index.insert(_block(file_id, offset, put, is_dated))
        self.next_id = max(self.next_id, header.write_order_id + header.count)

    def _move(self, commit_file: int, record: CommitRecord) -> None:
        """Move the events in the frames and segments of this append from the memory tier's index to the disk tier's."""
        moved: list[Block] = []
        is_dated = self.options.retention_ms > 0
        for s in record.segments:
            where = s.first_id, s.count, s.name, 0, s.payload_bytes, s.time_us
            until_us, expiry = s.time_us if is_dated else 0, s.expiry.since(s.time_us)
            moved.append(Block(*where, s.first_id, s.transaction_id, commit_file, until_us, *expiry))
        for tx, pending in list(self.pending.items()):
            moved += [_block(*frame, is_dated) for frame in pending.frames]
            pending.frames = []
            if not pending.takes and not pending.controls:
                del self.pending[tx]
        together = BlockIndex()
        for block in sorted(moved, key=lambda b: b.first_id):
            self.blocks.memory.remove(block.first_id)
            if block.last_id >= self.first_kept:
                together.add(block)
        disk = self.blocks.disk
        join = disk.join if self.options.keeps else disk.insert  # moves never end there: one block for each is too many
        for block in together:
            join(block)

    def _merge(self, merged: Merged) -> None:
        """Note that events are in another object now; each run replaces the blocks that it was planned on."""
        disk = self.blocks.disk
        for run in merged.runs:
            for block in list(disk.between(run.first_id, run.first_id + run.count - 1)):
                disk.remove(block.first_id)
            where = run.first_id, run.count, merged.name, run.offset, run.payload_bytes, run.time_us
            disk.insert(Block(*where, 0, 0, 0, run.until_us, *run.expiry))

    def needs_upkeep(self) -> bool:
        """Tell whether something has to be done in time: taken events are kept, or a group is automatic."""
        return self.options.keeps or any(group.is_automatic for group in list(self.groups.values()))

    def memory_only(self) -> Seen:
        """Return what only the memory tier's log has recorded. The next COMMIT in the disk tier's log repeats it."""
        groups = {name: self.groups[name].taken() for name in self.memory_only_groups if name in self.groups}
        found: Seen = {"next": self.next_id, "groups": groups}
        if passed := {name: self.groups[name].passed for name in groups if self.groups[name].passed}:
            found["passed"] = passed
        if self.memory_only_sinks:
            found["sinks"] = dict(self.memory_only_sinks)
        if self.producers.memory_only:
            found["producers"] = self.producers.memory_only_image()
            if notes := self.producers.memory_only_notes():
                found["notes"] = notes
        return found

    def _settle_overflow(self, record: CommitRecord) -> None:
        """Start the overflow when a put finds memory full; end it once takes have freed enough."""
        if record.spilled:
            self.spilled += 1
            self.overflow = self.overflow or record.spilled == "full"
        elif self.overflow and record.kind != "put":
            self.overflow = overflow_lasts(self.memory_free_percent(), self.options.overflow_deactivation_threshold)

    def do_without_memory(self, next_id: int, groups: dict[str, GroupTaken]) -> None:
        """Forget the events in memory, and keep what is known about them.

        Args:
            next_id: the next write-order ID, as far as it is known.
            groups: what each group has taken, by name.
        """
        self.merge({"next": next_id, "groups": groups})
        self.blocks.memory.clear()
        self.raise_floor()


def _block(file_id: int, offset: int, put: FrameHeader, is_dated: bool) -> Block:
    _, length, _, first_id, count, _, time_us, _, ttl_us, _ = put
    block = Block(first_id, count, file_id, offset, length, time_us, until_us=time_us if is_dated else 0)
    if ttl_us:
        block.expire(Expiry.after(ttl_us, time_us))
    return block


def restored(image: Mapping[str, object], path: str = "") -> ChannelState:
    """Return the state that an image holds.

    Args:
        image: the image.
        path: the file that it comes from, for the error.

    Raises:
        CorruptionError: the image is invalid.
    """
    try:
        return ChannelState.from_image(image)
    except NONSENSE as e:
        raise CorruptionError(f"a state is invalid: {type(e).__name__}: {e}", path, 0 if path else None) from e
