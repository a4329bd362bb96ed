from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from spillable_stream import Channel, CorruptionError, DataLossError, Event
from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.log import event_reader
from tests.support.damage import flip, log_file, offsets
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem

pytestmark = pytest.mark.usefixtures("one_block")

Open = Callable[..., Channel]


def read(channel: Channel, first: int, last: int) -> list[bytes]:
    reader = channel.engine().reader()
    try:
        extents = channel.engine().state.blocks.extents(first, last)
        return [body for e in extents for b in reader.read(e) for body in b.batch.column("body").to_pylist()]
    finally:
        reader.close()


def test_any_range_of_ids_is_read_exactly(open_channel: Open) -> None:
    channel = open_channel(max_file_size=3000)
    for start in range(0, 60, 6):
        put(channel, *numbered(start, 6))
    for first in range(1, 61):
        for last in range(first, 61, 7):
            assert read(channel, first, last) == numbered(first - 1, last - first + 1)


def test_reading_on_decodes_no_frame_twice(open_channel: Open) -> None:
    """Taking a large transaction in small steps reads it once."""
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=1 << 30)
    put(channel, *[bytes(1000)] * 2000)
    fs.read_bytes = 0
    with channel.take_transaction() as tx:
        for _ in range(200):
            assert len(tx.take_many(10)) == 10
    assert fs.read_bytes < 2_000_000 * 1.2


def channel_of_frames(open_channel: Open, count: int) -> Channel:
    """Return a channel with a block of so many events, each of which is a frame."""
    channel = open_channel()
    with channel.put_transaction() as tx:
        for i, body in enumerate(numbered(0, count)):
            tx.put(Event(body), ttl=60 + i % 2)  # events with one ttl would share a frame
    return channel


