"""Files and directories, as few calls as the log needs.

`FileSystem` is the real one. Tests put another in its place that fails, records or forgets.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import StorageError
from spillable_stream.format.frame import Payload

__all__ = ["File", "FileSystem"]

_IOV_MAX = 512
_COPY_BYTES = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2
_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's call of that name; None elsewhere."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = function
    return found


class _named:
    """Turn an OSError into a `StorageError` that says what failed and where.

    With ``may_be_missing`` a FileNotFoundError stays one: the caller tells it from a failing disk.
    """

    __slots__ = ("_may_be_missing", "_path", "_what")

    def __init__(self, what: str, path: str | Path, *, may_be_missing: bool = False) -> None:
        self._what, self._path, self._may_be_missing = what, path, may_be_missing

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, e: BaseException | None, __: object) -> None:
        if isinstance(e, OSError) and not (self._may_be_missing and isinstance(e, FileNotFoundError)):
            raise _failed(self._what, self._path, e) from e


def _failed(what: str, path: str | Path, e: OSError) -> StorageError:
    return StorageError(f"{what} {path} failed: {e.strerror or e} (errno {e.errno})")


class File:
    """An open data file: positioned reads and writes, one sync.

    Args:
        path: the file.
        descriptor: its open file descriptor, which this object then owns.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._fd

    def size(self) -> int:
        """Return the size in bytes."""
        with _named("reading the size of", self.path):
            return os.fstat(self._fd).st_size

    def identity(self) -> str:
        """Return what `FileSystem.identity` returns of the file's path, unless that leads elsewhere by now."""
        with _named("looking at", self.path):
            found = os.fstat(self._fd)
            return f"{found.st_dev:x}-{found.st_ino:x}"

    def is_linked(self) -> bool:
        """Tell whether the file is open and still has a name."""
        try:
            return os.fstat(self._fd).st_nlink > 0
        except OSError as e:
            if e.errno != errno.EBADF:
                raise _failed("looking at", self.path, e) from e
            return False  # closed

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""
        return bytes(self.read_buffer(offset, size).to_pybytes())

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        """Return what `read` does, in memory that Arrow uses again: new memory costs more than the read."""
        buffer, got, more = pa.allocate_buffer(size), 0, 1
        try:
            while more and got < size:
                more = os.preadv(self._fd, [memoryview(buffer)[got:]], offset + got)
                got += more
        except OSError as e:
            raise _failed("reading", self.path, e) from e
        return buffer if got == size else buffer.slice(0, got)

    def write(self, offset: int, buffers: Sequence[Payload]) -> int:
        """Write all buffers at ``offset``, one after the other, and return how many bytes."""
        end = offset
        try:
            for i in range(0, len(buffers), _IOV_MAX):
                part = buffers[i : i + _IOV_MAX]
                written, size = os.pwritev(self._fd, part, end), sum(map(len, part))
                if written < size:
                    self._write_rest(end, part, written)
                end += size
        except OSError as e:
            raise _failed("writing", self.path, e) from e
        return end - offset

    def _write_rest(self, offset: int, buffers: Sequence[Payload], written: int) -> None:
        """Write at ``offset`` what the kernel left of some buffers: all but the first ``written`` bytes."""
        views = [memoryview(b) for b in buffers]
        while True:
            offset += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if not views:
                return
            views[0] = views[0][written:]
            written = os.pwritev(self._fd, views, offset)

    def copy_from(self, source: File, size: int) -> None:
        """Write the first ``size`` bytes of another file to the beginning of this one."""
        for offset in range(0, size, _COPY_BYTES):
            self.write(offset, [source.read_buffer(offset, min(_COPY_BYTES, size - offset))])

    def preallocate(self, offset: int, size: int) -> None:
        """Reserve blocks, so that later writes find room and leave the size alone."""
        with _named("preallocating", self.path):
            try:
                os.posix_fallocate(self._fd, offset, size)
            except OSError as e:
                if e.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes."""
        with _named("truncating", self.path):
            os.ftruncate(self._fd, size)

    def start_sync(self, offset: int, size: int) -> None:
        """Have the kernel begin to write bytes to the medium, so that a later `sync` waits less; promises nothing."""
        if (start := _sync_file_range()) is not None:
            start(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        """Return once the data, and the metadata needed to read it back, are on the medium."""
        with _named("syncing", self.path):
            os.fdatasync(self._fd)

    def map(self, size: int) -> mmap.mmap:
        """Return a shared, writable mapping of the first ``size`` bytes."""
        with _named("mapping", self.path):
            return mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Close the file; again is fine."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)


class FileSystem:
    """The operating system's files."""

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        """Open a file for reading, and for writing unless ``readonly``.

        Args:
            path: the file.
            create: make it if it is missing; its directory still needs a sync.
            exclusive: fail if it exists.
            readonly: open it for reading only.

        Raises:
            FileNotFoundError: it is missing and ``create`` is not set.
            StorageError: anything else.
        """
        flags = os.O_RDONLY if readonly else os.O_RDWR
        flags |= os.O_CLOEXEC | (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0)
        with _named("making" if create else "opening", path, may_be_missing=not create):
            return File(path, os.open(path, flags, 0o600))

    def list_files(self, directory: Path) -> list[str]:
        """Return the names in a directory that are of files, or of links wherever they lead; none if it is missing."""
        with _named("listing", directory):
            try:
                with os.scandir(directory) as entries:
                    return sorted(e.name for e in entries if e.is_symlink() or e.is_file())
            except FileNotFoundError:
                return []

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; none if it is missing."""
        with _named("listing", directory):
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or directory."""
        return os.path.exists(path)

    def is_file(self, path: Path) -> bool:
        """Tell whether there is a regular file."""
        return os.path.isfile(path)

    def size_bytes(self, path: Path) -> int:
        """Return the size of a file, 0 if it is missing."""
        with _named("looking at", path):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                return 0

    def modified_seconds(self, path: Path) -> float:
        """Return when a file was last written, in seconds since 1970."""
        with _named("looking at", path, may_be_missing=True):
            return os.stat(path).st_mtime

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents, mode 0700, each synced into its parent."""
        if os.path.isdir(path):
            return
        with _named("making the directory", path):
            self.make_directory(path.parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        self.sync_directory(path.parent)

    def sync_parents(self, path: Path) -> None:
        """Sync the directories above, so that the path itself is on the medium: whoever made them may have been killed.

        Those that may not or can't be synced, and what is above a mount point, are somebody else's.
        """
        path = Path(os.path.realpath(path))
        for parent in path.parents:
            try:
                self.sync_directory(parent)
            except StorageError as e:
                if isinstance(e.__cause__, OSError) and e.__cause__.errno in _NOT_OURS:
                    return
                raise
            if os.path.ismount(parent):
                return

    def sync_directory(self, path: Path) -> None:
        """Return once the directory's entries are on the medium."""
        with _named("syncing the directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Put ``data`` at ``path`` so that a crash leaves the old file or the new; one caller at a time."""
        temporary = path.with_name(f"{path.name}.tmp")
        self.remove(temporary)
        file = self.open(temporary, create=True, exclusive=True)
        try:
            file.write(0, [data])
            file.sync()
        except StorageError:
            file.close()
            self.remove(temporary)
            raise
        file.close()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def copy_durably(self, source: Path, target: Path) -> int:
        """Copy a file, sync the copy and its directory, and return its size in bytes."""
        original = self.open(source, readonly=True)
        try:
            copy = self.open(target, create=True)
            try:
                end = original.size()
                copy.copy_from(original, end)
                copy.truncate(end)
                copy.sync()
            finally:
                copy.close()
        finally:
            original.close()
        self.sync_directory(target.parent)
        return end

    def read_file(self, path: Path) -> bytes:
        """Return a whole small file."""
        file = self.open(path, readonly=True)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file over another; the directory still needs a sync."""
        with _named("renaming", source):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        with _named("removing", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def link(self, path: Path, target: Path) -> None:
        """Make a symbolic link at ``path``, in place of one that is there; the directory still needs a sync."""
        temporary = path.with_name(f"{path.name}.tmp")
        self.remove(temporary)
        with _named("linking", path):
            os.symlink(target, temporary)
        self.rename(temporary, path)

    def link_target(self, path: Path) -> Path | None:
        """Return what a symbolic link points to, or None if there is no link."""
        try:
            return Path(os.readlink(path))
        except OSError:
            return None

    def identity(self, path: Path) -> str:
        """Return what tells a file or directory from its copies, as long as it lives."""
        with _named("looking at", path):
            found = os.stat(path)
            return f"{found.st_dev:x}-{found.st_ino:x}"

    def make_private_directory(self, path: Path) -> None:
        """Make a directory, mode 0700; it needs no sync. One that is there must be this user's and as private."""
        with _named("making the directory", path):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                found = os.lstat(path)
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    raise

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that holds something stays, and a missing one is fine."""
        with _named("removing", path):
            try:
                os.rmdir(path)
            except OSError as e:
                if e.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def free_bytes(self, path: Path) -> int:
        """Return the free space, in bytes, of the file system that holds ``path``."""
        with _named("reading the free space of", path):
            return shutil.disk_usage(path).free
