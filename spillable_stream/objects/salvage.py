"""Reading events of objects past damage, and what is kept of those that can't be read.

::

    quarantine/events-FIRST-LAST/report.json     object, offset, size in bytes and IDs
    quarantine/events-FIRST-LAST/bytes           the damaged bytes, 16 MiB of them at most
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.salvage import Unreadable, salvage_from
from spillable_stream.objects.slots import object_key
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.objects.stored_object import StoredObject
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["QUARANTINE", "ObjectBytes", "keep_damaged", "not_quarantined", "salvage_object"]

QUARANTINE = "quarantine/"
"""What the keys begin with of what was put aside."""

_NAME = re.compile(r"quarantine/events-(\d+)-(\d+)/report\.json\Z")
_MOST_BYTES = 16 << 20


class ObjectBytes:
    """The bytes of an object that is at hand. It implements `Readable`.

    Args:
        data: the bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on; fewer at the end."""
        return self._data[offset : offset + size]

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._data)


def salvage_object(
    store: Store, channel: str, schema_of: Callable[[int], pa.Schema], extent: Extent
) -> Iterator[ReadBatch | Unreadable]:
    """Yield the events of an extent that can be read, and what can't, in order and without gaps.

    It ends before the extent does if the object is removed meanwhile.

    Args:
        store: where the objects are.
        channel: the channel's UUID.
        schema_of: returns the channel's schema with a number.
        extent: where the events are.

    Raises:
        StoreError: the store refused or failed.
    """
    key = object_key(extent.file)
    sizes = {info.key: info.size_bytes for info in store.list(key)}
    with suppress(ObjectMissingError):
        yield from salvage_from(StoredObject(store, key, sizes.get(key)), Path(key), channel, schema_of, extent)


def keep_damaged(store: Store, damage: Unreadable) -> None:
    """Keep the damaged bytes and a report.

    Raises:
        StoreError: the store refused or failed, or the object is gone.
    """
    root, size_bytes = f"{QUARANTINE}events-{damage.first_id}-{damage.last_id}", min(damage.size, _MOST_BYTES)
    report = {
        "path": str(damage.path),
        "offset": damage.offset,
        "size": damage.size,
        "events": [damage.first_id, damage.last_id],
    }
    store.replace(f"{root}/bytes", store.get_range(str(damage.path), damage.offset, damage.offset + size_bytes))
    store.replace(f"{root}/report.json", json.dumps(report, indent=1).encode() + b"\n")


def not_quarantined(store: Store, lost: Iterable[Range]) -> list[Range]:
    """Return ranges of lost events, without those that a read put into quarantine."""
    wanted = list(lost)
    if not wanted:
        return []
    names = (_NAME.match(info.key) for info in store.list(QUARANTINE))
    known = RangeSet((int(m[1]), int(m[2])) for m in names if m)
    return [r for first, last in wanted for r in known.gaps(first, last)]
