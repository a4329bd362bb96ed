"""One file that grows: how far it was read, and whether it is still the same file.

A file is its inode, its first bytes and the bytes right before the position. A log that was renamed keeps all three. A
copy has another inode and the same bytes. A file that was truncated and written again has other bytes there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from zlib import crc32

from spillable_stream.errors import StorageError
from spillable_stream.flow.descriptor import Descriptor

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "Chunk", "Mark", "TailedFile"]

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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a file, and those around them that a mark needs, read at one time: the file may be truncated after it.

    Args:
        start: where they begin.
        first: the first bytes of the file, where ``start`` does not know them.
        before: the bytes before them.
        data: the bytes.
    """

    start: Mark
    first: bytes
    before: bytes
    data: bytes

    def mark_after(self, used_bytes: int) -> Mark:
        """Return the mark behind the first ``used_bytes``."""
        start, position = self.start, self.start.position + used_bytes
        tail = self.data[max(0, used_bytes - TAIL_BYTES) : used_bytes]
        tail = (self.before + tail)[-TAIL_BYTES:]
        head_bytes, head = start.head_bytes, start.head
        if head_bytes < min(HEAD_BYTES, position):
            first = self.first[: min(HEAD_BYTES, position)]
            head_bytes, head = len(first), crc32(first)
        return Mark(start.inode, position, head_bytes, head, len(tail), crc32(tail))


@dataclass(slots=True)
class TailedFile:
    """A file that is read as it grows.

    Args:
        path: where it is now.
        group: the file group that it belongs to.
        mark: how far it was read.
        copy_of: the inode of the file that it is a copy of, which is yet to be truncated or removed; 0 for none.
        is_new: whether nothing of it was read, and it may turn out to be a copy.
        modified: when it was written last, in seconds since 1970.
        size_bytes: how large it was when it was looked at.
        is_missing: whether the last look did not find it.

    Attributes:
        names: the paths where it is known to have been.
    """

    path: str
    group: str
    mark: Mark
    copy_of: int = 0
    is_new: bool = False
    modified: float = 0.0
    size_bytes: int = 0
    is_missing: bool = False
    names: set[str] = field(default_factory=set, init=False, repr=False)
    _descriptor: Descriptor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.names = {self.path}

    def renamed(self, path: str) -> None:
        """Note that it has another path."""
        self.path = path
        self.names.add(path)

    def open(self) -> int:
        """Return a descriptor of the file, which stays open; the file can be renamed and removed meanwhile.

        Raises:
            FileNotFoundError: it is gone, or another one has its path.
            StorageError: it can't be opened.
        """
        if self._descriptor is None:
            try:
                descriptor = Descriptor(self.path, os.O_RDONLY)
                inode = os.fstat(descriptor.number).st_ino
            except FileNotFoundError:
                raise
            except OSError as e:
                raise StorageError(f"can't open {self.path} ({e.strerror}); let this user read it") from e
            if inode != self.mark.inode:
                descriptor.close()
                raise FileNotFoundError(self.path)
            self._descriptor = descriptor
        return self._descriptor.number

    @property
    def is_open(self) -> bool:
        """Whether its descriptor is open."""
        return self._descriptor is not None

    def close(self) -> None:
        """Close its descriptor; `open` opens it again."""
        if self._descriptor is not None:
            self._descriptor.close()
            self._descriptor = None

    def read(self, size_bytes: int) -> Chunk | None:
        """Return what follows the position, or None if the file is not what was read before.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        mark = self.mark
        if not self.begins_as(mark):  # lines that repeat have the same bytes before the position
            return None
        start = 0 if mark.position < HEAD_BYTES else mark.position - TAIL_BYTES
        before_bytes = mark.position - start
        found = self.read_at(start, before_bytes + size_bytes)
        before, data = found[:before_bytes], found[before_bytes:]
        if len(before) < before_bytes:
            return None
        if mark.tail_bytes and crc32(before[before_bytes - mark.tail_bytes :]) != mark.tail:
            return None
        first = b""
        if start == 0:
            first = found[:HEAD_BYTES]
        elif mark.head_bytes < HEAD_BYTES:  # Flume's position file does not have them
            first = self.read_at(0, HEAD_BYTES)
        return Chunk(mark, first, before, data)

    def mark_at(self, position: int) -> Mark:
        """Return the mark of a position, by the bytes that are there now.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        start = max(0, position - TAIL_BYTES)
        head, tail = self.read_at(0, min(HEAD_BYTES, position)), self.read_at(start, position - start)
        return Mark(self.mark.inode, position, len(head), crc32(head), len(tail), crc32(tail))

    def continues(self, mark: Mark) -> bool:
        """Whether the file, whatever its inode, begins with all that another one was read to, as far as bytes tell.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        if mark.position == 0 or os.fstat(self.open()).st_size < mark.position:
            return False
        if not mark.tail_bytes:  # an old position file: there is nothing to compare
            return False
        tail = self.read_at(mark.position - mark.tail_bytes, mark.tail_bytes)
        return crc32(tail) == mark.tail and self.begins_as(mark)

    def begins_as(self, mark: Mark) -> bool:
        """Whether its first bytes are those of a mark.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        head = self.read_at(0, mark.head_bytes)
        return len(head) == mark.head_bytes and crc32(head) == mark.head

    def is_part_of(self, other: TailedFile) -> bool:
        """Whether another file begins with all that is in this one, as far as the first bytes and the last ones tell.

        Raises:
            FileNotFoundError, StorageError: as `open`.
        """
        size = os.fstat(self.open()).st_size
        start = max(0, size - TAIL_BYTES)
        return all(
            self.read_at(at, length) == other.read_at(at, length)
            for at, length in ((0, min(size, HEAD_BYTES)), (start, size - start))
        )

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the file, fewer at its end.

        Raises:
            FileNotFoundError: as `open`.
            StorageError: it can't be opened or read.
        """
        try:
            return os.pread(self.open(), size_bytes, offset)
        except FileNotFoundError:
            raise
        except OSError as e:
            raise StorageError(f"can't read {self.path} at {offset} ({e.strerror}); check the disk") from e
