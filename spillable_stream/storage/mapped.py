"""Writing into memory through mappings: no system call, and no other thread gets in between."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from spillable_stream.format.frame import Payload
from spillable_stream.storage.filesystem import File

__all__ = ["MappedFiles"]

_KEPT = 3


class MappedFiles:
    """Mappings of the files that were written last: a new one costs more than the copies into it."""

    def __init__(self) -> None:
        self._mappings: dict[str, mmap.mmap] = {}
        self._last: tuple[File, mmap.mmap] | None = None

    def write(self, file: File, offset: int, size: int, buffers: Sequence[Payload], whole: int) -> None:
        """Write all buffers at ``offset``, one after the other.

        Args:
            file: a file of shared memory; nobody may cut it short meanwhile.
            offset: where to write.
            size: how many bytes the buffers have.
            buffers: what to write.
            whole: how large the file is going to be; its pages are reserved at once, so that a full file
                system is an error here and no signal.

        Raises:
            StorageError: there is no room.
        """
        mapping = self._mapping(file, max(whole, offset + size))
        if mapping is None:
            file.write(offset, buffers)
            return
        for buffer in buffers:
            mapping[offset : offset + len(buffer)] = buffer
            offset += len(buffer)

    def _mapping(self, file: File, size: int) -> mmap.mmap | None:
        """Return a mapping of ``size`` bytes at least, or None where the file system can't reserve them."""
        if self._last is not None and self._last[0] is file and len(self._last[1]) >= size:
            return self._last[1]
        identity = file.identity()
        mapping = self._mappings.pop(identity, None)
        if file.size() < size:  # new, or cut when it was full
            file.preallocate(0, size)
            if file.size() < size:
                return None
        if mapping is None or len(mapping) < size:
            mapping = file.map(size)
        self._mappings[identity] = mapping  # which keeps the file, so that none gets its identity meanwhile
        while len(self._mappings) > _KEPT:
            del self._mappings[next(iter(self._mappings))]
        self._last = (file, mapping)
        return mapping

    def close(self) -> None:
        """Let go of every mapping."""
        self._last = None
        self._mappings.clear()
