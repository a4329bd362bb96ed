"""Bytes of objects that were read or written lately. Slots, segments and merged objects never change."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from spillable_stream.format.frame import Payload
from spillable_stream.objects.store import whole

__all__ = ["ObjectCache"]


class ObjectCache:
    """Whole objects by key, the least recently used go first. Thread-safe.

    Args:
        most_bytes: how many bytes to keep.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, pa.Buffer | list[Payload]] = OrderedDict()
        self._size_bytes = 0
        self._clears = 0
        self._mutex = threading.Lock()

    @property
    def clears(self) -> int:
        """How often everything was let go: what was asked for before may be of another object of that key."""
        return self._clears

    def get(self, key: str) -> pa.Buffer | None:
        """Return an object's bytes, or None."""
        with self._mutex:
            found = self._kept.get(key)
            if isinstance(found, list):
                found = self._kept[key] = pa.py_buffer(whole(found))
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, data: pa.Buffer | list[Payload], asked_at: int | None = None) -> None:
        """Keep an object, unless it alone would take half of the room; parts are put together when they are read.

        Args:
            key: the object's key.
            data: its bytes.
            asked_at: what `clears` was before the store was asked for them: they are kept only if it still is; None if
                they are of now.
        """
        if (size_bytes := _size(data)) > self._most_bytes // 2:
            return
        with self._mutex:
            if asked_at not in (None, self._clears):
                return
            self._size_bytes += size_bytes - _size(self._kept.pop(key, []))
            self._kept[key] = data
            while self._size_bytes > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                self._size_bytes -= _size(gone)

    def clear(self) -> None:
        """Let go of everything."""
        with self._mutex:
            self._kept.clear()
            self._size_bytes = 0
            self._clears += 1

    def forget(self, key: str) -> None:
        """Let go of an object that was deleted."""
        with self._mutex:
            self._size_bytes -= _size(self._kept.pop(key, []))

    def forget_all(self, prefix: str) -> None:
        """Let go of all that is kept under keys with a beginning."""
        with self._mutex:
            for key in [key for key in self._kept if key.startswith(prefix)]:
                self._size_bytes -= _size(self._kept.pop(key))


def _size(data: pa.Buffer | list[Payload]) -> int:
    return sum(map(len, data)) if isinstance(data, list) else len(data)
