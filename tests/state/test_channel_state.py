"""The rules of `ChannelState.apply`, on frames that no file ever held."""

from __future__ import annotations

from typing import Any

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.file_names import memory_file_id
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.state.channel_state import restored
from tests.support.state_log import Log, filled


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


def test_a_recovery_comes_after_all_that_a_commit_saw_of_memory_whether_that_is_still_there_or_not() -> None:
    with_memory, without = filled(), filled()
    with_memory.put(2, 11, 5, file=1 << 40)
    with_memory.commit(2, "put", 11, 5, file=1 << 40)
    for log in (with_memory, without):
        log.put(3, 16, 1)
        log.commit(3, "put", 16, 1, recovery="a", seen={"next": 16, "groups": {}})
        assert log.state.recoveries == [(15, "a")]


def test_an_empty_commit_of_a_sink_takes_no_ids() -> None:
    log = filled()
    log.commit(2, "put", 11, 0, sink=("query", 0))
    assert log.state.next_id == 11


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
        log.state = log.state.copy()
        for name, arguments in frames[cut:]:
            getattr(log, name)(*arguments)
        assert log.state.image() == whole.state.image(), f"checkpoint before frame {cut}"


def test_kept_events_move_to_disk_and_stay_kept() -> None:
    log, memory = Log(), memory_file_id(1, 1)
    log.control(1, FrameType.OPTIONS, {"retention_ms": 1000})
    log.group(2, "g")
    log.put(3, 1, 5, file=memory)
    log.commit(3, "put", 1, 5, file=memory)
    log.take(4, "g", (1, 5))
    log.commit(4, "take")
    assert (log.state.blocks.memory.kept_events, log.state.kept().events) == (5, 5)
    log.put(3, 1, 5)  # the same frame again, in the disk tier's log
    log.commit(5, "move", 0, 5)
    assert (len(log.state.blocks.memory), log.state.blocks.disk.kept_events, log.state.kept().events) == (0, 5, 5)


def test_what_was_taken_from_memory_ahead_of_others_stays_where_taken_events_are_kept() -> None:
    log = Log()
    log.control(1, FrameType.OPTIONS, {"retention_ms": 1000})
    log.group(2, "g")
    for tx, first in (3, 1), (4, 6):
        log.put(tx, first, 5, file=memory_file_id(1, tx))
        log.commit(tx, "put", first, 5, file=memory_file_id(1, tx))
    log.take(5, "g", (6, 10))
    log.commit(5, "take")
    assert [b.first_id for b in log.state.blocks.memory] == [1, 6]
    assert log.state.use(in_memory=True).events == 5


def test_an_image_that_is_invalid_names_the_file_that_it_was_in() -> None:
    image = filled().state.image()
    assert restored(image, "file").image() == image
    with pytest.raises(CorruptionError, match="a state is invalid: ") as caught:
        restored({**image, "groups": 7}, "file")
    assert caught.value.path == "file"
