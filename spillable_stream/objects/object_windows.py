"""Windows of objects: parts of 8 MiB.

A window that was asked for ahead is under way while others are decoded. Small objects come whole, and stay for a while
(`spillable_stream.objects.cache`). So does the last window of a large one, which the next read may continue with.
Windows may be kept on this host's disk (`spillable_stream.objects.disk_cache`).

A slot of a number may be another one by now. So a window of a slot goes by what the slot was known by when it was asked
for (`SlotTokens.identity_of`), and what was asked for before a state was loaded anew is not used after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import SlotTokens
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.slots import LOG
from spillable_stream.objects.store import Store
from spillable_stream.objects.stored_object import WINDOW_BYTES

__all__ = ["ObjectWindows"]

_MOST_BEGUN = 16  # windows under way, or not used yet


class _Window(NamedTuple):
    """A window that was asked for.

    Args:
        key: the key of the object.
        offset: where it begins.
        identity: what a slot of this number was known by then; None for other objects, which no other ones follow.
    """

    key: str
    offset: int
    identity: str | None


class ObjectWindows:
    """Windows of the objects of a channel. For one thread at a time.

    Args:
        store: where the objects are.
        channel: the channel's UUID.
        cache: objects that are at hand; None for a cache of its own.
        disk_cache: where windows are kept on this host's disk; None: nowhere.
        tokens: returns what tells slots from others of their numbers.

    Attributes:
        size_bytes: the size of a window.
        ends: where objects end, by their keys, as far as a window has shown it.
    """

    def __init__(
        self,
        store: Store,
        channel: str,
        cache: ObjectCache | None,
        disk_cache: DiskCache | None,
        tokens: Callable[[], SlotTokens],
    ) -> None:
        self.size_bytes = WINDOW_BYTES
        self.ends: dict[str, int] = {}
        self._store = store
        self._cache = cache or ObjectCache(4 * self.size_bytes)
        self._disk_cache = disk_cache
        self._tokens = tokens
        self._cached_as = f"{channel} at {store.root}"  # a copy of a bucket has the UUID, and slots of its own later
        self._kept: dict[tuple[str, str, int], bool] = {}  # windows in the disk's cache: whether they were there before
        self._begun: OrderedDict[_Window, Future[pa.Buffer]] = OrderedDict()
        self._last = f"last window of {id(self)}"  # in the cache, which other readers may have, too

    def whole(self, key: str) -> pa.Buffer | None:
        """Return an object that is at hand, whole; None if it is not."""
        return self._cache.get(key)

    def ask(self, key: str, offset: int, size_bytes: int) -> None:
        """Ask for a window ahead, unless it is under way or at hand; the arguments are those of `get`."""
        window = _Window(key, offset, self._identity_of(key))
        if window not in self._begun and self._cache.get(key) is None:
            self._begun[window] = begin(self._store.root, lambda: self.fetch(key, offset, size_bytes))
            while len(self._begun) > _MOST_BEGUN:  # of reads that were given up
                self._begun.popitem(last=False)

    def first_asked(self, key: str, offset: int) -> int | None:
        """Return where a window begins that was asked for and has an offset of an object; None if there is none."""
        identity = self._identity_of(key)
        for window in self._begun:
            is_of_object = window.key == key and window.identity == identity
            if is_of_object and window.offset <= offset < window.offset + self.size_bytes:
                return window.offset
        return None

    def get(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        """Return some bytes of an object, or all up to its end; none only where it has ended.

        Args:
            key: the object's key.
            offset: where they begin.
            size_bytes: how many to ask for, if they are not at hand.

        Raises:
            ObjectMissingError: the object is not there.
            StoreError: the store refused or failed.
        """
        if (whole := self._cache.get(key)) is not None:
            return whole.slice(min(offset, len(whole)))
        asked = self._begun.pop(_Window(key, offset, self._identity_of(key)), None)
        return self.fetch(key, offset, size_bytes) if asked is None else asked.result()

    def keep(self, window: pa.Buffer) -> None:
        """Keep a window at hand in place of the last one, as far as there is room; it is not of a slot."""
        self.let_go()
        self._cache.put(self._last, window)

    def kept(self) -> pa.Buffer | None:
        """Return the window that is kept; None if it had to make room."""
        return self._cache.get(self._last)

    def let_go(self) -> None:
        """Let go of the window that is kept."""
        self._cache.forget(self._last)

    def fetch(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        """Return a window from the disk's cache, or from the store; takes and raises what `get` does."""
        asked_at, name = self._cache.clears, self._name_on_disk(key, size_bytes)
        disk = None if name is None else self._disk_cache
        if disk is None or name is None or (buffer := disk.get(self._cached_as, name, offset)) is None:
            return self.fetch_anew(key, offset, size_bytes)
        self._kept[key, name, offset] = True
        self._note(key, offset, size_bytes, buffer, asked_at)
        return buffer

    def fetch_anew(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        """Return a window from the store, whatever is at hand; takes and raises what `get` does."""
        asked_at, name = self._cache.clears, self._name_on_disk(key, size_bytes)
        data = self._store.get_range(key, offset, offset + size_bytes)
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        disk = None if name is None else self._disk_cache
        if disk is not None and name is not None and len(buffer) and asked_at == self._cache.clears:
            disk.put(self._cached_as, name, offset, buffer)
            self._kept[key, name, offset] = False
        self._note(key, offset, size_bytes, buffer, asked_at)
        return buffer

    def _note(self, key: str, offset: int, size_bytes: int, buffer: pa.Buffer, asked_at: int) -> None:
        """Take note of what an answer shows: where the object ends, or all of it."""
        if len(buffer) < size_bytes:
            self.ends[key] = offset + len(buffer)
            if offset == 0:
                self._cache.put(key, buffer, asked_at)

    def _name_on_disk(self, key: str, size_bytes: int) -> str | None:
        """Return what the disk's cache calls an object's windows of a size; None for an object that it can't have.

        A segment's key is its own forever. A slot's is not, where a bucket is put back to an older version. A window of
        another size than the usual says so: what is shorter than it was asked for ends where the object does.
        """
        size = "" if size_bytes == self.size_bytes else f" {size_bytes}"
        if self._disk_cache is None:
            return None
        if not key.startswith(LOG):
            return f"{key}{size}"
        identity = self._identity_of(key)
        return None if identity is None else f"{key} {identity}{size}"

    def _identity_of(self, key: str) -> str | None:
        """Return what a slot of this number is known by; None for what is none, or is not known."""
        return self._tokens().identity_of(int(key.removeprefix(LOG))) if key.startswith(LOG) else None

    def forget(self, key: str) -> bool:
        """Let go of an object's windows, and tell whether one had been in the disk's cache before."""
        wait([self._begun.pop(window) for window in list(self._begun) if window.key == key])  # they may be of the cache
        found = [window for window in list(self._kept) if window[0] == key]  # windows of others come meanwhile
        for _, name, offset in found:
            assert self._disk_cache is not None
            self._disk_cache.forget(self._cached_as, name, offset)
        self._cache.forget(key)
        return any([self._kept.pop(window) for window in found])

    def clear(self) -> None:
        """Forget what was asked for ahead."""
        self._begun.clear()
