"""One file that grows: how far it was read, and whether it is still the same file.

A file is its inode, its first bytes and the bytes right before the position. A log that was renamed keeps all three. A
copy has another inode and the same bytes. A file that was truncated and written again has other bytes there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from zlib import crc32

from spillable_stream.errors import StorageError

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "Mark", "TailedFile"]

HEAD_BYTES = 1024
TAIL_BYTES = 256


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file was read, and what its bytes were.

    Args:
        inode: the file's inode.
        position: where the next line starts, in bytes.
        head_bytes: how many of its first bytes ``head`` is of; 0 if it is not known.
        head: their CRC-32.
        tail_bytes: how many bytes before the position ``tail`` is of; 0 if it is not known.
        tail: their CRC-32.
    """

    inode: int
    position: int
    head_bytes: int = 0
    head: int = 0
    tail_bytes: int = 0
    tail: int = 0


@dataclass(slots=True)
class TailedFile:
    """A file that is read as it grows.

    Args:
        path: where it is now.
        group: the file group that it belongs to.
        mark: how far it was read.
        copy_of: the inode of the file that it is a copy of, which is yet to be truncated or removed; 0 for none.
        modified: when it was written last, in seconds since 1970.
        size_bytes: how large it was when it was looked at.
    """

    path: str
    group: str
    mark: Mark
    copy_of: int = 0
    modified: float = 0.0
    size_bytes: int = 0
    _descriptor: int = field(default=-1, repr=False)

    def open(self) -> int:
        """Return a descriptor of the file, which stays open; the file can be renamed and removed meanwhile.

        Raises:
            FileNotFoundError: it is gone, or another one has its path.
            StorageError: it can't be opened.
        """
        if self._descriptor < 0:
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise
            except OSError as e:
                raise StorageError(f"can't open {self.path} ({e.strerror}); let this user read it") from e
            if os.fstat(descriptor).st_ino != self.mark.inode:
                os.close(descriptor)
                raise FileNotFoundError(self.path)
            self._descriptor = descriptor
        return self._descriptor

    @property
    def is_open(self) -> bool:
        """Whether its descriptor is open."""
        return self._descriptor >= 0

    def close(self) -> None:
        """Close its descriptor; `open` opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, size_bytes: int) -> bytes | None:
        """Return what follows the position, or None if the file is not what was read before.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        descriptor, mark = self.open(), self.mark
        before = mark.tail_bytes
        try:
            found = os.pread(descriptor, before + size_bytes, mark.position - before)
        except OSError as e:
            raise StorageError(f"can't read {self.path} at {mark.position} ({e.strerror}); check the disk") from e
        if before and (len(found) < before or crc32(found[:before]) != mark.tail):
            return None
        if len(found) == before and os.fstat(descriptor).st_size < mark.position:
            return None
        return found[before:]

    def advanced(self, used_bytes: int, last: bytes) -> Mark:
        """Return the mark after the next ``used_bytes``.

        Args:
            used_bytes: by how much the position moves.
            last: the last bytes before the new position, `TAIL_BYTES` of them or as many as were read.
        """
        mark = self.mark
        position = mark.position + used_bytes
        if len(last) < min(TAIL_BYTES, position):
            start = max(0, position - TAIL_BYTES)
            last = os.pread(self.open(), position - start, start)
        head_bytes, head = mark.head_bytes, mark.head
        if head_bytes < min(HEAD_BYTES, position):
            first = os.pread(self.open(), min(HEAD_BYTES, position), 0)
            head_bytes, head = len(first), crc32(first)
        return Mark(mark.inode, position, head_bytes, head, len(last), crc32(last))

    def continues(self, mark: Mark) -> bool:
        """Whether the file, whatever its inode, begins with all that another one was read to, as far as bytes tell.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        descriptor = self.open()
        if mark.position == 0 or os.fstat(descriptor).st_size < mark.position:
            return False
        if not mark.tail_bytes:  # an old position file: there is nothing to compare
            return False
        head = os.pread(descriptor, mark.head_bytes, 0)
        tail = os.pread(descriptor, mark.tail_bytes, mark.position - mark.tail_bytes)
        return crc32(head) == mark.head and crc32(tail) == mark.tail
