"""Reading events past damage: what can be read, and what can not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import CorruptionError
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.log.event_reader import ReadBatch, events_of
from spillable_stream.log.frames import Damage, LocatedFrame, Readable, walk
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Unreadable", "salvage", "salvage_from"]


class Unreadable(NamedTuple):
    """Events that can't be read.

    Args:
        first_id: the first one's write-order ID.
        last_id: the last one's.
        path: the file.
        offset: where the damage starts.
        size: how many bytes it has.
    """

    first_id: int
    last_id: int
    path: Path
    offset: int
    size: int


def salvage(
    fs: FileSystem, layout: Layout, schema_of: Callable[[int], pa.Schema], extent: Extent
) -> Iterator[ReadBatch | Unreadable]:
    """Yield the events of an extent that can be read, and what can't, in order and without gaps.

    Args:
        fs: the file system.
        layout: where the files are.
        schema_of: returns the channel's schema with a number.
        extent: where the events are.

    Raises:
        StorageError: the file system refused.
    """
    path = layout.file(extent.file)
    file = fs.open(path, readonly=True)
    try:
        yield from salvage_from(file, path, layout.channel, schema_of, extent)
    finally:
        file.close()


def salvage_from(
    file: Readable, path: Path, channel: str, schema_of: Callable[[int], pa.Schema], extent: Extent
) -> Iterator[ReadBatch | Unreadable]:
    """Do what `salvage` does with a file that is open, or an object that is at hand.

    Args:
        file: the file.
        path: what it is called, for people.
        channel: the channel's UUID.
        schema_of: returns the channel's schema with a number.
        extent: where the events are.
    """
    expected = extent.first_id
    damage = (extent.offset, extent.offset)  # the last stretch that can't be read
    for item in walk(file, file_seed(channel, seed_name(extent.file)), extent.offset, file.size()):
        read = None if isinstance(item, Damage) else _events(item, schema_of, extent)
        if read is None:
            if isinstance(item, Damage) or item.header.type == FrameType.PUT:
                damage = (damage[0] if damage[1] > damage[0] else item.offset, item.end)
            continue
        if read.first_id > expected:
            yield Unreadable(expected, min(read.first_id - 1, extent.last_id), path, damage[0], damage[1] - damage[0])
            expected = read.first_id
        if expected <= min(read.last_id, extent.last_id):
            yield (part := read.clip(expected, extent.last_id))
            expected = part.last_id + 1
        if expected > extent.last_id:
            return
        damage = (item.end, item.end)
    yield Unreadable(expected, extent.last_id, path, damage[0], damage[1] - damage[0])


def _events(found: LocatedFrame, schema_of: Callable[[int], pa.Schema], extent: Extent) -> ReadBatch | None:
    """Return the events of a whole frame, or None if it has none, or none that make sense."""
    if found.header.type != FrameType.PUT or found.payload is None:
        return None
    try:
        return events_of(found.header, pa.py_buffer(found.payload), extent, schema_of)
    except CorruptionError:
        return None
