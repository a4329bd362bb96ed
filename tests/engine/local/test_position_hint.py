"""The disk tier's log says all that counts, without the memory tier's: what COMMITs on disk say of groups."""

from __future__ import annotations

import struct
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import google_crc32c
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillable_stream import Channel, MemoryLossWarning
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.local.position_hint import NO_HINT, parse_position_hint, read_position_hint
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.requests import Control, Move, Request
from spillable_stream.engine.take_requests import Prepare, Rollback, Take
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.file_names import Tier, memory_file_id
from spillable_stream.format.frame import Frame, FrameHeader, FrameType, file_seed, frame_size
from spillable_stream.format.packing import pack
from spillable_stream.integrity.repair import repair
from spillable_stream.log.layout import Layout
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state import block_index
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip, frames, kill, lose_memory, reboot
from tests.support.events import numbered, put, take
from tests.support.examples import examples

Open = Callable[..., Channel]
OPTIONS: dict[str, Any] = {"memory_capacity": 20, "overflow_timeout": 0}
GROUPS = ["a", "b", "c"]
RARELY = st.sampled_from([False, False, False, True])
FILES = {Tier.DISK: 1, Tier.MEMORY: memory_file_id(1, 1)}


class TwoLogs(RuleBasedStateMachine):
    """Appends to both logs. After every COMMIT on disk, replay of the disk log alone knows what each group took."""

    def __init__(self) -> None:
        super().__init__()
        self._one_block = mock.patch.object(block_index, "_BLOCK_US", 1 << 60)  # however slow the machine is
        self._one_block.start()
        self.state = ChannelState(ChannelOptions(memory_capacity=100), [b"schema"])
        self.offsets = dict.fromkeys(Tier, 0)
        self.disk: list[tuple[int, FrameHeader, Any]] = []
        self.bases = [(0, self.state.image())]  # how much of the disk log is before it, and the state there
        self.truths: dict[
            int, Any
        ] = {}  # what the state was at the COMMITs of the last append on disk: each may be its end
        reserve = {"through": 1 << 30, "generation": 1, "bytes": 1 << 20, "open": True, "token": "t"}
        self.append(Tier.DISK, Control(FrameType.RESERVE, reserve))
        for name in GROUPS[:2]:
            self.append(Tier.DISK, Control(FrameType.GROUP, {"group": name, "position": 0}))

    def teardown(self) -> None:
        self._one_block.stop()

    def append(self, tier: Tier, *requests: Request, fails: bool = False) -> None:
        """Append requests to the log of a tier; one that fails leaves nothing."""
        plan = AppendPlan(self.state, tier, start=self.offsets[tier])
        if tier is Tier.DISK:
            self.truths.clear()
        for request in requests:
            request.plan(plan)
        if fails:
            return
        for header, payload, _ in plan.entries:
            record = None if header.type == FrameType.PUT else bytes(payload)
            offset = self.offsets[tier]
            self.state.apply(FILES[tier], offset, header, record)
            self.offsets[tier] += frame_size(header.length)
            if tier is Tier.DISK:
                self.disk.append((offset, header, record))
                if header.type == FrameType.COMMIT:
                    self.truths[len(self.disk)] = told(self.state)

    def events(self, count: int) -> Put:
        return Put([Frame.of(FrameType.PUT, b"events", count)])

    def free(self, name: str, tier: Tier, limit: int) -> list[tuple[int, int]]:
        """Return some events of a tier that a group has yet to take, and that none of its open takes has."""
        group, state = self.state.groups[name], self.state
        busy = group.ahead.union(r for ranges in state.taking(name).values() for r in ranges)
        found = []
        for block in state.blocks.memory if tier is Tier.MEMORY else state.blocks.disk:
            for first, last in busy.gaps(max(block.first_id, group.position + 1), block.last_id):
                found.append((first, min(last, first + limit - 1)))
        return found

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=3), tier=st.sampled_from(Tier), fails=RARELY)
    def put(self, counts: list[int], tier: Tier, fails: bool) -> None:
        self.append(tier, *[self.events(c) for c in counts], fails=fails)

    @rule(name=st.sampled_from(GROUPS), drop=RARELY)
    def group(self, name: str, drop: bool) -> None:
        if name not in self.state.groups:
            self.append(Tier.DISK, Control(FrameType.GROUP, {"group": name, "position": 0}))
        elif drop and not self.state.open_takes(name):
            again = Control(FrameType.GROUP, {"group": name, "position": 0})
            self.append(Tier.DISK, Control(FrameType.GROUP, {"group": name, "drop": True}), again)

    @precondition(lambda self: self.state.groups)
    @rule(data=st.data(), tier=st.sampled_from(Tier), limit=st.integers(1, 4), fails=RARELY)
    def take(self, data: st.DataObject, tier: Tier, limit: int, fails: bool) -> None:
        requests: list[Request] = []
        for name in data.draw(st.lists(st.sampled_from(sorted(self.state.groups)), min_size=1, unique=True)):
            if ranges := self.free(name, tier, limit):
                requests.append(Take(name, [data.draw(st.sampled_from(ranges))]))
        if requests and data.draw(st.booleans()):
            requests.insert(0, self.events(1))
        self.append(tier, *requests, fails=fails)

    @precondition(lambda self: self.state.groups)
    @rule(data=st.data(), tier=st.sampled_from(Tier))
    def prepare(self, data: st.DataObject, tier: Tier) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.groups)))
        if ranges := self.free(name, tier, 3):
            self.append(tier, Prepare(name, [data.draw(st.sampled_from(ranges))]))

    @precondition(lambda self: self.state.pending)
    @rule(data=st.data(), commit=st.booleans(), disk=st.booleans())
    def end(self, data: st.DataObject, commit: bool, disk: bool) -> None:
        tx = data.draw(st.sampled_from(sorted(self.state.pending)))
        pending = self.state.pending[tx]
        tier = Tier.MEMORY if pending.in_memory and not disk else Tier.DISK
        (found,) = pending.takes
        if commit:
            self.append(tier, Take(found.group, found.ranges, tx))
        elif pending.in_memory:
            self.append(Tier.MEMORY, Rollback([tx]))
        else:
            self.append(Tier.DISK, Rollback([tx]))

    @precondition(lambda self: len(self.state.blocks.memory))
    @rule()
    def move(self) -> None:
        """Move a block to disk, as a flush does."""
        block = next(iter(self.state.blocks.memory))
        frame = Frame.of(FrameType.PUT, b"events", block.count)
        self.append(Tier.DISK, Move([(frame.header(1 << 40, block.first_id, block.time_us), frame.payload, None)], []))

    @rule()
    def make_a_checkpoint(self) -> None:
        self.bases.append((len(self.disk), self.state.image()))

    @rule()
    def roll(self) -> None:
        self.bases.append((len(self.disk), self.state.small()))

    @rule(earlier_version=RARELY)
    def continue_as_another_process(self, earlier_version: bool) -> None:
        """Go on from an image of the memory tier, as a process does that opens the channel or falls behind."""
        image = self.state.image()
        if earlier_version:
            del image["unsaidGroups"]
        self.state = ChannelState.from_image(image)

    @invariant()
    def the_disk_log_alone_says_what_groups_took(self) -> None:
        for behind, image in self.bases:
            state = ChannelState.from_image({**image, "blocks": []})
            for number, (offset, header, record) in enumerate(self.disk[behind:], behind + 1):
                state.apply(1, offset, header, record)
                assert told(state) == self.truths.get(number, told(state))

    @invariant()
    def the_floor_is_where_the_slowest_group_is(self) -> None:
        assert self.state.floor == min(g.position for g in self.state.groups.values()) + 1


