"""An object store in a dictionary."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spillable_stream.format.frame import Payload
from spillable_stream.objects.store import Change, Content, ObjectInfo, ObjectMissingError, whole

__all__ = ["MemoryStore", "MemoryUpload"]


class MemoryStore:
    """Does at once and for all threads what a `Store` promises.

    Attributes:
        root: what it calls its root.
        objects: all objects by key, for tests to look at and to damage.
        now: the time of the store's clock, in seconds.
    """

    def __init__(self, root: str = "memory://bucket/orders") -> None:
        self.root = root
        self.objects: dict[str, bytes] = {}
        self.now = 0.0
        self._times: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Put the bucket back, at the end of the block, to the version that it had at its beginning."""
        before = dict(self.objects)
        yield
        self.objects.clear()
        self.objects.update(before)

    def create(self, key: str, data: Content) -> bool:
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = bytes(whole(data))
            self._times[key] = self.now
            return True

    def replace(self, key: str, data: Payload) -> None:
        with self._lock:
            self.objects[key] = bytes(data)
            self._times[key] = self.now

    def change(self, key: str, changed: Change) -> bool:
        before = self.get(key)
        new = changed(before)
        with self._lock:
            is_same = self.objects.get(key) is before
            if is_same and new is not None:
                self.objects[key] = bytes(new)
                self._times[key] = self.now
            return is_same or new is None

    def upload(self, key: str) -> MemoryUpload:
        return MemoryUpload(self, key)

    def get(self, key: str) -> bytes:
        with self._lock:
            found = self.objects.get(key)
        if found is None:
            raise ObjectMissingError(f"{self.root} has no object {key}")
        return found

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[start:end]

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the last key first: nobody may rely on an order."""
        with self._lock:
            found = [
                ObjectInfo(key, len(data), self._times.get(key, 0.0))
                for key, data in self.objects.items()
                if key.startswith(prefix)
            ]
        yield from sorted(found, reverse=True)

    def folders(self) -> Iterator[str]:
        with self._lock:
            found = {key.split("/")[0] for key in self.objects if "/" in key}
        return iter(sorted(found, reverse=True))


class MemoryUpload:
    """Parts of an object that is not there yet."""

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store = store
        self._key = key
        self._parts: list[bytes] = []

    def write(self, data: Payload) -> None:
        self._parts.append(bytes(data))

    def finish(self) -> None:
        self._store.replace(self._key, b"".join(self._parts))

    def discard(self) -> None:
        self._parts.clear()
