"""A put request: a batch that is committed again is known, whatever became of what was staged for it since."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.requests import COMMIT_BYTES
from spillable_stream.errors import ProducerSequenceError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.frame import Frame, FrameType, encode_all
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState


def staged(channel: Channel, query: str, batch: int) -> SegmentRef:
    """Stage a segment for a batch, as a task of the sink does."""
    engine = channel.engine()
    rows = pa.record_batch({"headers": pa.array([{}], channel.schema.field("headers").type), "body": [b"x"]})
    writer = StagedFileWriter(engine.fs, engine.layout, query, batch)
    writer.write(encode_batch(rows.cast(channel.schema), 0, "none"))
    reference = writer.finish()
    writer.close()
    return reference


def test_a_batch_that_was_committed_needs_no_staging_when_it_is_committed_again(
    open_channel: Callable[..., Channel],
) -> None:
    """The sink's commit was published, the driver killed, the batch staged again: a checkpoint removes that."""
    channel = open_channel()
    channel.engine().commit(Put([], [staged(channel, "query", 5)], ("query", 5)))
    again = staged(channel, "query", 5)
    channel.checkpoint()
    channel.engine().commit(Put([], [again], ("query", 5)))
    assert channel.stats().channel_size == 1


def test_a_commit_that_comes_late_changes_nothing(open_channel: Callable[..., Channel]) -> None:
    """Of a worker that outlived its driver, after the next driver committed the batch and one more."""
    channel = open_channel()
    late = staged(channel, "query", 5)
    for batch in 5, 6:
        channel.engine().commit(Put([], [staged(channel, "query", batch)], ("query", batch)))
    channel.engine().drained.remove_staging("query", 6)
    channel.engine().commit(Put([], [late], ("query", 5)))
    assert channel.stats().channel_size == 2
    assert channel.stats().segments == 2


def test_a_producers_batch_that_was_cut_on_another_number_is_refused(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    rows = pa.record_batch({"headers": pa.array([{}], channel.schema.field("headers").type), "body": [b"x"]})
    frames = encode_batch(rows.cast(channel.schema), 0, "none")
    commit = channel.engine().commit
    commit(Put(frames, producer=NumberedBatch("p", Numbers(1, 5)), follows=0))
    with pytest.raises(ProducerSequenceError, match="up to 5 in the channel, but had them up to 3"):
        commit(Put(frames, producer=NumberedBatch("p", Numbers(4, 8)), follows=3))
    commit(Put(frames, producer=NumberedBatch("p", Numbers(6, 8)), follows=5))
    assert channel.stats().producers == {"p": 8} and channel.stats().channel_size == 2


def test_room_is_made_for_all_that_is_appended_and_little_more() -> None:
    request = Put([Frame.of(FrameType.PUT, bytes(size), 1) for size in range(1000)])
    plan = AppendPlan(ChannelState(ChannelOptions(), [b"schema"]))
    request.plan(plan)
    size_bytes = sum(map(len, encode_all(plan.entries, 0)))
    assert size_bytes <= request.size_bytes() <= size_bytes + COMMIT_BYTES + 7 * len(request.frames)
