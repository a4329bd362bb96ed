"""A store that counts what is asked of it, and says what that would cost a day."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spillable_stream.format.frame import Payload
from spillable_stream.objects.location import DIRECTORY
from spillable_stream.objects.store import Change, Content, ObjectInfo, Store, StoreError, Upload

__all__ = ["MeteredStore", "StoreUsage"]

_PART_BYTES = 32 << 20  # of a large upload: each is a request
_DAY_SECONDS = 86_400.0

# List prices in US dollars per million requests, of the standard class in the cheapest region, 2026-11.
_PRICES = {"s3": (5.0, 0.4), "az": (5.0, 0.4), "gs": (5.0, 0.4), DIRECTORY: (0.0, 0.0)}


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """What a handle has asked of its store since it was opened.

    Args:
        writes: how many requests were priced like a PUT: objects, parts of large ones, and listings.
        reads: how many were priced like a GET.
        deletes: how many deleted an object; they are free.
        seconds: since when.
        dollars_a_day: what a day would cost at this pace, by list prices: requests only, of this handle only.
        delete_refusal: why the store refuses to delete objects that nobody needs; "" if it did not refuse the last one.
    """

    writes: int
    reads: int
    deletes: int
    seconds: float
    dollars_a_day: float
    delete_refusal: str = ""


class MeteredStore:
    """Passes everything on to a store, and counts it. Thread-safe. It implements `Store`.

    Args:
        inner: the store.
        scheme: whose prices count: "s3", "az", "gs" or "object+file".
        monotonic: tells the time; for tests.
    """

    def __init__(self, inner: Store, scheme: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._price = _PRICES[scheme]
        self._monotonic = monotonic
        self._since = monotonic()
        self._mutex = threading.Lock()
        self._writes = self._reads = self._deletes = 0
        self._refusal = ""

    @property
    def root(self) -> str:
        """What users call the root."""
        return self._inner.root

    def usage(self) -> StoreUsage:
        """Return what was asked so far."""
        with self._mutex:
            writes, reads, deletes = self._writes, self._reads, self._deletes
        seconds = self._monotonic() - self._since
        of_write, of_read = self._price
        dollars = (writes * of_write + reads * of_read) / 1e6
        a_day = dollars * _DAY_SECONDS / seconds if seconds > 0 else 0.0
        return StoreUsage(writes, reads, deletes, seconds, a_day, self._refusal)

    def count(self, *, writes: int = 0, reads: int = 0, deletes: int = 0) -> None:
        """Count requests."""
        with self._mutex:
            self._writes += writes
            self._reads += reads
            self._deletes += deletes

    def create(self, key: str, data: Content) -> bool:
        """Count, and do what `Store` says."""
        self.count(writes=1)
        return self._inner.create(key, data)

    def replace(self, key: str, data: Payload) -> None:
        """Count, and do what `Store` says."""
        self.count(writes=1)
        self._inner.replace(key, data)

    def change(self, key: str, changed: Change) -> bool:
        """Count, and do what `Store` says."""

        def counted(data: Payload) -> Payload | None:
            if (new := changed(data)) is not None:
                self.count(writes=1)
            return new

        self.count(reads=1)
        return self._inner.change(key, counted)

    def upload(self, key: str) -> Upload:
        """Do what `Store` says; what is written counts by its parts."""
        return _MeteredUpload(self, self._inner.upload(key))

    def get(self, key: str) -> Payload:
        """Count, and do what `Store` says."""
        self.count(reads=1)
        return self._inner.get(key)

    def get_range(self, key: str, start: int, end: int) -> Payload:
        """Count, and do what `Store` says."""
        self.count(reads=1)
        return self._inner.get_range(key, start, end)

    def delete(self, key: str) -> None:
        """Count, remember a refusal, and do what `Store` says."""
        self.count(deletes=1)
        try:
            self._inner.delete(key)
        except StoreError as e:
            if e.is_lasting:
                self._refusal = str(e)
            raise
        self._refusal = ""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Count a request, and one more for each further thousand objects, and do what `Store` says."""
        self.count(writes=1)
        for number, info in enumerate(self._inner.list(prefix)):
            if number and number % 1000 == 0:
                self.count(writes=1)
            yield info

    def folders(self) -> Iterator[str]:
        """Count a request, and do what `Store` says."""
        self.count(writes=1)
        return self._inner.folders()


class _MeteredUpload:
    """Counts the parts of an upload."""

    def __init__(self, store: MeteredStore, inner: Upload) -> None:
        self._store = store
        self._inner = inner
        self._size_bytes = 0

    def write(self, data: Payload) -> None:
        self._size_bytes += len(data)
        self._inner.write(data)

    def finish(self) -> None:
        parts = -(-self._size_bytes // _PART_BYTES)
        self._store.count(writes=1 if parts <= 1 else parts + 2)  # a large one is begun and completed, too
        self._inner.finish()

    def discard(self) -> None:
        self._inner.discard()
