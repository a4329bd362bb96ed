"""A file that a sink appends to, and cuts back where an append failed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.flow.descriptor import Descriptor
from spillable_stream.flow.durable_file import make_directory, sync_directory
from spillable_stream.log_records import log_of
from spillable_stream.system_errors import storage_error

__all__ = ["OutputFile", "cut_back"]

_log = log_of("spillable_stream.flow")


class OutputFile:
    """A new file.

    Args:
        path: where it is; its directory is created.

    Attributes:
        length: how many bytes are in it and count.

    Raises:
        FileExistsError: there is one.
        StorageError: it can't be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length: int = 0
        self._end = 0  # of what was written
        make_directory(path.parent)
        try:
            self._descriptor = Descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise
        except OSError as e:
            raise storage_error(f"can't create {path}", e, "check the directory") from e

    def append(self, data: pa.Buffer | bytes) -> None:
        """Write behind what counts; it does not count before `sync` and `keep`.

        Raises:
            StorageError: the disk refused.
        """
        view = memoryview(data)
        try:
            while view.nbytes:
                written = os.pwrite(self._descriptor.number, view, self._end)
                self._end += written
                view = view[written:]
        except OSError as e:
            raise storage_error(f"can't write {self.path}", e, "check the disk") from e

    def is_there(self, sink: str) -> bool:
        """Tell whether it is at its path; else says that somebody removed or renamed it: nobody may find the rest.

        Args:
            sink: the name of the sink that writes it.

        Raises:
            StorageError: that can't be told; a sink that took it for gone would never give it its final name.
        """
        try:
            if self._descriptor.is_at(self.path):
                return True
        except OSError as e:
            raise storage_error(f"can't look at {self.path}", e, "check the disk") from e
        _log.of(sink, file=self.path).warning("%s is gone, and later events go to a new file", self.path)
        return False

    @property
    def size_bytes(self) -> int:
        """How many bytes were written, whether they count or not."""
        return self._end

    def sync(self) -> None:
        """Make what was written durable.

        Raises:
            StorageError: the disk refused.
        """
        try:
            os.fdatasync(self._descriptor.number)
        except OSError as e:
            raise storage_error(f"can't sync {self.path}", e, "check the disk") from e

    def keep(self) -> None:
        """Let what was written count."""
        self.length = self._end

    def cut(self) -> None:
        """Remove what does not count, durably: a power cut would bring it back when the file is closed.

        Raises:
            StorageError: the disk refused.
        """
        self._end = self.length
        try:
            _cut(self._descriptor.number, self.length)
        except OSError as e:
            raise storage_error(
                f"can't cut {self.path} back to {counted(self.length, 'byte')}", e, "check the disk"
            ) from e

    def remove(self) -> None:
        """Close and remove it, durably; also once more, where that failed.

        Raises:
            StorageError: the file system refused.
        """
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as e:
            raise storage_error(f"can't remove {self.path}", e, "check the directory") from e
        sync_directory(self.path.parent)

    def close(self) -> None:
        """Close it."""
        self._descriptor.close()


def cut_back(path: Path, length: int) -> bool:
    """Cut a file of an earlier run back to the length that counts, durably.

    Returns:
        Whether it was at least that long; if not, somebody has changed it.

    Raises:
        FileNotFoundError: it is gone.
        StorageError: the disk refused.
    """
    try:
        descriptor = Descriptor(path, os.O_RDWR)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise storage_error(f"can't open {path}", e, "let this user write to it") from e
    try:
        if os.fstat(descriptor.number).st_size < length:
            return False
        _cut(descriptor.number, length)
        return True
    except OSError as e:
        raise storage_error(f"can't cut {path} back to {counted(length, 'byte')}", e, "check the disk") from e
    finally:
        descriptor.close()


def _cut(descriptor: int, length: int) -> None:
    """Cut an open file; raises OSError.

    It is made longer before: what an attempt could not sync counts as clean, and would not be written by the next one.
    """
    os.ftruncate(descriptor, length + 1)
    os.ftruncate(descriptor, length)
    os.fsync(descriptor)
