"""Files and directories: the few operations that the log needs.

`FileSystem` is the real one. Tests substitute file systems that fail, record or lose writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import shutil
import stat
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import ChannelClosedError, SpillableError, StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.storage.access import PRIVATE_MODE, Access
from spillable_stream.storage.file_identity import Identity, identity_of

__all__ = ["File", "FileSystem"]

_IOV_MAX = 512
_COPY_BYTES = 4 << 20
_MEMORY_TYPES = {"tmpfs", "ramfs"}
_SYNC_FILE_RANGE_WRITE = 2
_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's ``sync_file_range``; None on other systems."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = function
    return found


class _named:
    """Turns an OSError into a `StorageError` that says what failed and where.

    With ``may_be_missing``, a FileNotFoundError passes: the caller must distinguish it from a failing disk.
    """

    __slots__ = ("_may_be_missing", "_path", "_what")

    def __init__(self, what: str, path: str | Path | File, *, may_be_missing: bool = False) -> None:
        self._what, self._path, self._may_be_missing = what, path, may_be_missing

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, e: BaseException | None, __: object) -> None:
        if isinstance(e, OSError) and not (self._may_be_missing and isinstance(e, FileNotFoundError)):
            raise _failed(self._what, self._path, e) from e
        if (
            isinstance(e, ValueError) and isinstance(self._path, File) and self._path.is_closed()
        ):  # Python rejects the descriptor -1
            raise _closed(self._path.path) from e


def _failed(what: str, path: str | Path | File, e: OSError) -> SpillableError:
    if isinstance(path, File):
        if path.is_closed():
            return _closed(path.path)
        path = path.path
    return StorageError(f"{what} {path} failed: {e.strerror or e} (errno {e.errno})")


def _closed(path: str | Path) -> ChannelClosedError:
    return ChannelClosedError(
        f"{path} was closed; what was opened before a fork is closed in the child: open the channel again there"
    )


class File:
    """An open data file: positioned reads and writes, and a sync.

    A forked child closes all of its copies. An open copy would keep the parent's locks held for as long as the child
    lives. Closing it releases none of them, because the parent still has the file open.

    Its methods raise `StorageError` if the system refuses, and `ChannelClosedError` if the file was closed.

    Args:
        path: the file.
        descriptor: its open file descriptor, which this object then owns.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor
        self._name = os.fsencode(path)
        self._identity: Identity | None = None  # cached by is_in_place
        _open_files[id(self)] = weakref.ref(self)

    def fileno(self) -> int:
        """Return the file descriptor.

        Raises:
            ChannelClosedError: the file was closed, or this is a forked child.
        """
        if self._fd < 0:
            raise _closed(self.path)
        return self._fd

    def is_closed(self) -> bool:
        """Tell whether the file was closed, by `close` or because this process is a forked child."""
        return self._fd < 0

    def size(self) -> int:
        """Return the size in bytes."""
        with _named("reading the size of", self):
            return os.fstat(self._fd).st_size

    def identity(self) -> Identity:
        """Return the file's identity, even if its path leads to another file by now; see `FileSystem.identity`."""
        with _named("looking at", self):
            found = os.fstat(self._fd)
            return Identity(found.st_dev, found.st_ino)

    def is_in_place(self) -> bool:
        """Tell whether the file's path still leads to it: the file was not removed, moved or replaced.

        Equal inode numbers prove it, because the inode of an open file cannot be reused.
        """
        if self._identity is None:
            self._identity = self.identity()
        try:
            return identity_of(self._name) == self._identity
        except FileNotFoundError:
            return False
        except OSError as e:
            raise _failed("looking at", self, e) from e

    def is_linked(self) -> bool:
        """Tell whether the file is open and still has a name."""
        try:
            return os.fstat(self._fd).st_nlink > 0
        except OSError as e:
            if e.errno != errno.EBADF:
                raise _failed("looking at", self, e) from e
            return False  # closed

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""
        return bytes(self.read_buffer(offset, size).to_pybytes())

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        """Read like `read`, into memory from Arrow's pool: allocating new memory would cost more than the read."""
        buffer, got, more = pa.allocate_buffer(size), 0, 1
        try:
            while more and got < size:
                more = os.preadv(self._fd, [memoryview(buffer)[got:]], offset + got)
                got += more
        except OSError as e:
            raise _failed("reading", self, e) from e
        return buffer if got == size else buffer.slice(0, got)

    def write(self, offset: int, buffers: Sequence[Payload]) -> int:
        """Write all buffers at ``offset``, one after the other, and return the number of bytes written."""
        end = offset
        try:
            for i in range(0, len(buffers), _IOV_MAX):
                part = buffers[i : i + _IOV_MAX]
                written, size = os.pwritev(self._fd, part, end), sum(map(len, part))
                if written < size:
                    self._write_rest(end, part, written)
                end += size
        except OSError as e:
            raise _failed("writing", self, e) from e
        return end - offset

    def _write_rest(self, offset: int, buffers: Sequence[Payload], written: int) -> None:
        """Finish a short write at ``offset``: write all but the first ``written`` bytes of some buffers."""
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
        """Allocate blocks and extend the size ahead of later writes; a no-op if the file system does not support it."""
        with _named("preallocating", self):
            try:
                os.posix_fallocate(self._fd, offset, size)
            except OSError as e:
                if e.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes."""
        with _named("truncating", self):
            os.ftruncate(self._fd, size)

    def start_sync(self, offset: int, size: int) -> None:
        """Ask the kernel to start writing bytes to the medium, so that a later `sync` waits less. It is only a hint."""
        if (start := _sync_file_range()) is not None:
            start(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        """Return once the data, and the metadata needed to read it back, are on the medium."""
        with _named("syncing", self):
            os.fdatasync(self._fd)

    def load(self, size: int) -> bytes:
        """Return the first ``size`` bytes, which other processes may be writing.

        It makes a system call. Reading a mapping would kill the process (SIGBUS) if the disk were gone.
        """
        try:
            data = os.pread(self._fd, size, 0)
            while len(data) < size and (more := os.pread(self._fd, size - len(data), len(data))):
                data += more
            return data
        except OSError as e:
            raise _failed("reading", self, e) from e

    def store(self, offset: int, data: bytes) -> None:
        """Write a few bytes for other processes to `load`. They need not survive a crash."""
        try:
            written = os.pwrite(self._fd, data, offset)
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], offset + written)
        except OSError as e:
            raise _failed("writing", self, e) from e

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Return the byte ranges from ``start`` on that may hold data, as (begin, end); the rest of the file is zeros.

        Call it before reading any of them: preallocated space that the kernel has read ahead counts as data.
        """
        found: list[tuple[int, int]] = []
        try:
            while True:
                start = os.lseek(self._fd, start, os.SEEK_DATA)
                found.append((start, os.lseek(self._fd, start, os.SEEK_HOLE)))
                start = found[-1][1]
        except OSError as e:
            if e.errno == errno.ENXIO:  # nothing but a hole is left
                return found
            if e.errno == errno.EINVAL:  # the file system cannot tell
                return [*found, (start, self.size())]
            raise _failed("reading", self, e) from e

    def drop_read_ahead(self, start: int) -> None:
        """Drop clean pages from ``start`` on, so that `data_ranges` recognizes preallocated space again."""
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(self._fd, start, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file. Closing it twice is fine."""
        if self._fd >= 0:
            with _forking:
                fd, self._fd = self._fd, -1  # no call until os.close, so an interrupt cannot land between
                if fd >= 0:
                    os.close(fd)
                _open_files.pop(id(self), None)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            with contextlib.suppress(OSError):
                self.close()


_open_files: dict[int, weakref.ref[File]] = {}
_forking = threading.RLock()  # keeps a fork from landing between opening or closing a descriptor and recording it above


def _leave_files_to_parent() -> None:
    """In a forked child: close every file."""
    for reference in list(_open_files.values()):
        file = reference()
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    _open_files.clear()
    _forking.release()


os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_leave_files_to_parent)


class FileSystem:
    """The operating system's files.

    Its methods raise `StorageError` if the system refuses.

    Attributes:
        access: the owner, group and mode of new files and directories.
    """

    access: Access = Access()

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        """Open a file for reading, and for writing unless ``readonly``. A symbolic link is refused.

        A file that root creates belongs to the owner of its directory, who would otherwise be locked out.

        Args:
            path: the file.
            create: create the file if it is missing; its directory still needs a sync.
            exclusive: with ``create``, fail if the file exists.
            readonly: open the file for reading only.

        Raises:
            FileNotFoundError: the file is missing and ``create`` is not set.
            StorageError: any other failure, such as a pipe at this path.
        """
        flags = (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK  # opening a planted pipe must not wait for its other end
        with _named("making" if create else "opening", path, may_be_missing=not create):
            with _forking:
                made = self.access.open_or_make(path, flags, exclusive=exclusive) if create else os.open(path, flags)
                file = File(path, made)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise OSError(errno.EINVAL, "it is not a regular file")
            return file

    def list_files(self, directory: Path) -> list[str]:
        """Return the names of files and of all symbolic links in a directory, sorted; none if it is missing."""
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
        """Tell whether a file or directory exists."""
        return os.path.exists(path)

    def is_file(self, path: Path) -> bool:
        """Tell whether a path leads to a regular file."""
        return os.path.isfile(path)

    def size_bytes(self, path: Path) -> int:
        """Return the size of a file in bytes; 0 if it is missing."""
        with _named("looking at", path):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                return 0

    def modified_seconds(self, path: Path) -> float:
        """Return when a file was last written, in seconds since 1970.

        Raises:
            FileNotFoundError: the file is missing.
        """
        with _named("looking at", path, may_be_missing=True):
            return os.stat(path).st_mtime

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents, and sync the parent of each."""
        if os.path.isdir(path):
            return
        with _named("making the directory", path):
            self.make_directory(path.parent)
            with contextlib.suppress(FileExistsError):
                self.access.make_directory(path)
        self.sync_directory(path.parent)

    def share_directory(self, path: Path) -> None:
        """Set the channel's mode and group on a directory older than the channel; a no-op for a private channel."""
        if self.access.mode != PRIVATE_MODE:
            with _named("changing the mode of", path):
                self.access.settle_directory(path)

    def group_of(self, path: Path) -> int:
        """Return the ID of the Unix group that owns a file or directory."""
        with _named("looking at", path):
            return os.stat(path).st_gid

    def sync_parents(self, path: Path) -> None:
        """Sync the directories above a path, so that the path itself survives a crash.

        The process that created them may have been killed before it synced them. The walk ends at a mount point, or at
        a directory that this process may not or cannot sync: those above belong to others.
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
        """Replace a file so that a crash leaves either the old or the new one; for one caller at a time."""
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
        """Copy a file, sync the copy and its directory, and return its size in bytes; for one caller at a time.

        The copy gets its name only after its sync. A file with that name is therefore whole and durable; a failure or
        a kill leaves at most a temporary file.
        """
        temporary = target.with_name(f"{target.name}.tmp")
        self.remove(temporary)
        original = self.open(source, readonly=True)
        try:
            end = original.size()
            copy = self.open(temporary, create=True, exclusive=True)
            try:
                copy.copy_from(original, end)
                copy.sync()
            finally:
                copy.close()
            self.rename(temporary, target)
            self.sync_directory(target.parent)
        except BaseException:
            for path in (temporary, target):  # remove the target too: its name may not be durable
                with contextlib.suppress(StorageError):
                    self.remove(path)
            raise
        finally:
            original.close()
        return end

    def read_file(self, path: Path) -> bytes:
        """Return the content of a small file."""
        file = self.open(path, readonly=True)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any at ``target``; the directory still needs a sync."""
        with _named("renaming", source):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        with _named("removing", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def link(self, path: Path, target: Path) -> None:
        """Create a symbolic link at ``path``, replacing any there; the directory still needs a sync."""
        temporary = path.with_name(f"{path.name}.tmp")
        self.remove(temporary)
        with _named("linking", path):
            os.symlink(target, temporary)
        self.rename(temporary, path)

    def link_target(self, path: Path) -> Path | None:
        """Return the target of a symbolic link; None if the path is not one."""
        try:
            return Path(os.readlink(path))
        except OSError:
            return None

    def identity(self, path: Path) -> Identity:
        """Return the identity of a file or directory, which its copies do not share.

        Raises:
            FileNotFoundError: the path leads nowhere.
        """
        with _named("looking at", path, may_be_missing=True):
            return identity_of(os.fsencode(path))

    def real_path(self, path: Path) -> Path:
        """Return the path without symbolic links."""
        return Path(os.path.realpath(path))

    def make_private_directory(self, path: Path, owner_of: Path) -> None:
        """Create a directory that must not exist yet; it needs no sync.

        Args:
            path: the directory.
            owner_of: if this process is root, the directory gets the owner of this path.
        """
        with _named("making the directory", path):
            self.access.make_directory(path, owner_of)

    def is_private_directory(self, path: Path, owner_of: Path) -> bool:
        """Tell whether a path is a directory, not a link, that only those who may write ``owner_of`` can write to."""
        try:
            return self.access.trusts(os.lstat(path), os.stat(owner_of))
        except OSError:
            return False

    def is_in_memory(self, path: Path) -> bool:
        """Tell whether a path is on a file system in memory, such as tmpfs; False if the system does not say.

        Such a file system needs no sync: either all that was written to it is there, or all of it is gone.
        """
        try:
            device = os.stat(path).st_dev
            mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        except OSError:
            return False
        number = f"{os.major(device)}:{os.minor(device)}"
        return any(m.split()[2] == number and m.partition(" - ")[2].split()[0] in _MEMORY_TYPES for m in mounts)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. A directory that is not empty stays; a missing one is fine.

        A directory in ``/dev/shm`` that another member of the channel's group created stays too, empty: only its owner
        may remove it.
        """
        kept = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}
        if self.access.mode != PRIVATE_MODE:
            kept |= {errno.EPERM, errno.EACCES}
        with _named("removing", path):
            try:
                os.rmdir(path)
            except OSError as e:
                if e.errno not in kept:
                    raise

    def free_bytes(self, path: Path) -> int:
        """Return the free space, in bytes, of the file system that holds ``path``."""
        with _named("reading the free space of", path):
            return shutil.disk_usage(path).free

    def total_bytes(self, path: Path) -> int:
        """Return the size, in bytes, of the file system that holds ``path``."""
        with _named("reading the size of the file system of", path):
            return shutil.disk_usage(path).total
