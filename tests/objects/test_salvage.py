from __future__ import annotations

import json

import pytest

from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.salvage import Unreadable
from spillable_stream.objects import salvage
from spillable_stream.objects.salvage import keep_damaged, not_quarantined, salvage_object
from spillable_stream.objects.staged_object import StagedObjectWriter
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import frames_of

CHANNEL = "0f0e0d0c-0b0a-0908-0706-050403020100"
SIZES = (3, 1, 4)  # of frames; their events have the IDs 11 to 18
_LARGE_BYTES = 2 << 20  # of an event


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


def staged(memory: MemoryStore, damaged: tuple[int, ...] = (), body_bytes: int = 50) -> Extent:
    """Stage some frames, damage the payloads of some, and return where they are."""
    writer, at = StagedObjectWriter(memory, CHANNEL, 5), list[int]()
    for size in SIZES:
        at.append(writer._end)
        writer.write(frames_of(*[b"x" * body_bytes] * size))
    found = writer.finish()
    data = bytearray(memory.objects[found.name])
    for number in damaged:
        data[at[number] + 90] ^= 1
    memory.objects[found.name] = bytes(data)
    return Extent(found.name, 0, 11, 18, base_id=11, transaction_id=1, time_us=1)


def read(memory: MemoryStore, extent: Extent) -> tuple[list[int], list[Unreadable]]:
    """Return the IDs that can be read, and what can't."""
    found = list(salvage_object(memory, CHANNEL, lambda _: EVENT_SCHEMA, extent))
    ids = [i for f in found if isinstance(f, ReadBatch) for i in range(f.first_id, f.last_id + 1)]
    return ids, [f for f in found if isinstance(f, Unreadable)]


@pytest.mark.parametrize(("damaged", "lost"), [((), []), ((1,), [(14, 14)]), ((0, 2), [(11, 13), (15, 18)])])
def test_what_can_be_read_is_read_past_what_can_not(
    memory: MemoryStore, damaged: tuple[int, ...], lost: list[tuple[int, int]]
) -> None:
    ids, unreadable = read(memory, staged(memory, damaged))
    assert [u[:2] for u in unreadable] == lost
    assert ids == [i for i in range(11, 19) if not any(a <= i <= b for a, b in lost)]


def test_it_ends_where_the_object_is_removed_meanwhile(memory: MemoryStore) -> None:
    extent = staged(memory, (0,), _LARGE_BYTES)
    reading = salvage_object(memory, CHANNEL, lambda _: EVENT_SCHEMA, extent)
    assert next(reading)[:2] == (11, 13)
    memory.objects.clear()
    assert all(found.last_id < 18 for found in reading)
    assert read(memory, extent) == ([], [])


def test_a_large_object_is_read_in_windows(memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment may be larger than a task's memory."""
    extent = staged(memory, (1,), _LARGE_BYTES)
    asked: list[int] = []

    def get_range(key: str, start: int, end: int) -> bytes:
        asked.append(end - start)
        return memory.objects[key][start:end]

    monkeypatch.setattr(memory, "get", lambda _: pytest.fail("the whole object is asked for"))
    monkeypatch.setattr(memory, "get_range", get_range)
    assert read(memory, extent)[1][0][:2] == (14, 14)
    assert len(memory.objects[str(extent.file)]) > 1.5 * max(asked)


def test_damaged_bytes_are_kept_with_a_report(memory: MemoryStore) -> None:
    extent = staged(memory, (1,))
    _, (damage,) = read(memory, extent)
    keep_damaged(memory, damage)
    kept = memory.objects["quarantine/events-14-14/bytes"]
    assert kept == memory.objects[str(extent.file)][damage.offset : damage.offset + damage.size]
    report = json.loads(memory.objects["quarantine/events-14-14/report.json"])
    assert report == {"path": extent.file, "offset": damage.offset, "size": damage.size, "events": [14, 14]}


def test_of_very_many_damaged_bytes_the_first_are_kept(memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_MOST_BYTES", 10)
    _, (damage,) = read(memory, staged(memory, (1,)))
    keep_damaged(memory, damage)
    assert len(memory.objects["quarantine/events-14-14/bytes"]) == 10


def test_lost_events_that_are_in_quarantine_are_not_missed(memory: MemoryStore) -> None:
    memory.objects |= {
        "quarantine/events-4-6/report.json": b"",
        "quarantine/events-8-9/bytes": b"",  # its report was never written
        "quarantine/notes": b"",
    }
    assert not_quarantined(memory, [(1, 5), (6, 10)]) == [(1, 3), (7, 10)]
    assert not_quarantined(memory, []) == []
