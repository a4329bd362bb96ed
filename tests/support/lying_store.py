"""Stores that break a promise and say nothing."""

from __future__ import annotations

from collections.abc import Iterator

from spillable_stream.objects.store import Content, ObjectInfo, ObjectMissingError, whole
from tests.support.memory_store import MemoryStore

__all__ = [
    "ForgetfulStore",
    "HidingStore",
    "LateStore",
    "LosingStore",
    "MixingStore",
    "OverwritingStore",
    "RememberingStore",
    "StaleStore",
    "StuckStore",
]


class OverwritingStore(MemoryStore):
    """Ignores conditions: whoever creates an object replaces the one there is."""

    def create(self, key: str, data: Content) -> bool:
        self.replace(key, whole(data))
        return True


class LosingStore(MemoryStore):
    """Tells the first of several writers that it created an object, and keeps what the last one sent."""

    def create(self, key: str, data: Content) -> bool:
        created = super().create(key, data)
        self.replace(key, whole(data))
        return created


class ForgetfulStore(MemoryStore):
    """Says that it created an object and has none."""

    def create(self, key: str, data: Content) -> bool:
        return True


class StuckStore(MemoryStore):
    """Creates nothing, and says that there is an object."""

    def create(self, key: str, data: Content) -> bool:
        return False


class RememberingStore(MemoryStore):
    """Remembers for how long it pleases that an object was missing, as a cache between does."""

    def __init__(self) -> None:
        super().__init__()
        self._missing: set[str] = set()

    def get(self, key: str) -> bytes:
        if key in self._missing:
            raise ObjectMissingError(f"there is no object {key}")
        try:
            return super().get(key)
        except ObjectMissingError:
            self._missing.add(key)
            raise


class StaleStore(MemoryStore):
    """Returns an object as it was when it was first read."""

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        return self._read.setdefault(key, super().get(key)) if key not in self._read else self._read[key]


class LateStore(MemoryStore):
    """Deletes objects later, if at all."""

    def delete(self, key: str) -> None:
        pass


class MixingStore(MemoryStore):
    """Returns the beginning of an object whatever range it was asked for."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[: end - start]


class HidingStore(MemoryStore):
    """Lists objects some time after they were created."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())
