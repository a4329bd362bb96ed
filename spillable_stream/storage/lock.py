"""Kernel locks on files (`flock`): freed by the kernel when their holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from spillable_stream.errors import ChannelClosedError, LockUnsupportedError, StorageError
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.turns import Turns

__all__ = ["FileLock", "is_locked", "process_note"]

_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_SPINS = 100
_FIRST_WAIT_SECONDS = 0.00005
_LONGEST_WAIT_SECONDS = 0.005
_PATIENCE_NS = 10_000_000  # until then a lock goes to and fro as chance has it, which wastes the least time
_FIRST_IN_LINE_SECONDS = 0.0005
_LONGEST_LOOK_SECONDS = 1.0


class FileLock:
    """The lock of one file, held by at most one open description exclusively, or by many shared.

    Not for threads among themselves: each object is one holder. A lock that is held is not converted: Linux drops a
    shared lock before it looks whether it can give the exclusive one, and so one that is refused has lost both. Release
    it first, so that whoever reads the code knows that there is a moment without a lock.

    Args:
        file: the file, which `close` closes.

    Attributes:
        path: the file's path.
        is_in_place: tells whether others who open the path get the same lock: the file was neither removed
            nor replaced.
    """

    def __init__(self, file: File) -> None:
        self.path: Path = file.path
        self.is_in_place: Callable[[], bool] = file.is_in_place
        self.file = file
        self._held_shared: bool | None = None  # None: it is not held

    @classmethod
    def open(cls, fs: FileSystem, path: Path, *, create: bool = True) -> FileLock:
        """Return the lock of the file at ``path``, made if it is missing and ``create`` says so.

        Raises:
            FileNotFoundError: it is missing.
        """
        return cls(fs.open(path, create=create))

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free and tell whether it was.

        Raises:
            LockUnsupportedError: the file system does not lock.
            ValueError: it is held, shared where it should not be or the other way round.
        """
        if self._held_shared is not None and self._held_shared is not shared:
            raise ValueError(
                f"{self.path} is held {'shared' if self._held_shared else 'exclusively'}: release it first"
            )
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
        self._held_shared = shared
        return True

    def acquire(self, timeout_seconds: float, *, shared: bool = False, turns: Turns | None = None) -> bool:
        """Take the lock, waiting up to ``timeout_seconds``, and tell whether it was had.

        Args:
            timeout_seconds: how long to wait.
            shared: whether others may share it.
            turns: the table of those who wait, so that none waits much longer than the others; without one, who looks
                at the right moment has the lock.
        """
        if (turns is None or turns.nobody_waits()) and self.try_acquire(shared=shared):
            return True
        since_ns = time.monotonic_ns()
        for _ in range(_SPINS if timeout_seconds else 0):  # a commit to memory is shorter than the shortest sleep
            os.sched_yield()
            if turns is not None and not turns.nobody_waits():
                break
            if self.try_acquire(shared=shared):
                return True
        try:
            return self._wait(since_ns, timeout_seconds, shared, turns)
        finally:
            if turns is not None:
                turns.leave()

    def acquire_alone(self, timeout_seconds: float) -> bool:
        """Do what `acquire` does, and wait a moment for those who share the lock only to look whether it is free.

        So a look (`is_free_within`) never makes it seem taken, whatever ``timeout_seconds`` is.
        """
        if self.acquire(timeout_seconds):
            return True
        deadline = time.monotonic() + _LONGEST_LOOK_SECONDS
        while self.is_free_within(0):
            if self.try_acquire():
                return True
            if time.monotonic() >= deadline:  # who looks was stopped in the middle of it
                break
            time.sleep(_FIRST_WAIT_SECONDS)
        return False

    def is_free_within(self, timeout_seconds: float) -> bool:
        """Wait up to ``timeout_seconds`` until nobody has the lock alone, and tell whether nobody has.

        There is no such question to the kernel but to share the lock for a moment: `acquire_alone` allows for it.
        """
        free = self.acquire(timeout_seconds, shared=True)
        if free:
            self.release()
        return free

    def _wait(self, since_ns: int, timeout_seconds: float, shared: bool, turns: Turns | None) -> bool:
        deadline_ns = since_ns + int(timeout_seconds * 1e9)
        wait = _FIRST_WAIT_SECONDS
        while (left_ns := deadline_ns - (now_ns := time.monotonic_ns())) > 0:
            first = turns is None or turns.is_mine(since_ns)
            if turns is not None and now_ns - since_ns > _PATIENCE_NS:
                turns.wait(since_ns)
                wait = _FIRST_IN_LINE_SECONDS if first else _LONGEST_WAIT_SECONDS
            time.sleep(min(wait, left_ns / 1e9))
            if first and self.try_acquire(shared=shared):
                return True
            wait = min(wait * 1.5, _LONGEST_WAIT_SECONDS)
        return False

    def share(self) -> bool:
        """Share the lock after it was held alone, and tell whether nobody else got it alone in between."""
        self.release()
        return self.try_acquire(shared=True)

    def release(self) -> None:
        """Give the lock back."""
        self._held_shared = None
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


def is_locked(fs: FileSystem, path: Path) -> bool:
    """Tell whether somebody has the lock of a file, alone or shared; nothing is written, and a missing one is free."""
    try:
        lock = FileLock(fs.open(path, readonly=True))
    except FileNotFoundError:
        return False
    try:
        return not lock.try_acquire()
    finally:
        lock.close()


def process_note() -> str:
    """Return "pid N on HOST" for this process."""
    return f"pid {os.getpid()} on {os.uname().nodename}"
