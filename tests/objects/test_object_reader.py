"""Events are read exactly, from windows of any size, with no byte asked for twice."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.objects import object_windows
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.slots import object_key, slot_key
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel
from tests.support.object_reads import MIB, Ranges, bodies_of, reader_of, staged


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory: MemoryStore) -> Ranges:
    return Ranges(memory)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(object_windows, "WINDOW_BYTES", 4096)
    return 4096


# ── windows ─────────────────────────────────────────────────────────────────────────────────────


def test_an_event_larger_than_a_window_is_read_with_those_beside_it(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"before", bytes(range(256)) * (20 * MIB // 256), b"after"]
    extent, _ = staged(memory, *bodies)
    assert bodies_of(reader_of(store), extent) == bodies
    assert sorted(start for _, start, _ in store.asked) == [0, 8 * MIB, 16 * MIB]


@pytest.mark.parametrize("size_bytes", [10, 700, 4096 - 2 * HEADER_SIZE_BYTES, 5000, 9000])
def test_frames_that_lie_across_windows_are_read_and_no_byte_is_asked_for_twice(
    memory: MemoryStore, store: Ranges, small_windows: int, size_bytes: int
) -> None:
    bodies = [bytes([number]) * (size_bytes + number % 3) for number in range(40)]
    extent, _ = staged(memory, *bodies)
    assert bodies_of(reader_of(store), extent) == bodies
    ranges = sorted((start, end) for _, start, end in store.asked)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert ranges[-1][0] <= len(memory.objects[str(extent.file)]) + small_windows


def test_any_part_of_an_extent_is_read(memory: MemoryStore, store: Ranges, small_windows: int) -> None:
    bodies = [bytes([number]) * 500 for number in range(20)]
    extent, _ = staged(memory, *bodies, first_id=101)
    for first in range(101, 121, 3):
        for last in range(first, 121, 4):
            part = extent._replace(first_id=first, last_id=last)
            assert bodies_of(reader_of(store), part) == bodies[first - 101 : last - 100]


@pytest.mark.usefixtures("one_block")
def test_the_events_of_a_slot_are_read_from_its_key(memory: MemoryStore, store: Ranges) -> None:
    writer = Writer(memory, new_channel(memory))
    writer.put(b"0", b"1")
    (extent,) = writer.state.blocks.extents(1, 2)
    assert object_key(extent.file) == slot_key(1)
    reader = ObjectReader(store, writer.slots.channel, lambda _: EVENT_SCHEMA)
    assert bodies_of(reader, extent) == [b"0", b"1"]


# ── what can not be read ────────────────────────────────────────────────────────────────────────


def test_an_object_that_is_gone_is_data_loss_that_names_its_events(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0", b"1", first_id=5)
    memory.objects.clear()
    with pytest.raises(DataLossError, match="the events 5 to 6 are gone") as caught:
        bodies_of(reader_of(store), extent)
    assert caught.value.path == f"{memory.root}/{extent.file}"


@pytest.mark.parametrize("at", [20, HEADER_SIZE_BYTES + 30, 500], ids=["header", "payload", "body"])
def test_damage_names_object_offset_and_events_and_what_is_before_it_is_read(
    memory: MemoryStore, store: Ranges, small_windows: int, at: int
) -> None:
    extent, offsets = staged(memory, *[bytes([number]) * 700 for number in range(20)])
    data = bytearray(memory.objects[str(extent.file)])
    data[offsets[12] + at] ^= 1
    memory.objects[str(extent.file)] = bytes(data)
    read = list[int]()
    with pytest.raises(CorruptionError, match="a frame is damaged among the events 1 to 20") as caught:
        read.extend(batch.first_id for batch in reader_of(store).read(extent))
    assert (caught.value.path, caught.value.offset) == (f"{memory.root}/{extent.file}", offsets[12])
    whole = extent._replace(last_id=12)
    assert len(bodies_of(reader_of(store), whole)) == 12


@pytest.mark.parametrize("kept_bytes", [-8, -700, 20])
def test_an_object_that_ends_too_soon_is_damage_and_no_endless_read(
    memory: MemoryStore, store: Ranges, small_windows: int, kept_bytes: int
) -> None:
    extent, _ = staged(memory, *[bytes(700)] * 10)
    memory.objects[str(extent.file)] = memory.objects[str(extent.file)][:kept_bytes]
    with pytest.raises(CorruptionError) as caught:
        bodies_of(reader_of(store), extent)
    assert not isinstance(caught.value, DataLossError)


def test_an_extent_that_does_not_hold_its_events_is_damage(memory: MemoryStore, store: Ranges) -> None:
    extent, offsets = staged(memory, b"0", b"1", b"2")
    with pytest.raises(CorruptionError, match="event 1 is not where the channel's state says"):
        bodies_of(reader_of(store), extent._replace(offset=offsets[1]))
    with pytest.raises(CorruptionError, match="event 1 is not where the channel's state says"):
        list(reader_of(store).frames(extent._replace(offset=offsets[1])))


def test_an_extent_that_lacks_a_frame_is_damage(memory: MemoryStore, store: Ranges) -> None:
    """They were taken for all of it: a merge, and a backup, lacked an event that nobody named."""
    extent, offsets = staged(memory, b"0", b"1", b"2")
    data = memory.objects[str(extent.file)]
    memory.objects[str(extent.file)] = data[: offsets[1]] + data[offsets[2] :]
    with pytest.raises(CorruptionError, match="event 2 is not where the channel's state says"):
        list(reader_of(store).frames(extent))


# ── frames as they are ──────────────────────────────────────────────────────────────────────────


def test_frames_are_those_that_the_extent_covers(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, *[b"%d" % number for number in range(6)])
    found = list(reader_of(store).frames(extent._replace(first_id=2, last_id=4)))
    assert [(header.write_order_id, header.count) for header, _ in found] == [(1, 1), (2, 1), (3, 1)]
    assert all(isinstance(payload, pa.Buffer) and len(payload) == header.length for header, payload in found)