def count_headers(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item for each header that is parsed."""
    parsed, parse_header = list[int](), event_reader.parse_header
    patch.setattr(event_reader, "parse_header", lambda *where: (parsed.append(1), parse_header(*where))[1])
    return parsed


def test_frames_behind_the_one_that_was_read_last_are_found_from_there(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, parsed = channel_of_frames(open_channel, 30), count_headers(monkeypatch)
    reader, (block,) = channel.engine().reader(), channel.engine().state.blocks
    assert [header.write_order_id for header, _ in reader.frames(block.extent(25, 26))] == [25, 26]
    before = len(parsed)
    assert [read.first_id for read in reader.read(block.extent(27, 27))] == [27]
    assert len(parsed) - before <= 2
    before = len(parsed)
    assert [header.write_order_id for header, _ in reader.frames(block.extent(28, 28))] == [28]
    assert len(parsed) - before <= 2
    assert [header.write_order_id for header, _ in reader.frames(block.extent(27, 27))] == [27]
    reader.close()


def test_events_that_are_read_in_another_order_are_found_without_a_search(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that take beside each other overtake each other between the claim and the read."""
    channel, parsed = channel_of_frames(open_channel, 200), count_headers(monkeypatch)
    reader, (block,) = channel.engine().reader(), channel.engine().state.blocks
    order = [first + i for first in range(1, 201, 8) for i in (0, 2, 1, 7, 6, 3, 5, 4)]
    for event_id in order:
        assert [(read.first_id, read.last_id) for read in reader.read(block.extent(event_id, event_id))] == [
            (event_id, event_id)
        ]
    assert len(parsed) <= 2 * len(order)
    reader.close()


def test_events_are_found_where_a_file_does_not_have_them_in_their_order(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=2, byte_capacity=1 << 20)
    for body in numbered(0, 3):  # the third one overflows to disk, and the others come behind it
        put(channel, body)
    assert channel.flush() == 2
    put(channel, *numbered(3, 1))
    for body in numbered(0, 4):
        assert take(channel, 1) == [body]


def test_events_are_found_again_behind_which_a_flush_has_moved_earlier_ones(open_channel: Open) -> None:
    """A block has them between its own then, and the last of them ends before its first event."""
    channel = open_channel(memory_capacity=2, byte_capacity=1 << 20, overflow_timeout=0)
    for body in numbered(0, 3):
        put(channel, body)
    assert channel.flush() == 2
    put(channel, *numbered(3, 3))  # too many for memory
    assert [block.count for block in channel.engine().state.blocks] == [2, 4]
    assert take(channel, 2) == numbered(0, 2)
    with channel.take_transaction() as tx:
        assert len(tx.take_many(4)) == 4
        tx.rollback()
    assert take(channel, 1) == numbered(2, 1)
    assert take(channel) == numbered(3, 3)


def test_a_frame_larger_than_any_window_is_read(open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=1 << 30)
    body = bytes(range(256)) * (12 << 12)
    put(channel, b"before")
    put(channel, body)
    put(channel, b"after")
    assert read(channel, 1, 3) == [b"before", body, b"after"]


def test_damage_names_file_offset_and_events(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    for i in range(5):
        put(channel, b"%d" % i)
    at = offsets(path, FrameType.PUT)[2]
    flip(log_file(path), at + 100)
    assert read(channel, 1, 2) == numbered(0, 2)
    assert read(channel, 4, 5) == numbered(3, 2)  # what lies behind can still be read
    with pytest.raises(CorruptionError, match="in the event 3") as caught:
        read(channel, 3, 3)
    assert (caught.value.path, caught.value.offset) == (str(log_file(path)), at)


def test_a_file_that_is_gone_is_data_loss(open_channel: Open) -> None:
    reader = open_channel().engine().reader()
    with pytest.raises(DataLossError, match="the events 5 to 9 are gone"):
        next(reader.read(Extent(7, 0, 5, 9)))


def test_an_extent_that_does_not_hold_its_events_is_corruption(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    put(channel, *numbered(3, 3))
    reader = channel.engine().reader()
    second = channel.engine().state.blocks.extents(1, 3)[0]._replace(offset=offsets(channel.path, FrameType.PUT)[1])
    for read_all in (reader.read, reader.frames):
        with pytest.raises(CorruptionError, match="event 1 is not where the channel's state says"):
            list(read_all(second))


def rewritten(path: Path, channel: Channel, payload: bytes, length: int | None = None) -> int:
    """Put a PUT frame of other contents, with right checksums, in place of the last; return where."""
    at = offsets(path, FrameType.PUT)[-1]
    seed = file_seed(channel.uuid, log_file(path).name)
    frame = Frame(FrameType.PUT, payload, google_crc32c.value(payload), 1)
    (data,) = encode(frame, seed, transaction_id=1, write_order_id=channel.stats().last_id)
    if length is not None:
        head = data[:4] + length.to_bytes(4, "little") + data[8:44]
        data = head + google_crc32c.extend(seed, head).to_bytes(4, "little") + data[48:]
    with log_file(path).open("r+b") as file:
        file.seek(at)
        file.write(data)
    return at


@pytest.mark.parametrize("payload", [b"", b"no batch", bytes(64), b"\xff\xff\xff\xff\x08\x00\x00\x00" + bytes(8)])
def test_events_that_are_not_arrow_batch_are_corruption(path: Path, open_channel: Open, payload: bytes) -> None:
    channel = open_channel()
    put(channel, b"first")
    put(channel, b"second")
    at = rewritten(path, channel, payload)
    with pytest.raises(CorruptionError, match="in the event 2") as caught:
        read(channel, 2, 2)
    assert (caught.value.path, caught.value.offset) == (str(log_file(path)), at)


def test_no_more_is_read_than_the_file_has(path: Path, open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    put(channel, b"first")
    at = rewritten(path, channel, b"x", length=1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptionError) as caught:
        read(channel, 1, 1)
    assert caught.value.offset == at
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_large_frames_in_a_row_are_read_once(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=1 << 30)
    put(channel, *[bytes(1 << 20)] * 64)  # frames of 2 MiB
    fs.read_bytes = 0
    assert len(read(channel, 1, 64)) == 64
    assert fs.read_bytes < (64 << 20) * 1.05
