"""Who waits for a lock, so that those who waited longest have it first.

A kernel lock that is polled is had by whoever looks at the right moment: one that takes it again as soon as it gave it
back, all the time. So those who have waited for a while say so in a small table::

     0       8                16                  24
    ┌───────┬────────────────┬───────────────────┬───
    │ token │ waiting since  │ last seen waiting │ …     32 times; nanoseconds of the monotonic clock
    └───────┴────────────────┴───────────────────┴───

and nobody tries the lock while somebody is there who has waited longer. The table is a hint: it holds nothing, nobody
locks it, and what is wrong in it costs at most a moment. Who was not seen for `_GONE_NS` was killed, or stands still.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time

from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.storage.filesystem import File

__all__ = ["Turns", "open_turns"]

_SLOT = struct.Struct("<QQQ")
_SLOTS = 32
_SIZE_BYTES = _SLOTS * _SLOT.size
_NOBODY = bytes(_SIZE_BYTES)
_NO_SLOT = bytes(_SLOT.size)
_GONE_NS = 200_000_000
_MOMENT_NS = 2_000_000


class Turns:
    """The table of one lock, as one of those sees it who want the lock.

    Args:
        file: the file that holds it, which may be the lock's own.

    Raises:
        StorageError: there is no room for it.
    """

    def __init__(self, file: File) -> None:
        if file.size() < _SIZE_BYTES:
            file.preallocate(0, _SIZE_BYTES)  # a full disk shows here
            file.truncate(_SIZE_BYTES)
        self._file = file
        self._token = random.getrandbits(64) or 1
        self._offset = -1  # of the own slot
        self._nobody_until_ns = 0  # how long to believe that nobody waits

    def _table(self) -> bytes:
        """Return the table; where it can't be read, one in which nobody waits."""
        try:
            return self._file.load(_SIZE_BYTES).ljust(_SIZE_BYTES, b"\0")
        except SpillableError:
            return _NOBODY

    def nobody_waits(self) -> bool:
        """Tell whether nobody waits, as far as that was known a moment ago."""
        now_ns = time.monotonic_ns()
        if now_ns < self._nobody_until_ns:
            return True
        if self._table() != _NOBODY and not self.is_mine(now_ns):
            return False
        self._nobody_until_ns = now_ns + _MOMENT_NS
        return True

    def is_mine(self, since_ns: int) -> bool:
        """Tell whether nobody else waits who has waited longer.

        Args:
            since_ns: since when this one waits.
        """
        table = self._table()
        now_ns = time.monotonic_ns()
        return not any(
            token not in (0, self._token) and since < since_ns and now_ns - _GONE_NS < seen <= now_ns
            for token, since, seen in _SLOT.iter_unpack(table)
        )

    def wait(self, since_ns: int) -> None:
        """Say that this one waits, as often as it looks."""
        now_ns = time.monotonic_ns()
        if not self._has_slot():
            self._offset = self._free_slot(now_ns)
        with contextlib.suppress(SpillableError):
            self._file.store(self._offset, _SLOT.pack(self._token, since_ns, now_ns))

    def _has_slot(self) -> bool:
        return self._offset >= 0 and bool(_SLOT.unpack_from(self._table(), self._offset)[0] == self._token)

    def _free_slot(self, now_ns: int) -> int:
        """Return where nobody waits who is alive; where all do, one that this one shares."""
        first, table = self._token % _SLOTS, self._table()
        for i in range(_SLOTS):
            offset = (first + i) % _SLOTS * _SLOT.size
            token, _, seen = _SLOT.unpack_from(table, offset)
            if not token or not now_ns - _GONE_NS < seen <= now_ns:
                return offset
        return first * _SLOT.size

    def leave(self) -> None:
        """Say that this one waits no more."""
        if self._has_slot():
            with contextlib.suppress(SpillableError):
                self._file.store(self._offset, _NO_SLOT)
        self._offset = -1


def open_turns(file: File) -> Turns | None:
    """Return the table in a file, or None on a full disk: then who waits is served as chance has it."""
    try:
        return Turns(file)
    except StorageError:
        return None
