"""Windows are asked for once, ahead where it is known what will be read, and no damaged one is used."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.names import LOCAL_OWNER
from spillable_stream.objects import object_windows
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.staged_object import MERGED_OWNER
from tests.support.faulty_store import Fault, once
from tests.support.memory_store import MemoryStore
from tests.support.object_reads import CHANNEL, MIB, Ranges, bodies_of, reader_of, staged


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


def test_a_small_object_is_fetched_once_however_often_it_is_read(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0", b"1", b"2")
    reader = reader_of(store)
    for event_id in (1, 3, 2, 1):
        assert bodies_of(reader, extent._replace(first_id=event_id, last_id=event_id)) == [b"%d" % (event_id - 1)]
    assert len(store.asked) == 1


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("first", [0, 3, 40])
def test_reads_of_a_few_events_of_a_large_object_continue_with_what_is_left_of_a_window(
    memory: MemoryStore, store: Ranges, first: int, is_copy: bool
) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(72)]
    whole, places = staged(memory, *bodies, owner=MERGED_OWNER if is_copy else LOCAL_OWNER)
    reader = reader_of(store)
    for number in range(first, 60):
        extent = whole._replace(first_id=number + 1, last_id=number + 1)
        if is_copy:  # it has many blocks, and a segment one
            extent = Extent(whole.file, places[number], number, number, 0, 0, 0)
        reader.expect([extent])
        assert bodies_of(reader, extent) == [bodies[number]]
    assert sum(min(end, 18 * MIB) - start for _, start, end in store.asked) < 20 * MIB
    assert len(store.asked) <= 5, "whole windows"
    reader.close()
    assert reader._windows._cache._size_bytes == 0


def test_readers_that_share_a_cache_continue_with_a_window_each(memory: MemoryStore, store: Ranges) -> None:
    """As the groups of a handle do that take in turn."""
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(60)]
    whole, _ = staged(memory, *bodies)
    cache = ObjectCache(64 * MIB)
    readers = [ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA, cache) for _ in range(3)]
    for number, body in enumerate(bodies, 1):
        extent = whole._replace(first_id=number, last_id=number)
        assert [bodies_of(reader, extent) for reader in readers] == 3 * [[body]]
    assert len(store.asked) <= 3 * 3
    assert sum(min(end, 16 * MIB) - start for _, start, end in store.asked) < 3 * 17 * MIB


def test_a_window_that_is_kept_counts_as_large_as_it_is_wherever_the_last_read_ended(
    memory: MemoryStore, store: Ranges
) -> None:
    whole, _ = staged(memory, *[bytes(MIB // 4)] * 40)
    reader = reader_of(store)
    for number in (1, 2, 30):
        list(reader.read(whole._replace(last_id=number)))
        assert reader._windows._cache._size_bytes == 8 * MIB


def test_a_reader_whose_window_had_to_make_room_finds_its_place_again(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(72)]
    whole, _ = staged(memory, *bodies)
    reader = reader_of(store)
    for number in range(60, 70):
        assert bodies_of(reader, whole._replace(first_id=number + 1, last_id=number + 1)) == [bodies[number]]
        reader._windows._cache.clear()
    assert sum(min(end, 18 * MIB) - start for _, start, end in store.asked) < 10 * 2 * MIB
    assert len(store.asked) <= 10 * 3


def test_events_of_an_object_that_have_other_ids_by_now_are_found(memory: MemoryStore, store: Ranges) -> None:
    """It was adopted again, after the bucket was put back."""
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(40)]
    whole, _ = staged(memory, *bodies)
    reader = reader_of(store)
    assert bodies_of(reader, whole._replace(last_id=3)) == bodies[:3]
    assert bodies_of(reader, whole._replace(first_id=4, last_id=4, base_id=3)) == [bodies[1]]


def test_a_task_asks_for_no_whole_window_behind_its_last_extent(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(72)]
    whole, places = staged(memory, *bodies, owner=MERGED_OWNER)
    extents = [Extent(whole.file, at, number, number, 0, 0, 0) for number, at in enumerate(places)][:33]
    reader = reader_of(store)
    reader.expect(extents)
    assert [body for extent in extents for body in bodies_of(reader, extent)] == bodies[:33]
    assert [start for _, start, _ in store.asked] == [0, 8 * MIB]
    assert store.asked[-1][2] <= places[32] + 2 * MIB


def test_objects_of_many_blocks_are_asked_for_ahead_like_others(memory: MemoryStore, store: Ranges) -> None:
    extents = list[Extent]()
    for _ in range(3):
        whole, places = staged(memory, *[bytes(1000)] * 20, owner=MERGED_OWNER)
        extents += [Extent(whole.file, at, number, number, 0, 0, 0) for number, at in enumerate(places)]
    reader = reader_of(store)
    reader.expect(extents)
    for future in list(reader._windows._begun.values()):
        future.result()
    assert len(store.asked) == 3
    assert [len(bodies_of(reader, extent)) for extent in extents] == [1] * 60
    assert len(store.asked) == 3


def test_no_window_is_asked_for_between_two_extents_that_are_far_apart(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(100)]
    whole, places = staged(memory, *bodies, owner=MERGED_OWNER)
    extents = [Extent(whole.file, places[number], number, number, 0, 0, 0) for number in (0, 1, 99)]
    reader = reader_of(store)
    reader.expect(extents)
    assert [bodies_of(reader, extent) for extent in extents] == [[bodies[0]], [bodies[1]], [bodies[99]]]
    assert [start for _, start, _ in store.asked] == [0, places[99]]


def test_a_window_of_copies_that_was_damaged_on_the_way_is_not_kept(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(40)]
    whole, places = staged(memory, *bodies, owner=MERGED_OWNER)
    reader, extent = reader_of(store), Extent(whole.file, places[2], 2, 2, 0, 0, 0)
    before = memory.objects[str(whole.file)]
    memory.objects[str(whole.file)] = before[: places[2]] + bytes(len(before) - places[2])
    with pytest.raises(CorruptionError):
        bodies_of(reader, extent)
    memory.objects[str(whole.file)] = before
    assert bodies_of(reader, extent) == [bodies[2]]


def test_what_is_expected_is_asked_for_ahead_and_not_again(memory: MemoryStore, store: Ranges) -> None:
    extents = [staged(memory, b"%d" % number, first_id=number + 1)[0] for number in range(20)]
    reader = reader_of(store)
    reader.expect(extents)
    for future in list(reader._windows._begun.values()):
        future.result()
    assert {key for key, _, _ in store.asked} == {extent.file for extent in extents[:8]}
    assert [bodies_of(reader, extent) for extent in extents] == [[b"%d" % number] for number in range(20)]
    assert len(store.asked) == len(set(store.asked)) == 20


@pytest.mark.parametrize("first_id", [1, 15])
def test_the_next_window_is_asked_for_before_the_first_one_is_decoded(
    memory: MemoryStore, store: Ranges, monkeypatch: pytest.MonkeyPatch, first_id: int
) -> None:
    monkeypatch.setattr(object_windows, "WINDOW_BYTES", 4 * MIB)
    extent, at = staged(memory, *[bytes(MIB)] * 32)

    def windows() -> list[tuple[int, int]]:
        for future in list(reader._windows._begun.values()):
            future.result()
        return sorted((start, end) for _, start, end in store.asked if end - start >= MIB)

    reader = reader_of(store)
    reads = reader.read(extent._replace(first_id=first_id, last_id=first_id + 12))
    next(reads)
    assert len(windows()) == 2
    assert sum(1 for _ in reads) == 12
    assert all(end <= start for (_, end), (start, _) in pairwise(windows()))
    assert len(windows()) == 4 and windows()[-1][1] <= at[first_id + 13], "at most a frame behind the last event"


class SlowCache(DiskCache):
    """A cache on a disk that takes a moment for all windows but the first one."""

    def get(self, channel: str, key: str, offset: int) -> pa.Buffer | None:
        if offset:
            time.sleep(0.1)
        return super().get(channel, key, offset)


def test_a_damaged_window_ahead_that_ends_while_the_cache_is_passed_by_is_not_used(
    memory: MemoryStore, store: Ranges, tmp_path: Path, small_windows: int
) -> None:
    bodies = [b"%d" % i * 1000 for i in range(8)]
    extent, at = staged(memory, *bodies)
    key = str(extent.file)
    whole = memory.objects[key]
    damaged = bytearray(whole)
    for offset in (at[1], at[5]):
        damaged[offset + HEADER_SIZE_BYTES + 30] ^= 1
    assert at[1] < small_windows < at[5]
    kept = DiskCache(str(tmp_path), 1 << 30)
    name = f"{CHANNEL} at {store.root}"
    for offset in range(0, len(damaged), small_windows):
        kept.put(name, key, offset, pa.py_buffer(bytes(damaged[offset : offset + small_windows])))
    cache = SlowCache(str(tmp_path), 1 << 30)
    assert bodies_of(ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA, disk_cache=cache), extent) == bodies


def test_windows_of_other_objects_may_come_while_the_cache_is_passed_by(memory: MemoryStore, store: Ranges) -> None:
    class Late(str):
        """The key of a window: another one comes whenever it is looked at."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            reader._windows._kept["another", "window", len(reader._windows._kept)] = False
            return super().__eq__(other)

    reader = reader_of(store)
    reader._windows._kept |= {(Late("some"), "window", 0): False, (Late("one"), "window", 1): False}
    assert not reader._windows.forget("a")
    assert len(reader._windows._kept) > 2


def test_what_was_expected_and_is_not_read_does_not_add_up(memory: MemoryStore, store: Ranges) -> None:
    reader = reader_of(store)
    for number in range(10):
        reader.expect([staged(memory, b"x", first_id=10 * number + i)[0] for i in range(1, 9)])
    assert len(reader._windows._begun) <= 16


def test_a_request_ahead_that_failed_fails_the_read_that_needs_it_and_the_next_one_asks_again(
    memory: MemoryStore, store: Ranges
) -> None:
    extent, _ = staged(memory, b"0")
    store.schedule = once("get_range", Fault.UNAVAILABLE)
    reader = reader_of(store)
    reader.expect([extent])
    with pytest.raises(StorageError, match="unavailable"):
        bodies_of(reader, extent)
    assert bodies_of(reader, extent) == [b"0"]


def test_a_reader_that_was_closed_asks_again(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0")
    reader = reader_of(store)
    reader.expect([extent])
    reader.close()
    assert (reader._expected, len(reader._windows._begun)) == ([], 0)
    assert bodies_of(reader, extent) == [b"0"]
