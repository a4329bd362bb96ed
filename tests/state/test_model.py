"""Any sequence of records, beside a model that counts single events: what is kept, needed, gone, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spillable_stream.format.commit_record import CommitRecord, SegmentRef
from spillable_stream.format.file_names import in_memory, memory_file_id
from spillable_stream.format.frame import Frame, FrameHeader, FrameType
from spillable_stream.format.packing import pack, unpack
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.memory_loss_rules import lose_memory
from spillable_stream.state.ranges import Range, RangeSet
from tests.support.examples import examples

NAMES = st.sampled_from(["a", "b", "c"])
EVENT_BYTES = 10
MOSTLY = st.sampled_from([True, True, True, False])
RARELY = st.sampled_from([False, False, False, True])


@dataclass
class Group:
    """What a group has taken, event by event: those before its beginning too."""

    taken: set[int]
    lost: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)

    def took(self, first: int, last: int) -> None:
        self.taken |= set(range(first, last + 1))
        self.lost = {i for i in self.lost if i >= first}
        self.expired = {i for i in self.expired if i > last}


@dataclass
class Model:
    """A channel, event by event."""

    last: int = 0
    floor: int = 1
    first_kept: int = 1
    keeps: bool = False
    places: dict[int, str] = field(default_factory=dict)  # the tier of each event that is there
    gone: set[int] = field(default_factory=set)
    groups: dict[str, Group] = field(default_factory=dict)

    def untaken(self, name: str) -> list[int]:
        return [i for i in range(1, self.last + 1) if i not in self.groups[name].taken]

    def position(self, name: str) -> int:
        return min(self.untaken(name), default=self.last + 1) - 1

    def needed(self) -> set[int]:
        if not self.groups:
            return {i for i in range(self.floor, self.last + 1) if i not in self.gone}
        return {i for name in self.groups for i in self.untaken(name)}

    def beginning(self) -> int:
        first = self.first_kept
        while first - 1 in self.gone:
            first -= 1
        return first if first < self.first_kept else self.first_kept

    def settle(self) -> None:
        """Raise the floor as far as all groups have come, and let go of what nobody asks to keep."""
        if self.groups:
            self.floor = max(self.floor, min(self.position(name) for name in self.groups) + 1)
        else:
            while self.floor in self.gone:
                self.floor += 1
        if not self.keeps:
            back = [self.position(name) + 1 for name in self.groups]
            self.first_kept = max(self.first_kept, min([self.floor, *back]))


def ranges_of(ids: set[int]) -> list[Range]:
    return list(RangeSet((i, i) for i in ids))


class Machine(RuleBasedStateMachine):
    """Applies frames as replay does, and tells the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ChannelState(ChannelOptions(memory_capacity=1000), [b"schema"])
        self.model = Model()
        self.tx = 0
        self.ends = {1: 0}
        self.disk_file, self.memory_number, self.generation = 1, 0, 0
        self.time_us = 1_000_000
        self.frames: dict[int, tuple[int, FrameHeader]] = {}  # frames in memory by first ID: their file and header
        self.takes: dict[int, tuple[str, list[Range]]] = {}
        self.through = 0

    # ── frames ──────────────────────────────────────────────────────────────────────────────

    def memory_file(self) -> int:
        return memory_file_id(self.generation, self.memory_number)

    def frame(self, frame: Frame, tx: int, order: int = 0, *, file: int, size_bytes: int | None = None) -> FrameHeader:
        payload = bytes(frame.payload)
        length = len(payload) if size_bytes is None else size_bytes
        header = FrameHeader(frame.type, length, tx, order, frame.count, 0, self.time_us, 0)
        self.append(file, header, payload)
        return header

    def append(self, file: int, header: FrameHeader, payload: bytes) -> None:
        offset = self.ends.setdefault(file, 0)
        self.state.apply(file, offset, header, payload if header.type != FrameType.PUT else None)
        self.ends[file] = offset + 48 + header.length
        self.time_us += 1

    def commit(self, tx: int, kind: str, first: int = 0, count: int = 0, *, file: int, **more: Any) -> None:
        if not in_memory(file) and self.state.memory.open:
            more["seen"] = self.state.memory_only()
        self.frame(CommitRecord(kind, 0, **more).frame(count), tx, first, file=file)
        self.model.settle()

    def control(self, type_: FrameType, value: dict[str, Any]) -> None:
        self.tx += 1
        self.frame(Frame.of(type_, pack(value)), self.tx, file=self.disk_file)
        self.commit(self.tx, "control", file=self.disk_file)

    # ── events ──────────────────────────────────────────────────────────────────────────────

    @initialize(memory=MOSTLY, keeps=MOSTLY, names=st.sets(NAMES, min_size=1))
    def begin_somewhere(self, memory: bool, keeps: bool, names: set[str]) -> None:
        if memory:
            self.open_memory()
        if keeps:
            self.change_options(keeps=True)
        for name in sorted(names):
            self.create(name, back=0)

    @rule(counts=st.lists(st.integers(1, 6), min_size=1, max_size=3), to_memory=MOSTLY)
    def put(self, counts: list[int], to_memory: bool) -> None:
        to_memory = to_memory and self.state.memory.open
        file = self.memory_file() if to_memory else self.disk_file
        self.tx += 1
        first = next_id = self.model.last + 1
        for count in counts:
            frame = Frame.of(FrameType.PUT, b"", count)
            header = self.frame(frame, self.tx, next_id, file=file, size_bytes=count * EVENT_BYTES)
            if to_memory:
                self.frames[next_id] = file, header
            next_id += count
        self.added(first, next_id, "memory" if to_memory else "disk")
        self.commit(self.tx, "put", first, next_id - first, file=file)

    def added(self, first: int, next_id: int, tier: str) -> None:
        self.model.places |= dict.fromkeys(range(first, next_id), tier)
        self.model.last = next_id - 1

    @rule(count=st.integers(1, 9))
    def put_segment(self, count: int) -> None:
        self.tx += 1
        first = self.model.last + 1
        segment = SegmentRef(f"segment.{self.tx}", 500, count, count * EVENT_BYTES)
        self.added(first, first + count, "disk")
        self.commit(self.tx, "put", first, count, file=self.disk_file, segments=[segment])

    @rule(later_us=st.integers(300_000, 10_000_000))
    def wait(self, later_us: int) -> None:
        self.time_us += later_us

    @rule()
    def roll(self) -> None:
        self.disk_file += 1
        self.memory_number += 1

    # ── the memory tier ─────────────────────────────────────────────────────────────────────

    @precondition(lambda self: not self.state.memory.open)
    @rule()
    def open_memory(self) -> None:
        self.generation, self.memory_number = self.generation + 1, 1
        tier = {"generation": self.generation, "bytes": 1 << 20, "open": True, "through": 1 << 30, "token": "t"}
        self.control(FrameType.RESERVE, tier)

    @precondition(lambda self: len(self.state.blocks.memory) > 0)
    @rule(blocks=st.integers(1, 4))
    def move(self, blocks: int) -> None:
        """Move the first blocks of memory to disk, whole."""
        self.tx += 1
        for block in list(self.state.blocks.memory)[:blocks]:
            for first in [i for i in sorted(self.frames) if block.first_id <= i <= block.last_id]:
                _, header = self.frames.pop(first)
                self.append(self.disk_file, header, b"")
            self.model.places |= dict.fromkeys(range(block.first_id, block.last_id + 1), "disk")
        self.commit(self.tx, "move", file=self.disk_file)

    @precondition(lambda self: self.state.memory.open)
    @rule(really=RARELY)
    def lose_memory(self, really: bool) -> None:
        """Recover after the memory tier went: its log is not replayed, the disk's says what is lost."""
        if not really:
            return
        self.state = ChannelState.from_image(unpack(pack(self.state.image())))
        self.takes = {tx: take for tx, take in self.takes.items() if not self.state.pending[tx].in_memory}
        kept = {name: group.taken() for name, group in self.state.groups.items()}
        loss = lose_memory(self.state, kept, self.state.last_id, unused=True)
        model = self.model
        missing = {i for i, tier in model.places.items() if tier == "memory"}
        model.places = {i: tier for i, tier in model.places.items() if tier == "disk"}
        begin = min([model.floor, *(model.position(name) + 1 for name in model.groups)])
        lost = {i for i in missing if model.first_kept <= i < begin or i in model.needed()}
        assert {i for a, b in loss.lost for i in range(a, b + 1)} >= lost
        self.lose({i for a, b in loss.lost for i in range(a, b + 1)})
        self.frames = {}
        self.control(FrameType.LOST, dict(loss.record()))

    def lose(self, ids: set[int]) -> None:
        self.model.gone |= ids
        for name, group in self.model.groups.items():
            missed = set(self.model.untaken(name)) & self.model.gone
            group.lost |= missed
            group.taken |= missed

    @rule(data=st.data(), really=RARELY)
    def repair(self, data: st.DataObject, really: bool) -> None:
        """Lose a block of the disk tier to damage."""
        blocks = list(self.state.blocks.disk)
        if not really or not blocks:
            return
        block = data.draw(st.sampled_from(blocks))
        image = self.state.image()
        image["blocks"] = [b for b in image["blocks"] if b[0] != block.first_id]
        self.state = ChannelState.from_image(unpack(pack(image)))
        ids = set(range(max(block.first_id, self.model.first_kept), block.last_id + 1)) - self.model.gone
        for i in range(block.first_id, block.last_id + 1):
            self.model.places.pop(i, None)
        self.lose(ids)
        value = {"lost": ranges_of(ids), "doubtful": [], "next": self.model.last + 1, "groups": {}, "kept": True}
        self.control(FrameType.LOST, value)

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    @rule(name=NAMES, back=st.integers(0, 60))
    def create(self, name: str, back: int) -> None:
        if name in self.model.groups:
            return
        position = max(self.model.last - back, self.state.beginning() - 1)
        self.begin(name, position)
        left = self.state.left_after(position)
        self.control(FrameType.GROUP, {"group": name, "position": position, "left": left})

    def begin(self, name: str, position: int) -> None:
        model = self.model
        assert self.state.beginning() == model.beginning()
        group = model.groups[name] = Group(set(range(1, position + 1)))
        group.lost = {i for i in model.gone if i > position}
        group.taken |= model.gone
        group.taken |= {i for i in range(position + 1, model.last + 1) if i not in model.places}

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), to=st.integers(-3, 80))
    def seek(self, data: st.DataObject, to: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.groups)))
        self.roll_back(name)
        position = min(max(to, self.model.beginning() - 1), self.model.last)
        self.begin(name, position)
        self.control(FrameType.GROUP, {"group": name, "seek": to, "left": self.state.left_after(position)})

    def roll_back(self, name: str) -> None:
        for tx in [tx for tx, (group, _) in self.takes.items() if group == name]:
            file = self.memory_file() if self.state.pending[tx].in_memory else self.disk_file
            self.frame(Frame.of(FrameType.ROLLBACK, b""), tx, file=file)
            del self.takes[tx]

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.groups)))
        self.roll_back(name)
        dropped = self.model.groups.pop(name)
        if not self.model.groups:
            there = {i for i in dropped.taken if i > self.model.floor}
            self.model.gone |= {i for i in there if i not in self.model.places}
        self.control(FrameType.GROUP, {"group": name, "drop": True})

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), skip=st.integers(0, 4), count=st.integers(1, 12), in_memory=MOSTLY)
    def begin_a_take(self, data: st.DataObject, skip: int, count: int, in_memory: bool) -> None:
        self.prepare(data.draw(st.sampled_from(sorted(self.model.groups))), skip, count, in_memory)

    def prepare(self, name: str, skip: int, count: int, in_memory: bool) -> int | None:
        busy = {i for group, ranges in self.takes.values() if group == name for a, b in ranges for i in range(a, b + 1)}
        free = [i for i in self.model.untaken(name) if i not in busy][skip : skip + count]
        if not free:
            return None
        self.tx += 1
        ranges = ranges_of(set(free))
        self.takes[self.tx] = name, ranges
        memory = in_memory and self.state.memory.open and all(self.model.places[i] == "memory" for i in free)
        file = self.memory_file() if memory else self.disk_file
        self.frame(TakeRecord(name, ranges).frame(0), self.tx, file=file)
        return self.tx

    @precondition(lambda self: self.state.memory.open)
    @rule(counts=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def put_into_memory(self, counts: list[int]) -> None:
        self.put(counts, to_memory=True)
        self.roll()

    @precondition(lambda self: self.model.groups)
    @rule()
    def every_group_takes_everything(self) -> None:
        self.every_group_takes(0, 1000, in_memory=True)

    @precondition(lambda self: self.model.groups)
    @rule(skip=st.sampled_from([0, 0, 2, 6]), count=st.integers(1, 30), in_memory=MOSTLY)
    def every_group_takes(self, skip: int, count: int, in_memory: bool) -> None:
        for name in sorted(self.model.groups):
            if (tx := self.prepare(name, skip, count, in_memory)) is not None:
                self.commit_take(tx)

    @precondition(lambda self: self.takes)
    @rule(data=st.data())
    def commit_a_take(self, data: st.DataObject) -> None:
        self.commit_take(data.draw(st.sampled_from(sorted(self.takes))))

    def commit_take(self, tx: int) -> None:
        name, ranges = self.takes.pop(tx)
        for first, last in ranges:
            self.model.groups[name].took(first, last)
        file = self.memory_file() if self.state.pending[tx].in_memory else self.disk_file
        self.commit(tx, "take", file=file)

    @precondition(lambda self: self.takes)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.roll_back(data.draw(st.sampled_from(sorted(name for name, _ in self.takes.values()))))

    # ── retention ───────────────────────────────────────────────────────────────────────────

    @rule(keeps=MOSTLY, really=RARELY)
    def change_options(self, keeps: bool, really: bool = True) -> None:
        if not really:
            return
        self.model.keeps = keeps
        self.control(FrameType.OPTIONS, {"retention_ms": 1000 if keeps else 0})

    @rule(through=st.integers(0, 80))
    def expire(self, through: int) -> None:
        model = self.model
        to = min(through, model.last)
        if to >= model.first_kept:
            self.through = to
            for name, group in model.groups.items():
                missed = {i for i in model.untaken(name) if i <= to}
                group.expired |= missed
                group.taken |= missed
            model.first_kept, model.floor = to + 1, max(model.floor, to + 1)
        self.control(FrameType.RETENTION, {"through": through})

    @rule()
    def restore(self) -> None:
        """Continue from a checkpoint."""
        image = self.state.image()
        self.state = ChannelState.from_image(unpack(pack(image)))
        assert self.state.image() == image

    # ── what always holds ───────────────────────────────────────────────────────────────────

    @invariant()
    def positions_agree(self) -> None:
        state, model = self.state, self.model
        assert (state.floor, state.first_kept, state.last_id) == (model.floor, model.first_kept, model.last)
        assert state.groups.keys() == model.groups.keys()
        for name, group in state.groups.items():
            known = model.groups[name]
            taken = {i for i in range(1, model.last + 1) if i <= group.position or i in group.ahead}
            assert taken == {i for i in known.taken if i <= model.last}, name
            assert group.position == model.position(name)
            assert (set(ids(group.lost)), set(ids(group.removed))) == (known.lost, known.expired), name
            assert state.lag(name) == len(model.untaken(name))

    @invariant()
    def what_is_needed_is_there(self) -> None:
        state, model = self.state, self.model
        assert state.missing() == []
        there: dict[int, str] = {}
        for tier, index in ("disk", state.blocks.disk), ("memory", state.blocks.memory):
            for block in index:
                assert block.last_id >= state.first_kept
                assert not there.keys() & set(range(block.first_id, block.last_id + 1))
                there |= dict.fromkeys(range(block.first_id, block.last_id + 1), tier)
        assert there.items() <= model.places.items()
        left = {i for i in model.places.keys() - there.keys() if i >= model.first_kept}
        assert not left & model.needed()
        assert all(model.places[i] == "memory" for i in left) and not (left and model.keeps)
        model.places = there

    @invariant()
    def counts_agree(self) -> None:
        again = self.state.copy()
        model, needed = self.model, {i for i in self.model.needed() if i >= self.model.floor}
        for state in (self.state, again):
            for tier, index in ("disk", state.blocks.disk), ("memory", state.blocks.memory):
                counted = [b for b in index if b.last_id < state.floor]
                assert index.kept_events == sum(b.count for b in counted)
                assert index.kept_bytes == sum(b.payload_bytes for b in counted)
                assert index.events == sum(b.count for b in index) - index.kept_events
                assert index.payload_bytes == sum(b.payload_bytes for b in index) - index.kept_bytes
                assert index.kept() == counted
                here = [i for i in needed if model.places.get(i) == tier]
                assert state.use(tier == "memory") == (len(here), len(here) * EVENT_BYTES)
            assert state.stored() == len(needed)
            assert state.drain_order() == drain_order(needed, model.places)
            assert state.needed_from() == min([model.floor, *(model.position(name) + 1 for name in model.groups)])


def ids(ranges: RangeSet) -> list[int]:
    return [i for first, last in ranges for i in range(first, last + 1)]


def drain_order(needed: set[int], places: dict[int, str]) -> list[int]:
    runs: list[int] = []
    for i in sorted(needed):
        step = 1 if places[i] == "memory" else -1
        if runs and (runs[-1] > 0) == (step > 0):
            runs[-1] += step
        else:
            runs.append(step)
    return runs


TestModel = Machine.TestCase
TestModel.settings = settings(max_examples=examples(300), stateful_step_count=50)
