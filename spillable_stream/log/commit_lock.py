"""The commit lock, which lets one committer at a time append, and the head, which publishes the result."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager

from spillable_stream.errors import (
    ChannelClosedError,
    CorruptionError,
    LockTimeoutError,
    StorageError,
    TransactionStateError,
)
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.log.head import Head
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from spillable_stream.storage.lock_queue import open_lock_queue

__all__ = ["CommitLock", "checkpoint_ms_now"]


def checkpoint_ms_now() -> int:
    """Return what a head says of a checkpoint that is created now: a clock before 1970 has no number there."""
    return max(time.time_ns() // 1_000_000, 0)


class CommitLock:
    """Admits one committer at a time among the threads and processes of a host, for both tiers together.

    Args:
        fs: the file system.
        layout: the channel's files.
        create: create a missing lock file. Only a caller that holds the channel alone may: two processes with
            different lock files would not exclude each other.

    Attributes:
        failed: why this handle can't commit any more, or None.
        require_directories: proves that no directory was moved or replaced, and raises if one was; called before
            files are created or removed.
        meanwhile: called while another process has the lock, again and again: the waiting thread applies what others
            committed, so that it need not with the lock held, when they wait for it.
    """

    def __init__(self, fs: FileSystem, layout: Layout, *, create: bool = True) -> None:
        self.fs = fs
        self.layout = layout
        self.failed: str | None = None
        self.require_directories: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], object] = lambda: None
        self._lock = FileLock.open(fs, layout.lock, create=create)
        self._turns = open_lock_queue(self._lock.file)
        try:
            self.head: Head = Head(fs, layout.head)
        except BaseException:
            self._lock.close()
            raise
        self._thread_lock = threading.RLock()  # reentrant, so that a nested acquire is detected and refused
        self._holding: list[bool] | None = None  # the holder's `had`
        self._block: weakref.ref[_Block] | None = None  # the holder's
        self._held: CommitPoint | None = None  # what the head says while this process holds the lock
        self._closed = False

    def locked(
        self, timeout_seconds: float, prepare: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Hold the lock within the block, and release it wherever an interrupt (Ctrl-C) strikes.

        Args:
            timeout_seconds: how long to wait for it.
            prepare: called first, with the lock held. A commit brings its state up to date there: a context manager
                around this one would cost it as much as the lock.

        Returns:
            The block: a class's, since a generator's costs a commit four calls more.

        Raises:
            LockTimeoutError: the lock was not acquired within ``timeout_seconds``; names the holder.
            ChannelClosedError: the channel is closed, an earlier failure closed it, or the lock file was replaced.
            TransactionStateError: this thread already holds it.
        """
        return _Block(self, timeout_seconds, prepare)

    def let_go(self) -> None:
        """Release the lock if this thread still holds it, whose call has ended (`ActiveCalls.let_go`)."""
        if self._thread_lock.acquire(blocking=False):
            try:
                if (had := self._holding) is not None:  # else no thread holds it
                    had[0] = False  # whenever that block ends, it finds nothing to release
                    try:
                        self._give_back()
                    finally:
                        self._thread_lock.release()
            finally:
                self._thread_lock.release()

    def _acquire(self, timeout_seconds: float, block: _Block, had: list[bool]) -> None:
        # A single C call, so a KeyboardInterrupt cannot land between acquiring the lock and recording that we did.
        had.extend(map(self._thread_lock.acquire, (True,), (max(timeout_seconds, 0),)))
        if not had[0]:
            raise LockTimeoutError(
                f"another thread of this process has held {self.layout.lock} for {timeout_seconds} s; check whether it "
                "is stuck"
            )
        if self._holding is not None:
            self._require_over()
        self._holding = had
        self._block = weakref.ref(block, self._abandoned)
        if self._closed:
            raise _unusable(f"the channel {self.layout.path} is closed; open it again")
        if not self._lock.acquire(timeout_seconds, turns=self._turns, meanwhile=self.meanwhile):
            raise LockTimeoutError(
                f"pid {self.head.writer() or '?'} on {os.uname().nodename} (the last to commit) or another process "
                f"has held {self.layout.lock} for more than {timeout_seconds} s; check whether it is stuck"
            )
        if not self._lock.is_in_place():
            raise self._misplaced()
        self._held = self.head.begin_writing()
        if self.failed:
            raise _unusable(f"the channel failed and must be opened again: {self.failed}")

    def _abandoned(self, block: weakref.ref[_Block]) -> None:
        """Release the lock of a block that is gone, since an interrupt ended `_Block.__exit__` before it began.

        Where another thread collected it, only the holder can, which does when it comes again (`_require_over`).
        """
        if block is self._block:
            self.let_go()

    def _misplaced(self) -> ChannelClosedError:
        """Return the error for a lock file that does not exclude committers at the channel's path."""
        return _unusable(
            f"{self.layout.lock} was moved, removed or replaced while the channel was open; close every handle, and "
            "open the channel where it is now"
        )

    def _require_over(self) -> None:
        """Refuse this thread, which holds the lock already, unless its block is gone: then release the lock."""
        if self._block is not None and self._block() is None:
            self.let_go()
            return
        raise TransactionStateError(
            f"this thread holds {self.layout.lock} already: a signal handler, a finalizer (__del__) or a handler of "
            "warnings or logging came in between; let another thread do that"
        )

    @property
    def file(self) -> File:
        """The lock's file."""
        return self._lock.file

    def _give_back(self) -> None:
        self._held = self._block = None
        if not self._closed:
            self._lock.release()
        self._holding = None

    def published(self) -> CommitPoint:
        """Read the published ends from the head.

        Raises:
            ChannelClosedError: another thread closed the channel meanwhile.
            CorruptionError: the head is damaged; opening the channel again rebuilds it.
        """
        try:
            head = self.head.read()
        except StorageError:
            if self._closed:  # another thread closed it meanwhile
                raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again") from None
            raise
        if head is None:
            raise CorruptionError("the head is damaged; open the channel again to rebuild it", str(self.layout.head))
        return head

    def current(self) -> CommitPoint:
        """Return the published ends; while this process holds the lock, without reading the head."""
        return self._held or self.published()

    def publish(self, published: CommitPoint) -> None:
        """Write the head; the caller holds the lock."""
        self._held = self.head.write(published)

    def record_checkpoint(self) -> None:
        """Record in the head that a checkpoint was created now; the caller holds the lock."""
        self.publish(self.current()._replace(checkpoint_ms=checkpoint_ms_now()))

    def close(self, *, forked: bool = False) -> None:
        """Close the lock and the head, once no other thread holds the lock.

        Args:
            forked: the process is a forked child, where the thread that holds the lock may not exist: do not wait.

        Raises:
            TransactionStateError: this thread holds the lock.
        """
        with contextlib.nullcontext() if forked else self._thread_lock:
            if not forked and self._holding is not None:
                self._require_over()
            self._closed = True
            self._lock.close()
            self.head.close()


class _Block:
    """A block in which the commit lock is held.

    Args:
        lock: the lock.
        timeout_seconds: how long to wait for it.
        prepare: called first, with the lock held.
    """

    __slots__ = ("__weakref__", "_had", "_lock", "_prepare", "_timeout_seconds")

    def __init__(self, lock: CommitLock, timeout_seconds: float, prepare: Callable[[], object]) -> None:
        self._lock, self._timeout_seconds, self._prepare = lock, timeout_seconds, prepare
        self._had: list[bool] = []

    def __enter__(self) -> None:
        try:
            self._lock._acquire(self._timeout_seconds, self, self._had)
            self._prepare()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        lock, had = self._lock, self._had
        if had and had[0]:
            try:
                if lock._holding is had:
                    lock._give_back()
            except BaseException:
                lock._give_back()
                raise
            finally:
                lock._thread_lock.release()


def _unusable(why: str) -> ChannelClosedError:
    """Return the error of a caller that never held the lock, and so stored nothing."""
    error = ChannelClosedError(why)
    error.stored_nothing = True
    return error
