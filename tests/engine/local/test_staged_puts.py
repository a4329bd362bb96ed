"""A put is appended where there is room and its staged files are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, DiskSpaceError, Event, StorageError
from spillable_stream.channel import put_buffer
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.delayed_puts import DelayedPuts
from spillable_stream.engine.local.staged_puts import StagedPuts
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.take_requests import Prepare
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.file_names import Tier, disk_segment, in_memory
from spillable_stream.format.frame import Frame
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.log import disk_space
from spillable_stream.log.staged_file import StagedFileWriter
from tests.support.delays import deliveries_of
from tests.support.events import peek, put, take
from tests.support.fake_files import FaultyFileSystem, SmallDisk

Open = Callable[..., Channel]


def test_too_little_free_space_refuses_puts_and_not_takes(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"x")
    channel = open_channel(minimum_required_space=2**60)
    with pytest.raises(DiskSpaceError, match=r"bytes free, but minimum_required_space is 1,152,921,504,606,846,976"):
        put(channel, b"y")
    assert take(channel) == [b"x"]


def test_a_segment_that_is_gone_is_not_adopted(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=1000)
    tx = channel.put_transaction()
    tx.begin()
    tx.put(Event(bytes(5000)))
    tx._buffer.flush()
    next((path / "data").glob("segment.*")).unlink()
    with pytest.raises(StorageError, match="is gone or cut; nothing was committed"):
        tx.commit()
    tx.rollback()
    assert peek(channel) == []
    put(channel, b"x")
    channel.close()
    assert peek(open_channel()) == [b"x"]


MEMORY = {"memory_capacity": 1000, "byte_capacity": 1 << 20}


def staged(channel: Channel, memory_bytes: int = 0, fs: FaultyFileSystem | None = None) -> SegmentRef:
    """Stage an event, in memory if that may take so much."""
    rows = pa.record_batch({"headers": pa.array([{}], channel.schema.field("headers").type), "body": [b"x"]})
    writer = StagedFileWriter(fs or FaultyFileSystem(), channel.engine().layout, "query", 1, memory_bytes)
    writer.write(encode_batch(rows.cast(channel.schema)))
    reference = writer.finish()
    writer.close()
    return reference


def prepare(channel: Channel, put: Put, tier: Tier = Tier.DISK, fs: FaultyFileSystem | None = None) -> None:
    layout = channel.engine().layout
    StagedPuts(fs or FaultyFileSystem(), layout, channel.engine().log.tiers.disk).prepare(
        put, AppendPlan(channel.engine().state, tier), 1, 1000
    )


def test_what_was_staged_in_memory_moves_to_disk_with_a_put_that_goes_there(open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, b"first")  # creates the memory tier
    segment = staged(channel, 1 << 20)
    assert in_memory(segment.name)
    layout, request = channel.engine().layout, Put([], [segment])
    data = layout.segment_file(segment.name).read_bytes()[: segment.end]
    prepare(channel, request)
    assert request.segments == [replace(segment, name=disk_segment(segment.name))]
    assert layout.segment_file(request.segments[0].name).read_bytes()[: segment.end] == data
    assert not layout.segment_file(segment.name).exists()


def test_what_was_staged_in_memory_stays_with_a_put_that_goes_there(open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, b"first")
    segment = staged(channel, 1 << 20)
    request = Put([], [segment])
    prepare(channel, request, Tier.MEMORY)
    assert request.segments == [segment]
    assert channel.engine().layout.segment_file(segment.name).exists()


def test_a_move_to_disk_that_fails_is_told_apart_from_a_failed_append(open_channel: Open) -> None:
    """Nothing was appended, and what is in memory is still there."""
    channel = open_channel(**MEMORY)
    put(channel, b"first")
    segment = staged(channel, 1 << 20)
    fs, request = FaultyFileSystem(), Put([], [segment])
    with fs.failing(lambda call: call.name in ("create", "write", "rename")), pytest.raises(StorageError) as caught:
        prepare(channel, request, fs=fs)
    assert request.not_staged is caught.value
    assert request.segments == [segment]
    assert channel.engine().layout.segment_file(segment.name).exists()


def test_a_put_that_spilled_and_failed_can_be_committed_again_after_a_checkpoint(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint took what it had moved to disk for abandoned: also the one by which a full disk gets room for it."""
    monkeypatch.setattr(put_buffer, "_INLINE_MEMORY_BYTES", 1000)
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, overflow_timeout=0.0, max_inline_bytes=1000, **MEMORY)
    put(channel, *[b"first"] * 1000)
    with channel.put_transaction() as tx:
        tx.put_many([Event(bytes(5000))])
        tx._buffer.flush()
        assert tx._buffer.segment is not None and in_memory(tx._buffer.segment.name)
        failing = fs.failing(lambda call: call.name == "write" and call.file.startswith("log-"))
        with failing, pytest.raises(StorageError):
            tx.commit()
        channel.checkpoint()
        tx.commit()
    assert peek(channel)[1000:] == [bytes(5000)]


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_staged_file_that_is_gone_or_cut_is_refused(open_channel: Open, harm: str) -> None:
    channel = open_channel()
    segment = staged(channel)
    file = channel.engine().layout.segment_file(segment.name)
    if harm == "gone":
        file.unlink()
    else:
        with file.open("r+b") as opened:
            opened.truncate(segment.end - 1)
    with pytest.raises(StorageError, match=f"the staged file {file} is gone or cut; nothing was committed"):
        prepare(channel, Put([], [segment]))


