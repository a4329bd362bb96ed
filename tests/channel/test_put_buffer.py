from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, DiskSpaceError, Event
from spillable_stream.channel import put_buffer
from spillable_stream.channel.event_columns import EventColumns, batch_from_events
from spillable_stream.channel.put_buffer import PutBuffer
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.storage.file import File
from tests.support.events import put, take
from tests.support.full_disk import refuse_once

Open = Callable[..., Channel]
SECOND_US = 1_000_000


def buffer_of(channel: Channel) -> PutBuffer:
    return PutBuffer(channel.engine(), EVENT_SCHEMA, 0)


def columns(*bodies: bytes) -> EventColumns:
    return EventColumns.of([Event(body) for body in bodies])


def batch(*bodies: bytes) -> pa.RecordBatch:
    return batch_from_events([Event(body) for body in bodies])


def segments(path: Path) -> list[Path]:
    return list((path / "data").glob("segment.*"))


def test_few_events_wait_and_are_encoded_together(open_channel: Open) -> None:
    buffer = buffer_of(open_channel())
    buffer.add_events(columns(b"a"))
    buffer.add_events(columns(b"b", b"c"))
    assert (buffer.waiting, buffer.frames) == (3, [])
    buffer.flush()
    assert (buffer.waiting, [frame.count for frame in buffer.frames]) == (0, [3])


def test_many_events_are_encoded_at_once(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_buffer, "_MOST_BYTES", 100)
    buffer = buffer_of(open_channel())
    buffer.add_events(columns(*[bytes(60)] * 5))
    assert [frame.count for frame in buffer.frames] == [2, 2]
    assert buffer.waiting == 1


def test_events_of_another_ttl_or_due_time_begin_another_frame(open_channel: Open) -> None:
    buffer = buffer_of(open_channel())
    for ttl_us, due_ms in [(0, 0), (0, 0), (SECOND_US, 0), (SECOND_US, 7)]:
        buffer.begin_run(ttl_us, due_ms)
        buffer.add_events(columns(b"x"))
    assert not buffer.has_dues
    buffer.flush()
    assert [(f.count, f.ttl_us, f.has_dues) for f in buffer.frames] == [
        (2, 0, False),
        (1, SECOND_US, False),
        (1, SECOND_US, True),
    ]
    assert buffer.has_dues


def test_what_is_too_much_for_the_log_is_staged_and_so_is_all_that_follows(open_channel: Open, path: Path) -> None:
    buffer = buffer_of(open_channel(max_inline_bytes=1000))
    buffer.add(batch(b"first"), 0)
    assert (buffer.segment, buffer.finish()) == (None, [])
    buffer.add(batch(bytes(2000)), 0)
    assert buffer.frames == []
    buffer.add(batch(b"last"), 0)
    assert [(segment.count, segments(path) != []) for segment in buffer.finish()] == [(3, True)]
    buffer.close()
    assert segments(path)


def test_what_is_discarded_leaves_no_file(open_channel: Open, path: Path) -> None:
    buffer = buffer_of(open_channel(max_inline_bytes=0))
    buffer.add(batch(b"x"), 0)
    buffer.add_events(columns(b"y"))
    buffer.discard()
    assert (buffer.waiting, buffer.frames, segments(path)) == (0, [], [])


@pytest.mark.parametrize("of", ["__init__", "write"])
def test_room_is_made_for_what_is_staged_where_the_disk_has_none(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    channel = open_channel(max_inline_bytes=1000)
    calls = refuse_once(monkeypatch, channel, of)
    put(channel, bytes(5000), b"x")
    assert calls == ["refused", "room"]
    assert take(channel) == [bytes(5000), b"x"]


def test_memory_that_a_full_disk_takes_no_staged_events_from_is_told_as_a_full_disk(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=1 << 20, max_inline_bytes=0)
    monkeypatch.setattr(put_buffer, "_INLINE_MEMORY_BYTES", 0)

    def refuse(self: File, source: File, size: int) -> None:
        raise DiskSpaceError("full")

    with monkeypatch.context() as full, pytest.raises(DiskSpaceError), channel.put_transaction() as tx:
        full.setattr(File, "copy_from", refuse)
        for _ in range(20):
            tx.put_batch(batch(bytes(100_000)))
    put(channel, b"x")
    assert take(channel) == [b"x"]
