"""Who waits for a lock, so that those who waited longest have it first.

A kernel lock that is polled is had by whoever looks at the right moment: one that takes it again as soon as it gave it
back, all the time. So those who have waited for a while say so in a small mapped table::

     0       8                16                  24
    ┌───────┬────────────────┬───────────────────┬───
    │ token │ waiting since  │ last seen waiting │ …     32 times; nanoseconds of the monotonic clock
    └───────┴────────────────┴───────────────────┴───

and nobody tries the lock while somebody is there who has waited longer. The table is a hint: it holds nothing, nobody
locks it, and what is wrong in it costs at most a moment. Who was not seen for `_GONE_NS` was killed, or stands still.
"""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Turns", "open_turns"]

_SLOT = struct.Struct("<QQQ")
_SLOTS = 32
_SIZE_BYTES = _SLOTS * _SLOT.size
_NOBODY = bytes(_SIZE_BYTES)
_NO_SLOT = bytes(_SLOT.size)
_GONE_NS = 200_000_000


class Turns:
    """The table of one lock, as one of those sees it who want the lock.

    Args:
        fs: the file system.
        path: the file, which is made if it is missing. It may be the lock's own: it is opened by itself, so that a
            mapping, which lives on in a forked child, has no lock.

    Raises:
        StorageError: there is no room for it.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        file = fs.open(path, create=True)
        try:
            if file.size() < _SIZE_BYTES:
                file.preallocate(0, _SIZE_BYTES)  # under a mapping, a full disk is a signal that kills the process
                file.truncate(_SIZE_BYTES)
            self._map = file.map(_SIZE_BYTES)
        finally:
            file.close()
        self._token = random.getrandbits(64) or 1
        self._offset = -1  # of the own slot

    def nobody_waits(self) -> bool:
        """Tell whether nobody waits, as far as that is known."""
        return self._map[:_SIZE_BYTES] == _NOBODY or self.is_mine(time.monotonic_ns())

    def is_mine(self, since_ns: int) -> bool:
        """Tell whether nobody else waits who has waited longer.

        Args:
            since_ns: since when this one waits.
        """
        table = self._map[:_SIZE_BYTES]
        now_ns = time.monotonic_ns()
        return not any(
            token not in (0, self._token) and since < since_ns and now_ns - _GONE_NS < seen <= now_ns
            for token, since, seen in _SLOT.iter_unpack(table)
        )

    def wait(self, since_ns: int) -> None:
        """Say that this one waits, as often as it looks."""
        now_ns = time.monotonic_ns()
        if self._offset < 0 or _SLOT.unpack_from(self._map, self._offset)[0] != self._token:
            self._offset = self._free_slot(now_ns)
        self._map[self._offset : self._offset + _SLOT.size] = _SLOT.pack(self._token, since_ns, now_ns)

    def _free_slot(self, now_ns: int) -> int:
        """Return where nobody waits who is alive; where all do, one that this one shares."""
        first = self._token % _SLOTS
        for i in range(_SLOTS):
            offset = (first + i) % _SLOTS * _SLOT.size
            token, _, seen = _SLOT.unpack_from(self._map, offset)
            if not token or not now_ns - _GONE_NS < seen <= now_ns:
                return offset
        return first * _SLOT.size

    def leave(self) -> None:
        """Say that this one waits no more."""
        if self._offset >= 0 and _SLOT.unpack_from(self._map, self._offset)[0] == self._token:
            self._map[self._offset : self._offset + _SLOT.size] = _NO_SLOT
        self._offset = -1

    def close(self) -> None:
        """Unmap the table."""
        self._map.close()


def open_turns(fs: FileSystem, path: Path) -> Turns | None:
    """Return the table of a lock, or None on a full disk: then who waits is served as chance has it."""
    try:
        return Turns(fs, path)
    except StorageError:
        return None
