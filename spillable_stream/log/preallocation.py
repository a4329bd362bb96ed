"""Preallocates space after the log's end, so that most syncs do not change the file's size.

It reserves as much as is written already, within bounds: a small channel takes little space, and a large one rarely
has to reserve more.

Where appends are small, the space is filled with zeros. A sync of a block that was written before records nothing but
the data, while one of a block that was only allocated has to note that it holds data now. A megabyte of zeros is soon
written, and serves many small appends; where appends are large, the zeros would cost what they save.

Puts leave a part of it to takes, which need little, and are the way out of a full disk.
"""

from __future__ import annotations

import contextlib

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.log.disk_space import required_bytes
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Preallocation"]

_SMALLEST_BYTES = 64 << 10
_LARGEST_BYTES = 32 << 20
_ZEROS_BYTES = 1 << 20  # at once: an append waits for them
_SMALL_APPEND_BYTES = 16 << 10
_PART_OF_ROOM = 2  # takes at most half of the free space, because other files need room too


class Preallocation:
    """Tracks how much of the current file is preallocated.

    Attributes:
        minimum_required_space: the option's value: how many bytes to keep free; None for the default.
        end: up to where the current file is known to be preallocated, in bytes.
    """

    def __init__(self, fs: FileSystem) -> None:
        self.minimum_required_space: int | None = 0
        self._fs = fs
        self.end: int = 0
        self._appends = self._appended_bytes = 0  # by this handle, since it reserved last
        self._are_small: bool | None = None  # None: not known yet

    def begin(self, end: int) -> None:
        """Switch to another file, or record that this one was cut.

        Args:
            end: the offset up to which the file is known to be preallocated.
        """
        self.end = end

    def reserve(self, file: File, start: int, end: int, most_bytes: int) -> None:
        """Preallocate up to ``end`` and as much again after it, unless the file already reaches that far.

        Args:
            file: the current file.
            start: the offset where the append about to be written starts.
            end: the offset where it ends.
            most_bytes: the file's size limit; preallocation does not exceed it.
        """
        self._appends += 1
        self._appended_bytes += end - start
        if end <= self.end:
            return
        self.end = max(self.end, file.size())  # other processes write and preallocate it too
        if end <= self.end:
            return
        self._extend(file, end, most_bytes)

    def keep_for_takes(self, file: File, end: int, kept: int, most_bytes: int) -> None:
        """Preallocate like `reserve`, for a put that is planned, and some space behind it that only takes may use.

        Args:
            file: the current file.
            end: the offset where the put ends.
            kept: how many bytes only takes may use.
            most_bytes: the file's size limit; what is kept for takes may exceed it.

        Raises:
            DiskSpaceError: the file system has no room for both.
        """
        self.end = max(self.end, file.size())
        if end + kept > self.end:
            self._extend(file, end, most_bytes, kept)
        if end + kept <= self.end:
            return
        reserved_end = file.size()  # `_extend` counts on the write for the rest
        try:
            file.preallocate(reserved_end, end + kept - reserved_end)
        except DiskSpaceError as e:
            raise DiskSpaceError(f"{e}, or take events: what is left of {file.path.name} is kept for takes") from e
        except StorageError:
            pass  # the write itself may fail
        else:
            self.end = end + kept

    def _extend(self, file: File, end: int, most_bytes: int, kept: int = 0) -> None:
        """Preallocate up to ``end`` and ``kept`` bytes behind it, and as much again."""
        self._judge_appends()
        most_ahead = _LARGEST_BYTES if self._are_small is False else _ZEROS_BYTES
        ahead = min(max(end, _SMALLEST_BYTES), most_ahead, most_bytes - end, self._room_bytes(file, end + kept))
        # Ignore failures: on a nearly full disk only the write itself may fail, so that takes still work.
        with contextlib.suppress(StorageError):
            if ahead > 0:
                file.preallocate(self.end, end + kept + ahead - self.end)
                if self._are_small:
                    file.write(end, [bytes(ahead)])
        self.end = max(file.size(), end)

    def _judge_appends(self) -> None:
        """Find out whether the appends since the last time were small; of a single one it is not known."""
        if self._appends > 1:
            self._are_small = self._appended_bytes <= self._appends * _SMALL_APPEND_BYTES
        self._appends = self._appended_bytes = 0

    def _room_bytes(self, file: File, end: int) -> int:
        """Return how many bytes of the disk's free space may be preallocated after ``end``."""
        directory = file.path.parent
        free = self._fs.free_bytes(directory) - (end - self.end)
        return (free - required_bytes(self._fs, directory, self.minimum_required_space)) // _PART_OF_ROOM
