"""Kernel locks on files (`flock`): freed by the kernel when their holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from spillable_stream.errors import ChannelClosedError, LockUnsupportedError, StorageError
from spillable_stream.storage.filesystem import File, FileSystem

__all__ = ["FileLock", "process_note"]

_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_SPINS = 100
_FIRST_WAIT_SECONDS = 0.00005
_LONGEST_WAIT_SECONDS = 0.005


class FileLock:
    """The lock of one file, held by at most one open description exclusively, or by many shared.

    Not for threads among themselves: each object is one holder.

    Args:
        file: the file, which `close` closes.
    """

    def __init__(self, file: File) -> None:
        self.path = file.path
        self.file = file

    @classmethod
    def open(cls, fs: FileSystem, path: Path) -> FileLock:
        """Return the lock of the file at ``path``, made if it is missing."""
        return cls(fs.open(path, create=True))

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free and tell whether it was.

        Raises:
            LockUnsupportedError: the file system does not lock.
        """
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        try:
            fcntl.flock(self.file.fileno(), mode)
        except BlockingIOError:
            return False
        except OSError as e:
            if e.errno in _UNSUPPORTED:
                raise LockUnsupportedError(
                    f"the file system of {self.path} does not lock files ({e.strerror}); "
                    "put the channel on a local file system"
                ) from e
            raise
        return True

    def acquire(self, timeout_seconds: float, *, shared: bool = False) -> bool:
        """Take the lock, waiting up to ``timeout_seconds``, and tell whether it was had."""
        for _ in range(_SPINS if timeout_seconds else 1):  # a commit to memory is shorter than the shortest sleep
            if self.try_acquire(shared=shared):
                return True
            os.sched_yield()
        deadline = time.monotonic() + timeout_seconds
        wait = _FIRST_WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(wait, left))
            if self.try_acquire(shared=shared):
                return True
            wait = min(wait * 1.5, _LONGEST_WAIT_SECONDS)
        return False

    def release(self) -> None:
        """Give the lock back."""
        fcntl.flock(self.file.fileno(), fcntl.LOCK_UN)

    def write_holder(self, text: str) -> None:
        """Leave a note in the lock file for whoever finds the lock taken; on a full disk there is none."""
        with contextlib.suppress(StorageError):
            self.file.truncate(0)
            self.file.write(0, [text.encode()])

    def read_holder(self) -> str:
        """Return the note of the last holder."""
        return self.file.read(0, 4096).decode(errors="replace")

    def close(self) -> None:
        """Free the lock and close the file; again is fine, and in a forked child the parent's is left alone.

        The lock is freed by itself, not with the file: a program that another thread is starting may have a copy of the
        file until it begins.
        """
        with contextlib.suppress(ChannelClosedError, OSError):
            self.release()
        self.file.close()

    def check_exclusive(self, fs: FileSystem) -> None:
        """Prove that a second holder is kept out; this one holds the lock.

        Raises:
            LockUnsupportedError: it is not.
        """
        second = FileLock.open(fs, self.path)
        try:
            if second.try_acquire():
                raise LockUnsupportedError(
                    f"the file system of {self.path} grants one lock twice; put the channel on a local file system"
                )
        finally:
            second.close()


def process_note() -> str:
    """Return "pid N on HOST" for this process."""
    return f"pid {os.getpid()} on {os.uname().nodename}"
