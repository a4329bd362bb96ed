"""An object of any size, read like a file: a window of it at a time is in memory."""

from __future__ import annotations

from spillable_stream.objects.store import Store

__all__ = ["WINDOW_BYTES", "StoredObject"]

WINDOW_BYTES = 8 << 20
"""How much of an object is asked for at once: a request costs some 20 ms whatever its size.

The size of a smaller object shows in its first window.
"""


class StoredObject:
    """An object that is read in windows of 8 MiB. It implements `Readable`.

    Args:
        store: where it is.
        key: its key.
        listed_bytes: its size by a listing; it is proven before it is used. None if no listing showed it.
    """

    def __init__(self, store: Store, key: str, listed_bytes: int | None = None) -> None:
        self._store = store
        self._key = key
        self._listed_bytes = listed_bytes
        self._begin = 0
        self._window = b""
        self._size: int | None = None

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on; fewer at the end.

        Raises:
            StoreError: the store refused or failed, or the object is gone.
        """
        at = offset - self._begin
        if at < 0 or at + size > len(self._window):
            self._load(offset, max(size, WINDOW_BYTES))
            at = 0
        return self._window[at : at + size]

    def _load(self, offset: int, size: int) -> None:
        self._window = bytes(self._store.get_range(self._key, offset, offset + size))
        self._begin = offset
        if 0 < len(self._window) < size or (offset == 0 and not self._window):
            self._size = offset + len(self._window)

    def size(self) -> int:
        """Return the size in bytes; raises what `read` raises."""
        if self._size is None:
            self._load(0, WINDOW_BYTES)
        listed = self._listed_bytes
        if self._size is None and listed is not None and self._ends_at(listed):
            self._size = listed
        end = len(self._window)
        while self._size is None:
            self._load(end, WINDOW_BYTES)
            end += len(self._window)
            if not self._window:
                self._size = end
        return self._size

    def _ends_at(self, offset: int) -> bool:
        """Tell whether a listing was right about the size: it decides nothing by itself."""
        return len(self._store.get_range(self._key, offset - 1, offset + 1)) == 1
