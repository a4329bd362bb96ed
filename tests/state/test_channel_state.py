"""The rules of `ChannelState.apply`, on frames that no file ever held."""

from __future__ import annotations

from typing import Any

from spillable_stream.format.frame import Frame, FrameHeader, FrameType
from spillable_stream.format.record import CommitRecord, SegmentRef, TakeRecord, pack
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState


class Log:
    """Applies frames to a state as replay does."""

    def __init__(self) -> None:
        self.state = ChannelState(ChannelOptions(overflow_capacity=100), [b"schema"])
        self.offset = 0

    def frame(self, frame: Frame, tx: int, order: int = 0, time_us: int = 1000) -> None:
        payload = bytes(frame.payload)
        header = FrameHeader(frame.type, len(payload), tx, order, frame.count, 0, time_us, 0)
        self.state.apply(1, self.offset, header, payload if frame.type != FrameType.PUT else None)
        self.offset += 48 + len(payload)

    def put(self, tx: int, first: int, count: int) -> None:
        self.frame(Frame.of(FrameType.PUT, b"events", count), tx, first)

    def take(self, tx: int, group: str, *ranges: tuple[int, int]) -> None:
        self.frame(TakeRecord(group, list(ranges)).frame(0), tx)

    def commit(self, tx: int, kind: str, first: int = 0, count: int = 0, **more: Any) -> None:
        self.frame(CommitRecord(kind, 0, **more).frame(count), tx, first)

    def control(self, tx: int, type_: FrameType, value: dict[str, Any]) -> None:
        self.frame(Frame.of(type_, pack(value)), tx)
        self.commit(tx, "control")

    def group(self, tx: int, name: str, position: int = 0) -> None:
        self.control(tx, FrameType.GROUP, {"group": name, "position": position})


def filled(count: int = 10) -> Log:
    log = Log()
    log.put(1, 1, count)
    log.commit(1, "put", 1, count)
    return log


def test_a_put_counts_when_it_is_committed_and_not_before() -> None:
    log = Log()
    log.put(1, 1, 4)
    log.put(1, 5, 6)
    assert (log.state.stored(), log.state.last_id, list(log.state.blocks)) == (0, 0, [])
    log.commit(1, "put", 1, 10)
    assert (log.state.stored(), log.state.last_id, [b.first_id for b in log.state.blocks]) == (10, 10, [1])


def test_an_interleaved_transaction_keeps_to_itself() -> None:
    log = Log()
    log.put(1, 1, 2)
    log.take(2, "g", (1, 1))
    log.commit(1, "put", 1, 2)
    assert log.state.open_takes("g") == [2]
    assert list(log.state.pending) == [2]


def test_a_rollback_forgets_what_was_pending() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 5))
    log.frame(Frame.of(FrameType.ROLLBACK, b""), 3)
    assert (log.state.pending, log.state.groups["g"].position) == ({}, 0)


def test_takes_may_commit_out_of_order() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 3))
    log.take(4, "g", (4, 6))
    log.commit(4, "take")
    group = log.state.groups["g"]
    assert (group.position, list(group.ahead), log.state.stored()) == (0, [(4, 6)], 7)
    log.commit(3, "take")
    assert (group.position, list(group.ahead), log.state.floor) == (6, [], 7)


def test_events_leave_when_the_last_group_has_taken_them() -> None:
    log = filled()
    log.group(2, "a")
    log.group(3, "b")
    log.take(4, "a", (1, 10))
    log.commit(4, "take")
    assert (log.state.floor, log.state.stored()) == (1, 10)
    log.take(5, "b", (1, 7))
    log.commit(5, "take")
    assert (log.state.floor, log.state.stored()) == (8, 3)
    log.take(6, "b", (8, 10))
    log.commit(6, "take")
    assert (log.state.stored(), list(log.state.blocks)) == (0, [])


def test_dropping_the_slowest_group_frees_its_events() -> None:
    log = filled()
    log.group(2, "slow")
    log.group(3, "fast")
    log.take(4, "fast", (1, 10))
    log.commit(4, "take")
    log.control(5, FrameType.GROUP, {"group": "slow", "drop": True})
    assert (list(log.state.groups), log.state.stored()) == (["fast"], 0)


def test_a_take_of_a_dropped_group_changes_nothing() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 10))
    log.control(4, FrameType.GROUP, {"group": "g", "drop": True})
    log.commit(3, "take")
    assert (log.state.groups, log.state.stored()) == ({}, 10)


def test_without_groups_everything_stays() -> None:
    assert filled().state.stored() == 10


def test_a_segments_events_come_before_the_inline_ones() -> None:
    log = Log()
    log.put(1, 4, 2)
    log.commit(1, "put", 1, 5, segments=[SegmentRef("segment.a", 500, 3, 300)])
    assert [(b.first_id, b.count, b.file) for b in log.state.blocks] == [(1, 3, "segment.a"), (4, 2, 1)]
    assert log.state.last_id == 5


def test_a_sinks_last_batch_is_remembered() -> None:
    log = Log()
    for batch in (0, 1):
        log.put(batch + 1, batch + 1, 1)
        log.commit(batch + 1, "put", batch + 1, 1, sink=("query", batch))
    assert log.state.sinks == {"query": 1}


