"""A few things that were used last, where any number of them could be: open files, above all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Recent"]

T = TypeVar("T")


class Recent(Generic[T]):
    """Keeps the things used last, by key. Thread-safe.

    What is pushed out is not closed but let go of: who uses it at the moment goes on with it, and a file
    closes itself when nobody refers to it any more.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, T] = {}
        self._mutex = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the thing with a key, made if it is not kept."""
        with self._mutex:
            kept = self._kept
            found = kept.pop(key, None)
            if found is None:
                found = make()
            kept[key] = found  # the last one now
            if len(kept) > self._most:
                for oldest in list(kept)[: -self._most]:
                    kept.pop(oldest, None)
            return found

    def forget(self, key: Hashable) -> None:
        """Let go of the thing with a key, if it is kept."""
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Let go of everything; waits for nobody, so that a forked child can."""
        self._kept = {}