def test_a_batch_that_is_over_needs_no_staged_file(open_channel: Open) -> None:
    channel = open_channel(minimum_required_space=2**60)
    channel.engine().state.sinks["query"] = 5
    prepare(channel, Put([], [SegmentRef("segment.query.5." + "0" * 32, 1, 100, 50)], ("query", 5)))
    batch = NumberedBatch("producer", Numbers(3, 3, 7))
    channel.engine().state.producers.record("producer", batch.numbers, (1, 1), in_memory=False)
    prepare(channel, Put([], [SegmentRef("segment." + "0" * 32, 1, 100, 50)], producer=batch))


def test_takes_need_neither_room_nor_files(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"first")
    open_channel(minimum_required_space=2**60)
    channel.engine().commit(Prepare("default", [(1, 1)]))
    with pytest.raises(DiskSpaceError):
        put(channel, b"second")


def test_a_staged_file_is_found_where_a_close_of_the_memory_tier_moved_it(open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, b"first")
    segment = staged(channel, 1 << 20)
    layout = channel.engine().layout
    puts = StagedPuts(FaultyFileSystem(), layout, channel.engine().log.tiers.disk)
    assert puts.found(segment) == segment
    moved = replace(segment, name=disk_segment(segment.name))
    layout.segment_file(moved.name).write_bytes(layout.segment_file(segment.name).read_bytes())
    assert puts.found(segment) == puts.found(moved) == moved


def test_the_delayed_events_of_one_append_need_room_together(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many threads' puts found the room that all of them found."""
    monkeypatch.setattr(disk_space, "_LOOK_SECONDS", float("inf"))
    small = SmallDisk(path.parent, 1 << 20)
    channel = open_channel(minimum_required_space=0)
    free_bytes = small.free_bytes(path)
    staged_puts = StagedPuts(small, channel.engine().layout, channel.engine().log.tiers.disk)
    plan, end = AppendPlan(channel.engine().state), 1000
    size_bytes = free_bytes // 10  # in a side file, and once more when it is due

    def delayed() -> Put:
        put = encode_batch(batch_from_events([Event(bytes(size_bytes))]))[0]
        due = channel.engine().deliveries.clock_ms() + 60_000
        return Put([], delayed=DelayedPuts(deliveries_of(channel).files, [chunk_of(due, put)]))

    for _ in range(4):
        staged_puts.prepare(request := delayed(), plan, 1, end)
        plan.attempt(request.plan)
        end += request.size_bytes()
    with pytest.raises(DiskSpaceError, match="waiting delayed events need"):
        staged_puts.prepare(delayed(), plan, 1, end)


def chunk_of(due_ms: int, put: Frame) -> DelayedChunk:
    return DelayedChunk(due_ms, 1000, due_ms, (dues_frame([due_ms], ()), put))
