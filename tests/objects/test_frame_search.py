"""Where the frame of an event is found in the middle of a segment, and how much of the segment is read for it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.objects import frame_search, object_reader, object_windows
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.object_reader import ObjectReader
from tests.support.memory_store import MemoryStore
from tests.support.object_reads import CHANNEL, Ranges, bodies_of, reader_of, staged

KIB = 1 << 10


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory: MemoryStore) -> Ranges:
    return Ranges(memory)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let segments of some hundred KiB be large."""
    monkeypatch.setattr(object_windows, "WINDOW_BYTES", 16 * KIB)
    monkeypatch.setattr(object_reader, "_LEAST_BYTES", 1 * KIB)
    monkeypatch.setattr(frame_search, "_WORTH_BYTES", 4 * KIB)


def read_bytes(memory: MemoryStore, store: Ranges) -> int:
    """Return how many bytes were read."""
    return sum(min(end, len(memory.objects[key])) - start for key, start, end in store.asked)


def in_parts(extent: Extent, parts: int) -> list[Extent]:
    count = extent.last_id - extent.first_id + 1
    bounds = [extent.first_id + count * i // parts for i in range(parts + 1)]
    return [extent._replace(first_id=a, last_id=b - 1) for a, b in pairwise(bounds)]


def test_tasks_that_share_a_segment_read_little_more_of_it_than_it_has(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"%d" % number + bytes(KIB) for number in range(400)]
    extent, _ = staged(memory, *bodies, first_id=7)
    size_bytes = len(memory.objects[str(extent.file)])
    found = [body for part in in_parts(extent, 10) for body in bodies_of(reader_of(store), part)]
    assert found == bodies
    assert read_bytes(memory, store) < 1.6 * size_bytes


@pytest.mark.parametrize("seed", range(30))
def test_events_are_found_however_different_the_frames_are(memory: MemoryStore, store: Ranges, seed: int) -> None:
    random = Random(seed)
    bodies = [random.randbytes(random.choice((10, 500, 3 * KIB, 40 * KIB))) for _ in range(60)]
    if seed % 2:
        bodies.sort(key=len, reverse=seed % 4 == 1)
    extent, _ = staged(memory, *bodies, first_id=7)
    for part in in_parts(extent, random.randrange(2, 9)):
        assert bodies_of(reader_of(store), part) == bodies[part.first_id - 7 : part.last_id - 6]


def test_frames_of_another_segment_inside_of_events_are_not_taken_for_frames(
    memory: MemoryStore, store: Ranges
) -> None:
    copied, _ = staged(memory, *[b"%d" % number + bytes(200) for number in range(50)])
    bodies = [b"%d" % number + memory.objects[str(copied.file)] for number in range(30)]
    extent, _ = staged(memory, *bodies)
    for part in in_parts(extent, 7):
        assert bodies_of(reader_of(store), part) == bodies[part.first_id - 1 : part.last_id]


def test_what_is_asked_for_ahead_is_not_the_beginning_of_a_segment_whose_middle_is_wanted(
    memory: MemoryStore, store: Ranges
) -> None:
    extent, _ = staged(memory, *[bytes(KIB)] * 100)
    reader, middle = reader_of(store), extent._replace(first_id=60, last_id=69)
    reader.expect([middle])
    assert store.asked == []
    assert len(bodies_of(reader, middle)) == 10


def test_damage_before_an_event_is_not_its_matter_and_damage_in_it_is_found(memory: MemoryStore, store: Ranges) -> None:
    extent, at = staged(memory, *[b"%d" % number + bytes(KIB) for number in range(100)])
    whole = memory.objects[str(extent.file)]
    middle = extent._replace(first_id=60, last_id=69)
    for damaged in (at[20], at[20] + 60):
        memory.objects[str(extent.file)] = whole[:damaged] + b"damaged!" + whole[damaged + 8 :]
        assert len(bodies_of(reader_of(store), middle)) == 10
    for damaged in (at[59], at[64] + 60):
        memory.objects[str(extent.file)] = whole[:damaged] + b"damaged!" + whole[damaged + 8 :]
        with pytest.raises(CorruptionError, match="60 to 69"):
            bodies_of(reader_of(store), middle)


def test_a_segment_that_is_at_hand_is_not_searched(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, *[b"x"] * 20)
    reader: ObjectReader = reader_of(store)
    for first in (1, 10, 20):
        bodies_of(reader, extent._replace(first_id=first))
    assert len(store.asked) == 1


def test_a_cut_beginning_on_disk_is_not_taken_for_the_whole_segment(
    memory: MemoryStore, store: Ranges, tmp_path: Path
) -> None:
    """The look at a segment's first frame reads 4 KiB of it, and another reader may find these."""
    bodies = [b"%d" % number + bytes(KIB) for number in range(100)]
    extent, _ = staged(memory, *bodies, first_id=7)
    disk = DiskCache(str(tmp_path), 1 << 20)

    def reader() -> ObjectReader:
        return ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA, disk_cache=disk)

    middle = extent._replace(first_id=67, last_id=76)
    assert bodies_of(reader(), middle) == bodies[60:70]
    assert sum(header.count for header, _ in reader().frames(extent)) == 100
    store.asked.clear()
    assert bodies_of(reader(), middle) == bodies[60:70]
    assert store.asked == []
