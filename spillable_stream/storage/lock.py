"""Kernel locks on files (`flock`). The kernel releases a lock when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from spillable_stream.errors import ChannelClosedError, LockUnsupportedError, StorageError
from spillable_stream.storage.file import File, named
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock_queue import LockQueue
from spillable_stream.storage.process_identity import has_no_process

__all__ = ["FileLock", "has_ended", "holder_text", "is_locked", "process_note"]

_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_SPINS = 50
_FIRST_WAIT_SECONDS = 0.00005
_LONGEST_WAIT_SECONDS = 0.005
_PATIENCE_NS = 10_000_000  # a process queues only after waiting this long: unfair locking is faster
_PLACE_SECONDS = 0.0005  # for each that is before: about as long as a commit takes
_LONGEST_LOOK_SECONDS = 1.0


class FileLock:
    """The lock of one file: one holder has it exclusively, or many share it.

    Each object is one holder, so the lock does not exclude threads that use the same object. A held lock is never
    converted. Linux drops the shared lock before it tries for the exclusive one, and a refusal loses both. Release the
    lock first: that makes the moment without it visible in the code.

    Args:
        file: the file, which `close` closes.

    Attributes:
        path: the file's path.
        file: the file.
        is_in_place: tells whether other processes that open the path get the same lock: the file was neither removed
            nor replaced.
    """

    def __init__(self, file: File) -> None:
        self.path: Path = file.path
        self.is_in_place: Callable[[], bool] = file.is_in_place
        self.file = file
        self._held_shared: bool | None = None  # None: not held

    @classmethod
    def open(cls, fs: FileSystem, path: Path, *, create: bool = True) -> FileLock:
        """Return the lock of the file at ``path``, which is created if it is missing and ``create`` is set.

        Raises:
            FileNotFoundError: the file is missing and ``create`` is not set.
        """
        return cls(fs.open(path, create=create))

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Acquire the lock if it is free, and tell whether it was.

        Raises:
            LockUnsupportedError: the file system does not support locks.
            StorageError: it failed.
            ValueError: this object holds the lock in the other mode.
        """
        if self._held_shared is not None and self._held_shared is not shared:
            raise ValueError(
                f"{self.path} is held {'shared' if self._held_shared else 'exclusively'}: release it first"
            )
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        try:
            fcntl.flock(self.file.descriptor, mode)
        except BlockingIOError:
            return False
        except ValueError:  # Python rejects the descriptor -1
            self.file.fileno()
            raise
        except OSError as e:
            if e.errno in _UNSUPPORTED:
                raise LockUnsupportedError(
                    f"the file system of {self.path} does not lock files ({e.strerror}); "
                    "put the channel on a local file system"
                ) from e
            with named("locking", self.file):
                raise
        self._held_shared = shared
        return True

    def acquire(
        self,
        timeout_seconds: float,
        *,
        shared: bool = False,
        turns: LockQueue | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> bool:
        """Acquire the lock, waiting up to ``timeout_seconds``, and tell whether it was acquired.

        Args:
            timeout_seconds: how long to wait.
            shared: whether others may share the lock.
            turns: the table of waiting processes, which lets the longest waiting go first; without it, whoever polls
                at the right moment gets the lock.
            meanwhile: called after each try that failed: what the caller would do with the lock, and can do without it.

        Raises:
            LockUnsupportedError: the file system does not support locks.
            StorageError: it failed.
            ValueError: this object holds the lock in the other mode.
        """
        if (turns is None or turns.nobody_waits()) and self.try_acquire(shared=shared):
            return True
        since_ns = time.monotonic_ns()
        for _ in range(_SPINS if timeout_seconds else 0):  # a commit to memory takes less time than the shortest sleep
            meanwhile()
            os.sched_yield()
            if turns is not None and not turns.nobody_waits():
                break
            if self.try_acquire(shared=shared):
                return True
        try:
            return self._wait(since_ns, timeout_seconds, shared, turns, meanwhile)
        finally:
            if turns is not None:
                turns.leave()

    def acquire_alone(self, timeout_seconds: float) -> bool:
        """Acquire the lock exclusively, and tell whether it was acquired.

        Whatever the timeout, it waits out a short shared hold by `is_free_within`, so a check whether the lock is free
        never makes it look taken.

        Args:
            timeout_seconds: how long to wait for other holders.
        """
        if self.acquire(timeout_seconds):
            return True
        deadline = time.monotonic() + _LONGEST_LOOK_SECONDS
        while self.is_free_within(0):
            if self.try_acquire():
                return True
            if time.monotonic() >= deadline:  # the process that checks was suspended in the middle of it
                break
            time.sleep(_FIRST_WAIT_SECONDS)
        return False

    def is_free_within(self, timeout_seconds: float) -> bool:
        """Wait up to ``timeout_seconds`` until nobody holds the lock exclusively, and tell whether nobody does.

        The only way to ask the kernel is to share the lock for a moment; `acquire_alone` allows for it.
        """
        free = self.acquire(timeout_seconds, shared=True)
        if free:
            self.release()
        return free

    def _wait(
        self,
        since_ns: int,
        timeout_seconds: float,
        shared: bool,
        turns: LockQueue | None,
        meanwhile: Callable[[], object],
    ) -> bool:
        deadline_ns = since_ns + int(timeout_seconds * 1e9)
        wait, ahead = _FIRST_WAIT_SECONDS, 0
        while (left_ns := deadline_ns - (now_ns := time.monotonic_ns())) > 0:
            meanwhile()
            if turns is not None and now_ns - since_ns > _PATIENCE_NS:
                turns.wait(since_ns)
                wait = min(_PLACE_SECONDS * (ahead + 1), _LONGEST_WAIT_SECONDS)
            time.sleep(min(wait, left_ns / 1e9))
            ahead = turns.ahead(since_ns) if turns is not None else 0
            if not ahead and self.try_acquire(shared=shared):
                return True
            wait = min(wait * 1.5, _LONGEST_WAIT_SECONDS)
        return False

    def share(self) -> bool:
        """Swap the exclusive lock for a shared one; False if another holder acquired it exclusively in between."""
        self.release()
        return self.try_acquire(shared=True)

    def release(self) -> None:
        """Release the lock."""
        self._held_shared = None
        try:
            fcntl.flock(self.file.descriptor, fcntl.LOCK_UN)
        except ValueError:  # as above
            self.file.fileno()
            raise

    def write_holder(self, text: str) -> None:
        """Write a note into the lock file for processes that find the lock taken; a full disk leaves it without one."""
        with contextlib.suppress(StorageError):
            self.file.truncate(0)
            self.file.write(0, [text.encode()])

    def blank_holder(self) -> None:
        """Write blanks over the note, which keep its room on disk, so that `unblank_holder` needs none.

        Raises:
            StorageError: the storage refused.
        """
        self.file.write(0, [b" " * self.file.size()])

    def unblank_holder(self, text: str) -> None:
        """Write the note again that `blank_holder` wrote over, as far as the storage lets it."""
        with contextlib.suppress(StorageError):
            self.file.write(0, [text.encode()])

    def read_holder(self) -> str:
        """Return the note of the last holder; "" without one."""
        return holder_text(self.file.read(0, 4096))

    def close(self) -> None:
        """Release the lock and close the file. Closing twice is fine; a forked child leaves the parent's lock alone.

        Closing the file alone would not release the lock at once: a program that another thread is starting may hold a
        copy of the descriptor until it executes.
        """
        with contextlib.suppress(ChannelClosedError, OSError):
            self.release()
        self.file.close()

    def check_exclusive(self, fs: FileSystem) -> None:
        """Check that the file system keeps out a second holder while this one holds the lock.

        Raises:
            LockUnsupportedError: the second holder got the lock too.
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
    """Tell whether somebody holds the lock of a file, exclusively or shared; False for a missing file."""
    try:
        lock = FileLock(fs.open(path, readonly=True))
    except FileNotFoundError:
        return False
    try:
        return not lock.try_acquire()
    finally:
        lock.close()


def has_ended(note: str) -> bool:
    """Tell whether the process whose `process_note` begins a note has ended; False if that can't be known here."""
    found = re.match(r"pid (\d+) on (\S+)", note)
    return found is not None and found[2] == os.uname().nodename and has_no_process(int(found[1]))


def holder_text(data: bytes) -> str:
    """Return the note that a lock file has; "" for none, or blanks."""
    return data.decode(errors="replace").strip(" ")


def process_note() -> str:
    """Return "pid N on HOST" for this process."""
    return f"pid {os.getpid()} on {os.uname().nodename}"
