"""A queue for a polled lock: the process that has waited longest gets the lock first.

A polled kernel lock goes to whoever polls at the right moment. A process that reacquires it right after each release
would keep it. So a process that has waited for a while registers in a small table::

     0       8                16                  24
    ┌───────┬────────────────┬───────────────────┬───
    │ token │ waiting since  │ last seen waiting │ …     32 times; nanoseconds of the monotonic clock
    └───────┴────────────────┴───────────────────┴───

and no process tries the lock while the table lists another that has waited longer. The table is only a hint: it guards
nothing, it is not locked, and an error in it costs at most a short delay. An entry that was not updated for `_GONE_NS`
is ignored: its process was killed or suspended.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time

from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.storage.file import File

__all__ = ["LockQueue", "open_lock_queue"]

_SLOT = struct.Struct("<QQQ")
_SLOTS = 32
_SIZE_BYTES = _SLOTS * _SLOT.size
_NOBODY = bytes(_SIZE_BYTES)
_NO_SLOT = bytes(_SLOT.size)
_GONE_NS = 200_000_000
_MOMENT_NS = 2_000_000


class LockQueue:
    """One process's view of the table of a lock.

    Args:
        file: the file that holds the table, which may be the lock file itself.

    Raises:
        StorageError: the disk has no room for the table.
    """

    def __init__(self, file: File) -> None:
        if file.size() < _SIZE_BYTES:
            file.preallocate(0, _SIZE_BYTES)  # raises on a full disk
            file.truncate(_SIZE_BYTES)
        self._file = file
        self._token = random.getrandbits(64) or 1
        self._offset = -1  # of this process's slot; -1: none
        self._nobody_until_ns = 0  # until when to trust that nobody waits

    def _table(self) -> bytes:
        """Return the table; an empty one if it cannot be read."""
        try:
            return self._file.load(_SIZE_BYTES).ljust(_SIZE_BYTES, b"\0")
        except SpillableError:
            return _NOBODY

    def nobody_waits(self) -> bool:
        """Tell whether nobody else waits; the answer may be `_MOMENT_NS` old."""
        now_ns = time.monotonic_ns()
        if now_ns < self._nobody_until_ns:
            return True
        if self._table() != _NOBODY and self.ahead(now_ns):
            return False
        self._nobody_until_ns = now_ns + _MOMENT_NS
        return True

    def ahead(self, since_ns: int) -> int:
        """Return how many others have waited longer: with 0 it is this process's turn.

        Args:
            since_ns: since when this process has waited, on the monotonic clock.
        """
        table = self._table()
        now_ns = time.monotonic_ns()
        return sum(
            token not in (0, self._token) and since < since_ns and now_ns - _GONE_NS < seen <= now_ns
            for token, since, seen in _SLOT.iter_unpack(table)
        )

    def wait(self, since_ns: int) -> None:
        """Register as waiting, or refresh the entry; call it at each poll.

        Args:
            since_ns: since when this process has waited, on the monotonic clock.
        """
        now_ns = time.monotonic_ns()
        if not self._has_slot():
            self._offset = self._free_slot(now_ns)
        with contextlib.suppress(SpillableError):
            self._file.store(self._offset, _SLOT.pack(self._token, since_ns, now_ns))

    def _has_slot(self) -> bool:
        return self._offset >= 0 and bool(_SLOT.unpack_from(self._table(), self._offset)[0] == self._token)

    def _free_slot(self, now_ns: int) -> int:
        """Return the offset of a slot without a live process; if all are in use, of one to share."""
        first, table = self._token % _SLOTS, self._table()
        for i in range(_SLOTS):
            offset = (first + i) % _SLOTS * _SLOT.size
            token, _, seen = _SLOT.unpack_from(table, offset)
            if not token or not now_ns - _GONE_NS < seen <= now_ns:
                return offset
        return first * _SLOT.size

    def leave(self) -> None:
        """Remove this process's entry."""
        if self._has_slot():
            with contextlib.suppress(SpillableError):
                self._file.store(self._offset, _NO_SLOT)
        self._offset = -1


def open_lock_queue(file: File) -> LockQueue | None:
    """Return the queue in a file; None on a full disk, where processes then get the lock in no particular order."""
    try:
        return LockQueue(file)
    except StorageError:
        return None