def told(state: ChannelState) -> tuple[dict[str, list[Any]], int, int]:
    """Return what a state says that must survive the memory tier."""
    return {name: group.taken() for name, group in state.groups.items()}, state.floor, state.next_id


TestTwoLogs = TwoLogs.TestCase
TestTwoLogs.settings = settings(max_examples=examples(150), stateful_step_count=40)


# ── with files ──────────────────────────────────────────────────────────────────────────────


def make_groups(channel: Channel, count: int) -> None:
    """Make groups at the channel's beginning."""
    engine = channel.engine()
    with engine.committing():
        for i in range(count):
            engine.appender.append_alone(Control(FrameType.GROUP, {"group": f"g{i}", "position": 0}))


@pytest.mark.parametrize(
    "value", [b"", b"\xc1", pack(7), pack([]), pack(["a", []]), pack([1, [2]]), pack([1, [[2, "b"]]])]
)
def test_a_file_that_is_whole_and_invalid_is_not_a_hint(tmp_path: Path, value: bytes) -> None:
    layout = Layout(tmp_path, str(uuid.UUID(int=1)), (tmp_path / "data",), tmp_path / "checkpoint", None)
    crc = google_crc32c.extend(file_seed(layout.channel, "group/g"), value)
    whole = struct.pack("<II", len(value), crc) + value
    assert parse_position_hint(layout, "g", whole) is NO_HINT
    assert parse_position_hint(layout, "g", whole[:-1]) is None, "it is damaged"
    layout.group_position("g").parent.mkdir()
    layout.group_position("g").write_bytes(whole)
    assert read_position_hint(FileSystem(), layout, "g") is NO_HINT
    layout.group_position("g").unlink()
    assert read_position_hint(FileSystem(), layout, "g") is NO_HINT


