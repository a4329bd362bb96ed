"""More events than the fields of a frame can tell of: structs of nothing take no room, so that they can be many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from spillable_stream import Channel, TransactionCapacityError
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.group_owners import KeptPosition
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.take_requests import Take
from spillable_stream.errors import EventTooLargeError, StateTooLargeError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import CommitRecord, SegmentRef
from spillable_stream.format.file_names import DISK, MEMORY
from spillable_stream.format.frame import MAX_COUNT, Frame, FrameType
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from tests.support.damage import reboot

Open = Callable[..., Channel]

NOTHING = pa.struct([])
MANY = 5 << 30
"""More than 2^32 - 1; and than 2^31 - 1, which is what Arrow writes at once."""
UNBOUNDED = {"transaction_capacity": 1 << 60, "overflow_capacity": 1 << 60}


def nothings(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(NOTHING, rows, [None])], ["c"])


def put(channel: Channel, *counts: int) -> None:
    for count in counts:
        with channel.put_transaction() as tx:
            tx.put_batch(nothings(count))


def opened(open_channel: Open) -> Channel:
    return open_channel(schema=pa.schema([("c", NOTHING)]), **UNBOUNDED)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_batch_is_cut_into_as_many_rows_as_arrow_writes_at_once(compression: str) -> None:
    frames = encode_batch(nothings(MANY), compression=compression)
    assert sum(f.count for f in frames) == MANY
    assert max(f.count for f in frames) < 1 << 31


def test_an_event_with_more_values_than_arrow_writes_is_refused() -> None:
    inside = pa.Array.from_buffers(NOTHING, 1 << 31, [None])
    batch = pa.RecordBatch.from_arrays([pa.LargeListArray.from_arrays(pa.array([0, 1 << 31]), inside)], ["c"])
    with pytest.raises(EventTooLargeError, match="too many values in one column"):
        encode_batch(batch)


def test_a_put_of_more_than_a_commit_can_count_is_refused_and_the_transaction_continues(open_channel: Open) -> None:
    channel = opened(open_channel)
    with channel.put_transaction() as tx:
        tx.put_batch(nothings(3 << 30))
        with pytest.raises(TransactionCapacityError, match="but the most is 4,294,967,295; commit more often"):
            tx.put_batch(nothings(3 << 30))
        tx.put_batch(nothings(1))
    assert channel.stats().channel_size == (3 << 30) + 1


def test_a_put_of_the_most_events_is_stored(open_channel: Open) -> None:
    channel = opened(open_channel)
    put(channel, MAX_COUNT, 1)
    assert channel.stats().channel_size == MAX_COUNT + 1
    with channel.take_transaction("last") as tx:
        channel.consumer("last").claim(MAX_COUNT)
        assert tx.take(0) == {"c": {}}


def test_a_sinks_output_of_more_is_refused_by_the_commit_and_alone(open_channel: Open) -> None:
    """Tasks count for themselves: only the commit knows how many events they are together."""
    channel = opened(open_channel)
    refs = [SegmentRef(f"segment.q.1.{i}", 100, 3 << 30, 60) for i in range(2)]
    with pytest.raises(TransactionCapacityError, match="at most 4,294,967,295 events, not 6,442,450,944"):
        channel.engine().commit(Put([], refs))
    put(channel, 1)
    assert channel.stats().channel_size == 1


def test_a_micro_batch_of_more_is_taken_and_committed_and_survives_a_restart(open_channel: Open, path: Path) -> None:
    channel = opened(open_channel)
    put(channel, 3 << 30, 3 << 30)
    owner = channel.consumer("g")
    ranges = owner.claim(MANY)
    prepared = owner.prepare(ranges)
    channel.close()
    reboot(path)
    channel = opened(open_channel)
    owner = channel.consumer("g", resume=True)
    assert owner.prepared() == {prepared: [(1, MANY)]}
    assert finish_takes(channel.engine(), "g", MANY) == 1
    assert owner.position() == MANY
    owner.commit(owner.claim(1))
    assert owner.position() == MANY + 1
    channel.close()
    reboot(path)
    assert opened(open_channel).stats().groups["g"].position == MANY + 1


def test_a_take_of_more_that_was_not_prepared_is_committed(open_channel: Open) -> None:
    channel = opened(open_channel)
    put(channel, 3 << 30, 3 << 30)
    owner = channel.consumer("g")
    owner.commit(owner.claim(MANY))
    assert owner.position() == MANY


def test_a_request_that_fails_half_way_leaves_nothing_in_the_plan() -> None:
    state = ChannelState(ChannelOptions(), [b"schema"])
    state.memory.open = True
    plan = AppendPlan(state)
    first = plan.attempt(Put([Frame.of(FrameType.PUT, b"one", 1)]).plan)

    def fail(plan: AppendPlan) -> CommitResult:
        Put([Frame.of(FrameType.PUT, b"two", 2)]).plan(plan)
        plan.overflow = True
        raise EventTooLargeError("the third")

    with pytest.raises(EventTooLargeError, match="the third"):
        plan.attempt(fail)
    assert (plan.next_id, plan.next_transaction, plan.overflow) == (2, 2, False)
    assert (plan.put_events, len(plan.entries)) == (1, 2)
    assert plan.attempt(Put([Frame.of(FrameType.PUT, b"three", 1)]).plan).first_id == first.last_id + 1


def test_a_take_that_fails_has_no_position_to_be_kept() -> None:
    plan = AppendPlan(ChannelState(ChannelOptions(), [b"schema"]))
    kept, failed = (cast(KeptPosition, object()) for _ in range(2))
    plan.attempt(Take("kept", [(1, 1)], position=kept).plan)

    def fail(plan: AppendPlan) -> CommitResult:
        for group in ("kept", "failed"):
            Take(group, [(2, 2)], position=failed).plan(plan)
        raise StateTooLargeError("the third")

    with pytest.raises(StateTooLargeError, match="the third"):
        plan.attempt(fail)
    assert plan.positions == {"kept": kept}


def recoveries_of(plan: AppendPlan) -> list[str]:
    return [record.recovery for _, _, record in plan.entries if isinstance(record, CommitRecord)]


def test_the_first_append_to_disk_after_a_recovery_says_it_once() -> None:
    state = ChannelState(ChannelOptions(), [b"schema"])
    request = Put([Frame.of(FrameType.PUT, b"one", 1)])
    plan = AppendPlan(state, recovery="a")

    def fail(plan: AppendPlan) -> CommitResult:
        request.plan(plan)
        raise EventTooLargeError("not this one")

    with pytest.raises(EventTooLargeError):
        plan.attempt(fail)
    for _ in range(3):
        plan.attempt(request.plan)
    assert recoveries_of(plan) == ["a", "", ""]
    state.begin_recovery("a")
    for tier, recovery, said in ((DISK, "a", [""]), (MEMORY, "b", [""]), (DISK, "", [""]), (DISK, "b", ["b"])):
        plan = AppendPlan(state, tier, recovery=recovery)
        plan.attempt(request.plan)
        assert recoveries_of(plan) == said


def test_a_record_that_nobody_would_read_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.format.frame.MAX_PAYLOAD_BYTES", 1000)
    with pytest.raises(StateTooLargeError, match="a SCHEMA of 1,001 bytes does not fit a frame of 1,000 bytes"):
        Frame.of(FrameType.SCHEMA, bytes(1001))


def test_more_events_move_from_memory_to_disk_in_one_append_and_the_log_is_read_again(
    open_channel: Open, path: Path
) -> None:
    channel = open_channel(schema=pa.schema([("c", NOTHING)]), memory_capacity=1 << 40, **UNBOUNDED)
    put(channel, 3 << 30, 3 << 30)
    assert channel.stats().memory.events == 6 << 30
    assert channel.flush() == 6 << 30
    channel.close()
    reboot(path)
    stats = opened(open_channel).stats()
    assert (stats.channel_size, stats.memory.events) == (6 << 30, 0)
