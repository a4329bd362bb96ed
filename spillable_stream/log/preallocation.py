"""Preallocates space after the log's end, so that most syncs do not change the file's size.

It reserves as much as is written already, within bounds: a small channel takes little space, and a large one rarely
has to reserve more.
"""

from __future__ import annotations

import contextlib

from spillable_stream.errors import StorageError
from spillable_stream.log.disk_space import required_bytes
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Preallocation"]

_SMALLEST_BYTES = 64 << 10
_LARGEST_BYTES = 32 << 20
_PART_OF_ROOM = 2  # takes at most half of the free space, because other files need room too


class Preallocation:
    """Tracks how much of the current file is preallocated.

    Args:
        fs: the file system.

    Attributes:
        minimum_required_space: the option's value: how many bytes to keep free; None for the default.
    """

    def __init__(self, fs: FileSystem) -> None:
        self.minimum_required_space: int | None = 0
        self._fs = fs
        self._end = 0

    def begin(self, end: int) -> None:
        """Switch to another file, or record that this one was cut.

        Args:
            end: the offset up to which the file is known to be preallocated.
        """
        self._end = end

    def reserve(self, file: File, end: int, most_bytes: int) -> None:
        """Preallocate up to ``end`` and as much again after it, unless the file already reaches that far.

        Args:
            file: the current file.
            end: the offset where the append about to be written ends.
            most_bytes: the file's size limit; preallocation does not exceed it.
        """
        if end <= self._end:
            return
        self._end = max(self._end, file.size())  # other processes write and preallocate it too
        if end <= self._end:
            return
        ahead = min(max(end, _SMALLEST_BYTES), _LARGEST_BYTES, most_bytes - end, self._room_bytes(file, end))
        # Ignore failures: on a nearly full disk only the write itself may fail, so that takes still work.
        with contextlib.suppress(StorageError):
            if ahead > 0:
                file.preallocate(self._end, end + ahead - self._end)
        self._end = max(file.size(), end)

    def _room_bytes(self, file: File, end: int) -> int:
        """Return how many bytes of the disk's free space may be preallocated after ``end``."""
        directory = file.path.parent
        free = self._fs.free_bytes(directory) - (end - self._end)
        return (free - required_bytes(self._fs, directory, self.minimum_required_space)) // _PART_OF_ROOM