def forget_positions(path: Path) -> None:
    for file in (path / "groups").glob("*.position"):
        file.unlink()


def groups_said(path: Path) -> list[set[str]]:
    """Return which groups each COMMIT on disk speaks of."""
    commits = [CommitRecord.parse(f.payload or b"") for f in frames(path) if f.header.type == FrameType.COMMIT]
    return [set(c.seen["groups"]) for c in commits if c.seen is not None]


def test_a_put_on_disk_costs_the_same_however_many_groups_there_are(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    sizes = []
    for groups in (1, 500):
        make_groups(channel, groups)
        put(channel, *numbered(0, 20))
        put(channel, b"x")
        before = channel.engine().positions.disk.offset
        for _ in range(10):
            put(channel, b"x")
        sizes.append(channel.engine().positions.disk.offset - before)
    assert sizes[1] == sizes[0]


def test_a_commit_on_disk_says_which_groups_took_in_memory_since_the_last(path: Path, open_channel: Open) -> None:
    channel, other = open_channel(**OPTIONS), open_channel()
    make_groups(channel, 5)
    put(channel, *numbered(0, 18))
    take(channel, 1, "g1")
    take(other, 2, "g2")
    before = len(groups_said(path))
    put(channel, *numbered(0, 5))
    put(other, *numbered(0, 5))
    take(other, 3, "g2")
    take(channel, 4, "g3")
    channel.checkpoint()
    put(other, *numbered(0, 5))
    put(channel, *numbered(0, 5))
    kill(channel)
    kill(other)
    said = groups_said(path)[before:]
    assert said == [{"g1", "g2"}, set(), {"g2", "g3"}, set()]


@pytest.mark.parametrize("base", ["the log alone", "the older checkpoint", "the newest checkpoint"])
def test_what_was_taken_in_memory_does_not_come_back_when_the_tier_is_lost(
    path: Path, open_channel: Open, base: str
) -> None:
    channel = open_channel(**OPTIONS)
    make_groups(channel, 4)
    put(channel, *numbered(0, 20))
    for i, name in enumerate(["g0", "g1", "g2", "g3"]):
        take(channel, 3 + i, name)
        put(channel, *numbered(0, 21))  # on disk
        channel.checkpoint()
    take(channel, 1, "g3")
    put(channel, *numbered(0, 21))
    before = {name: g.position for name, g in channel.stats().groups.items()}
    assert before == {"g0": 3, "g1": 4, "g2": 5, "g3": 7}
    kill(channel)
    newest = max((path / "checkpoint").iterdir())
    for file in (path / "checkpoint").iterdir():
        if base == "the log alone" or (base == "the older checkpoint" and file == newest):
            file.unlink()
    forget_positions(path)
    lose_memory(path)
    reboot(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        channel = open_channel()
    (warning,) = [w.message for w in caught if isinstance(w.message, MemoryLossWarning)]
    assert warning.lost == ((4, 20),)
    lost = {name: list(g.lost) for name, g in channel.stats().groups.items()}
    assert {name: ranges[0][0] for name, ranges in lost.items()} == {name: p + 1 for name, p in before.items()}


def test_takes_that_only_a_damaged_commit_said_are_reported_as_repeated(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 20))
    take(channel, 5)
    put(channel, *numbered(0, 21))  # on disk; its COMMIT says what was taken
    said = channel.engine().positions.disk.offset
    channel.flush()
    put(channel, *numbered(0, 30))
    kill(channel)
    forget_positions(path)
    lose_memory(path)
    commit = next(f for f in frames(path) if f.end == said)
    assert CommitRecord.parse(commit.payload or b"").seen == {"next": 21, "groups": {"default": [5, []]}}
    flip(path / "data" / "log-000001", commit.offset + 60)
    report = repair(path)
    assert report.loss.repeated == {"default": ((1, 41),)}  # up to the next event that was put on disk
    with open_channel(create=False) as channel:
        assert take(channel) == [*numbered(0, 20), *numbered(0, 21), *numbered(0, 30)]
