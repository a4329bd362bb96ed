"""An open file: the few operations that the log needs, each error with what failed and where."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import ChannelClosedError, DiskSpaceError, SpillableError, StorageError
from spillable_stream.forks import forking
from spillable_stream.format.frame import Payload
from spillable_stream.storage.file_identity import FileIdentity, RawIdentity, raw_identity_in, raw_identity_of
from spillable_stream.system_errors import FULL_DISK

__all__ = ["File", "named"]

_IOV_MAX = 512
_SMALL_BYTES = 16 << 10
_COPY_BYTES = 4 << 20
_SYNC_FILE_RANGE_WRITE = 2


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


class named:
    """Turns an OSError into a `StorageError` that says what failed and where; on a full disk into a `DiskSpaceError`.

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
    closed = f"; it, or a directory above it, is closed to uid {os.geteuid()}: run this as a user to whom both are open"
    who = f"{closed}, or chmod them; see the option mode" if e.errno == errno.EACCES else ""
    is_link = e.errno == errno.ELOOP and os.path.islink(path)
    why = "it is a symbolic link, which is not followed" if is_link else e.strerror or e
    text = f"{what} {path} failed: {why} (errno {e.errno}){who}"
    full = FULL_DISK.get(e.errno or 0)
    return DiskSpaceError(f"{text}; {full}") if full else StorageError(text)


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
        closing: closes the descriptor at its first step, and does nothing at others; None to make one.

    Attributes:
        path: the file.
        descriptor: its descriptor, for calls that need one; -1 once it is closed. `fileno` says that.
    """

    def __init__(self, path: Path, descriptor: int, closing: Iterator[None] | None = None) -> None:
        # Closes it once, whoever asks. If an interrupt ends `__del__`, the end of the reference asks, in C, where no
        # interrupt comes.
        self._closing = closing or map(os.close, [descriptor])
        self.descriptor: int = descriptor
        self.path: Path = path
        self._name = os.fsencode(path)
        self._raw_identity: RawIdentity | None = None  # cached by is_in_place
        _open_files[id(self)] = weakref.ref(self, functools.partial(next, self._closing))

    def fileno(self) -> int:
        """Return the file descriptor.

        Raises:
            ChannelClosedError: the file was closed, or this is a forked child.
        """
        if self.descriptor < 0:
            raise _closed(self.path)
        return self.descriptor

    def is_closed(self) -> bool:
        """Tell whether the file was closed, by `close` or because this process is a forked child."""
        return self.descriptor < 0

    def size(self) -> int:
        """Return the size in bytes."""
        with named("reading the size of", self):
            return os.fstat(self.descriptor).st_size

    def identity(self) -> FileIdentity:
        """Return the file's identity, even if its path leads to another file by now; see `FileSystem.identity`."""
        with named("looking at", self):
            found = os.fstat(self.descriptor)
            return FileIdentity(found.st_dev, found.st_ino)

    def is_in_place(self) -> bool:
        """Tell whether the file's path still leads to it: the file was not removed, moved or replaced.

        Equal inode numbers prove it, because the inode of an open file cannot be reused.
        """
        if self._raw_identity is None:
            with named("looking at", self):
                self._raw_identity = raw_identity_in(os.fstat(self.descriptor))
        try:
            return raw_identity_of(self._name) == self._raw_identity
        except FileNotFoundError:
            return False
        except OSError as e:
            raise _failed("looking at", self, e) from e

    def is_linked(self) -> bool:
        """Tell whether the file is open and still has a name."""
        try:
            return os.fstat(self.descriptor).st_nlink > 0
        except OSError as e:
            if e.errno != errno.EBADF:
                raise _failed("looking at", self, e) from e
            return False  # closed

    def link_count(self) -> int:
        """Return how many names lead to the file."""
        with named("looking at", self):
            return os.fstat(self.descriptor).st_nlink

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""
        return bytes(self.read_buffer(offset, size).to_pybytes())

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        """Read like `read`, into memory from Arrow's pool: allocating new memory would cost more than the read.

        Little memory costs little, and Arrow gives up the interpreter's lock while it finds some.
        """
        buffer = pa.allocate_buffer(size) if size > _SMALL_BYTES else pa.py_buffer(bytearray(size))
        try:
            got = more = os.preadv(self.descriptor, (buffer,), offset)
            while more and got < size:
                more = os.preadv(self.descriptor, (memoryview(buffer)[got:],), offset + got)
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
                written, size = os.pwritev(self.descriptor, part, end), sum(map(len, part))
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
            written = os.pwritev(self.descriptor, views, offset)

    def copy_from(self, source: File, size: int) -> None:
        """Write the first ``size`` bytes of another file to the beginning of this one."""
        for offset in range(0, size, _COPY_BYTES):
            self.write(offset, [source.read_buffer(offset, min(_COPY_BYTES, size - offset))])

    def preallocate(self, offset: int, size: int) -> None:
        """Allocate blocks and extend the size ahead of later writes; a no-op if the file system does not support it."""
        with named("preallocating", self):
            try:
                os.posix_fallocate(self.descriptor, offset, size)
            except OSError as e:
                if e.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes."""
        with named("truncating", self):
            os.ftruncate(self.descriptor, size)

    def start_sync(self, offset: int, size: int) -> None:
        """Ask the kernel to start writing bytes to the medium, so that a later `sync` waits less. It is only a hint."""
        if (start := _sync_file_range()) is not None:
            start(self.descriptor, offset, size, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        """Return once the data, and the metadata needed to read it back, are on the medium."""
        try:
            os.fdatasync(self.descriptor)
        except OSError as e:
            raise _failed("syncing", self, e) from e
        except ValueError as e:  # Python rejects the descriptor -1
            raise _closed(self.path) from e

    def load(self, size: int) -> bytes:
        """Return the first ``size`` bytes, which other processes may be writing.

        It makes a system call. Reading a mapping would kill the process (SIGBUS) if the disk were gone.
        """
        try:
            data = os.pread(self.descriptor, size, 0)
            while len(data) < size and (more := os.pread(self.descriptor, size - len(data), len(data))):
                data += more
            return data
        except OSError as e:
            raise _failed("reading", self, e) from e

    def store(self, offset: int, data: bytes) -> None:
        """Write a few bytes for other processes to `load`. They need not survive a crash."""
        try:
            written = os.pwrite(self.descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(self.descriptor, data[written:], offset + written)
        except OSError as e:
            raise _failed("writing", self, e) from e

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Return the byte ranges from ``start`` on that may hold data, as (begin, end); the rest of the file is zeros.

        Call it before reading any of them: preallocated space that the kernel has read ahead counts as data.
        """
        found: list[tuple[int, int]] = []
        try:
            while True:
                start = os.lseek(self.descriptor, start, os.SEEK_DATA)
                found.append((start, os.lseek(self.descriptor, start, os.SEEK_HOLE)))
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
            os.posix_fadvise(self.descriptor, start, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file. Closing it twice is fine."""
        if self.descriptor >= 0:
            with forking:
                self.descriptor = -1
                next(self._closing, None)
                _open_files.pop(id(self), None)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            with contextlib.suppress(OSError):
                self.close()


_open_files: dict[int, weakref.ref[File]] = {}


def _leave_files_to_parent() -> None:
    """In a forked child: close every file."""
    for reference in list(_open_files.values()):
        file = reference()
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    _open_files.clear()


os.register_at_fork(after_in_child=_leave_files_to_parent)
