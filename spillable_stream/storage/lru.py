"""A small least-recently-used cache, mostly for open files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

T = TypeVar("T")


class LruCache(Generic[T]):
    """A thread-safe least-recently-used cache.

    The cache drops an evicted value without closing it. A caller that is using the value can continue; a file closes
    itself once nothing refers to it.

    Args:
        most: how many values to keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, T] = {}
        self._mutex = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; call ``make`` for it if it is not cached."""
        with self._mutex:
            kept = self._kept
            found = kept.pop(key, None)
            if found is None:
                found = make()
            kept[key] = found  # dicts keep order: now the most recent
            if len(kept) > self._most:
                for oldest in list(kept)[: -self._most]:
                    kept.pop(oldest, None)
            return found

    def forget(self, key: Hashable) -> None:
        """Drop the value of a key, if it is cached."""
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Drop everything. It takes no lock, so a forked child can call it."""
        self._kept = {}
