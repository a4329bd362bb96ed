"""Space that is reserved behind the log's end, so that most syncs leave the size of the file alone.

As much again as is written, within bounds: a channel of a few events takes little, and one of many seldom asks.
"""

from __future__ import annotations

import contextlib

from spillable_stream.errors import StorageError
from spillable_stream.log.disk_space import required_bytes
from spillable_stream.storage.filesystem import File, FileSystem

__all__ = ["Preallocation"]

_SMALLEST_BYTES = 64 << 10
_LARGEST_BYTES = 32 << 20
_PART_OF_ROOM = 2  # on a disk that gets full, others need room too


class Preallocation:
    """What is reserved of the file that is written.

    Args:
        fs: the file system.

    Attributes:
        minimum_required_space: the option's value: what is kept free, in bytes, or None for the default.
    """

    def __init__(self, fs: FileSystem) -> None:
        self.minimum_required_space: int | None = 0
        self._fs = fs
        self._end = 0

    def begin(self, end: int) -> None:
        """Say that another file is written now, or that this one was cut.

        Args:
            end: up to where it is known to be reserved.
        """
        self._end = end

    def reserve(self, file: File, end: int, most_bytes: int) -> None:
        """Reserve space up to an end and as much again behind it, unless there is enough already.

        Args:
            file: the file that is written.
            end: where it ends with the append that is about to be written.
            most_bytes: the size that the file is not to exceed by what is reserved.
        """
        if end <= self._end:
            return
        self._end = max(self._end, file.size())  # others write it too
        if end <= self._end:
            return
        ahead = min(max(end, _SMALLEST_BYTES), _LARGEST_BYTES, most_bytes - end, self._room_bytes(file, end))
        # On a nearly full disk the write itself decides: takes must go on.
        with contextlib.suppress(StorageError):
            if ahead > 0:
                file.preallocate(self._end, end + ahead - self._end)
        self._end = max(file.size(), end)

    def _room_bytes(self, file: File, end: int) -> int:
        """Return how much may be reserved behind an end of what the disk has free."""
        directory = file.path.parent
        free = self._fs.free_bytes(directory) - (end - self._end)
        return (free - required_bytes(self._fs, directory, self.minimum_required_space)) // _PART_OF_ROOM
