"""Reads of events in a store that remembers what it was asked for."""

from __future__ import annotations

from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.names import LOCAL_OWNER
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.staged_object import StagedObjectWriter
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import frames_of

__all__ = ["CHANNEL", "MIB", "Ranges", "bodies_of", "reader_of", "staged"]

CHANNEL = "0f0e0d0c-0b0a-0908-0706-050403020100"
MIB = 1 << 20


class Ranges(FaultyStore):
    """Remembers which bytes were asked for.

    Attributes:
        asked: keys, first bytes and ends.
    """

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory)
        self.asked: list[tuple[str, int, int]] = []

    def get_range(self, key: str, start: int, end: int) -> object:  # type: ignore[override]
        self.asked.append((key, start, end))
        return super().get_range(key, start, end)


def reader_of(store: Ranges) -> ObjectReader:
    return ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA)


def staged(
    memory: MemoryStore, *bodies: bytes, first_id: int = 1, owner: str = LOCAL_OWNER
) -> tuple[Extent, list[int]]:
    """Stage events with a frame each; return where they are, and where each frame begins."""
    writer, at = StagedObjectWriter(memory, CHANNEL, 5, owner), list[int]()
    for body in bodies:
        at.append(writer._end)
        writer.write(frames_of(body))
    last_id = first_id + len(bodies) - 1
    return Extent(writer.finish().name, 0, first_id, last_id, first_id, 1, 1), at


def bodies_of(reader: ObjectReader, extent: Extent) -> list[bytes]:
    return [body for read in reader.read(extent) for body in read.batch.column("body").to_pylist()]