def test_only_the_latest_sinks_are_remembered() -> None:
    log = Log()
    for i in range(10_001):
        log.commit(i + 1, "put", 1, 0, sink=(f"q{i}", 0))
    log.commit(10_002, "put", 1, 0, sink=("q1", 1))
    log.commit(10_003, "put", 1, 0, sink=("new", 0))
    assert len(log.state.sinks) == 10_000
    assert "q0" not in log.state.sinks and "q2" not in log.state.sinks
    assert log.state.sinks["q1"] == 1


def test_what_a_commit_on_disk_saw_of_memory_does_not_undo_the_batch_before_it() -> None:
    """Two commits of one append were planned from one state: the second says what memory had said before the first."""
    log = Log()
    log.state.sinks["query"] = log.state.memory_only_sinks["query"] = 5
    seen = {"next": 1, "groups": {}, "sinks": {"query": 5}}
    log.commit(1, "put", 1, 0, sink=("query", 6), seen=seen)
    log.commit(2, "put", 1, 0, seen=seen)
    assert log.state.sinks == {"query": 6}


def test_an_empty_commit_of_a_sink_takes_no_ids() -> None:
    log = filled()
    log.commit(2, "put", 11, 0, sink=("query", 0))
    assert log.state.next_id == 11


def test_options_and_schemas_change_by_commit() -> None:
    log = Log()
    log.control(1, FrameType.OPTIONS, {"overflow_capacity": 7})
    log.control(2, FrameType.SCHEMA, {"id": 1, "schema": b"second"})
    log.control(3, FrameType.SCHEMA, {"id": 1, "schema": b"of a loser"})
    assert log.state.options == ChannelOptions(overflow_capacity=7)
    assert log.state.schemas == [b"schema", b"second"]


def test_creating_a_group_that_exists_leaves_its_position() -> None:
    log = filled()
    log.group(2, "g", 4)
    log.group(3, "g", 0)
    assert log.state.groups["g"].position == 4


def test_an_image_taken_at_any_frame_leads_to_the_same_state() -> None:
    """What a checkpoint in the middle of transactions promises."""
    frames: list[tuple[str, tuple[Any, ...]]] = [
        ("group", (1, "a")),
        ("group", (2, "b")),
        ("put", (3, 1, 5)),
        ("commit", (3, "put", 1, 5)),
        ("take", (4, "a", (1, 2))),
        ("take", (5, "a", (3, 4))),
        ("commit", (5, "take")),
        ("put", (6, 6, 5)),
        ("commit", (6, "put", 6, 5)),
        ("commit", (4, "take")),
        ("take", (7, "b", (1, 10))),
        ("commit", (7, "take")),
    ]
    whole = Log()
    for name, arguments in frames:
        getattr(whole, name)(*arguments)
    for cut in range(len(frames)):
        if frames[cut][0] == "commit" and frames[cut][1][1] == "put":
            continue  # a put and its commit are one append: no checkpoint comes between
        log = Log()
        for name, arguments in frames[:cut]:
            getattr(log, name)(*arguments)
        log.state = ChannelState.from_image(log.state.image())
        for name, arguments in frames[cut:]:
            getattr(log, name)(*arguments)
        assert log.state.image() == whole.state.image(), f"checkpoint before frame {cut}"


def lost(log: Log, tx: int, first: int, last: int) -> None:
    value = {"lost": [[first, last]], "doubtful": [], "next": log.state.next_id, "groups": {}, "kept": True}
    log.control(tx, FrameType.LOST, value)


def test_a_group_made_after_a_loss_learns_of_what_was_lost_after_its_start() -> None:
    log = filled()
    lost(log, 2, 4, 6)
    for name, position in [("all", 0), ("since", 4), ("after", 6), ("latest", 10)]:
        log.group(3, name, position)
    groups = log.state.groups
    assert {name: list(g.lost) for name, g in groups.items()} == {
        "all": [(4, 6)],
        "since": [(5, 6)],
        "after": [],
        "latest": [],
    }
    assert [(g.position, list(g.ahead)) for g in groups.values()] == [(0, [(4, 6)]), (6, []), (6, []), (10, [])]


def test_a_channel_begins_with_what_was_lost_before_its_first_event() -> None:
    log = filled()
    lost(log, 2, 1, 3)
    assert (log.state.floor, log.state.beginning()) == (4, 1)
    log.group(3, "g", log.state.beginning() - 1)
    group = log.state.groups["g"]
    assert (group.position, list(group.lost), log.state.beginning()) == (3, [(1, 3)], 1)


def test_a_channel_begins_later_when_every_group_took_what_comes_after_a_loss() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 5))
    log.commit(3, "take")
    lost(log, 4, 6, 8)
    assert (log.state.floor, log.state.beginning()) == (9, 6)
    log.take(5, "g", (9, 9))
    log.commit(5, "take")
    assert (log.state.floor, log.state.beginning()) == (10, 10)
    log.group(6, "new", 0)
    assert (log.state.groups["new"].position, list(log.state.groups["new"].lost)) == (9, [])


def test_a_group_position_skips_what_was_taken_ahead() -> None:
    group = GroupState(0)
    for first, last in [(5, 6), (3, 3), (1, 1), (2, 2)]:
        group.take(first, last)
    assert (group.position, list(group.ahead)) == (3, [(5, 6)])
    group.take(4, 4)
    assert (group.position, list(group.ahead)) == (6, [])
    group.take(1, 6)
    assert (group.position, list(group.ahead)) == (6, [])
