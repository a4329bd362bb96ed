"""The channel's lock and its head: who may append, and what is published."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

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
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.lock import FileLock
from spillable_stream.storage.turns import open_turns

__all__ = ["CommitLock"]


def _nothing() -> None:
    pass


class CommitLock:
    """One committer at a time, among the threads and processes of a host, for both tiers together.

    Args:
        fs: the file system.
        layout: the channel's files.
        create: whether to make the lock file if it is missing: only for who holds the channel alone, since two
            processes with a file each would not keep each other out.

    Attributes:
        failed: why nothing can be committed through this handle any more, or None.
        require_directories: proves that all directories are where they were, and raises if not; asked before
            files are made or removed.
    """

    def __init__(self, fs: FileSystem, layout: Layout, *, create: bool = True) -> None:
        self.fs = fs
        self.layout = layout
        self.failed: str | None = None
        self.require_directories: Callable[[], None] = _nothing
        self._lock = FileLock.open(fs, layout.lock, create=create)
        self._turns = open_turns(self._lock.file)
        try:
            self.head: Head = Head(fs, layout.head)
        except BaseException:
            self._lock.close()
            raise
        self._thread_lock = threading.RLock()  # what a thread wants that has it already is seen, and refused
        self._holding: list[bool] | None = None  # of the thread that has it
        self._held: CommitPoint | None = None  # what the head says while this process holds the lock
        self._closed = False

    @contextlib.contextmanager
    def locked(self, timeout_seconds: float) -> Iterator[None]:
        """Hold the lock, and give it back wherever an interrupt (Ctrl-C) ends that.

        Raises:
            LockTimeoutError: it was not had within ``timeout_seconds``; names the holder.
            ChannelClosedError: an earlier failure closed the log.
            TransactionStateError: this thread has it.
        """
        had: list[bool] = []
        try:
            self._acquire(timeout_seconds, had)
            yield
        finally:  # also where an interrupt comes between two lines: the generator is closed then
            if had and had[0]:
                try:
                    if self._holding is had:
                        self._give_back()
                except BaseException:
                    self._give_back()
                    raise
                finally:
                    self._thread_lock.release()

    def _acquire(self, timeout_seconds: float, had: list[bool]) -> None:
        # Within one call from C, so that no interrupt comes between getting the lock and knowing that it was had.
        had.extend(map(self._thread_lock.acquire, (True,), (max(timeout_seconds, 0),)))
        if not had[0]:
            raise LockTimeoutError(f"another thread of this process holds {self.layout.lock} for {timeout_seconds} s")
        if self._holding is not None:
            self._refuse_holder()
        self._holding = had
        if self._closed:
            raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again")
        if not self._lock.acquire(timeout_seconds, turns=self._turns):
            raise LockTimeoutError(
                f"pid {self.head.writer() or '?'} on {os.uname().nodename} (the last to commit) or another process "
                f"has held {self.layout.lock} for more than {timeout_seconds} s; check whether it is stuck"
            )
        if not self._lock.is_in_place():
            raise self._misplaced()
        self._held = self.head.begin_writing()
        if self.failed:
            raise ChannelClosedError(f"the channel failed and must be opened again: {self.failed}")

    def _misplaced(self) -> ChannelClosedError:
        """Return why this lock does not keep those out who commit at the channel's path."""
        return ChannelClosedError(
            f"{self.layout.lock} was moved, removed or replaced while the channel was open; close every handle, and "
            "open the channel where it is now"
        )

    def _refuse_holder(self) -> NoReturn:
        raise TransactionStateError(
            f"this thread holds {self.layout.lock} already: a signal handler, a finalizer (__del__) or a handler of "
            "warnings or logging came in between; let another thread do that"
        )

    @property
    def file(self) -> File:
        """The lock's file."""
        return self._lock.file

    def _give_back(self) -> None:
        self._held = None
        if not self._closed:
            self._lock.release()
        self._holding = None

    def published(self) -> CommitPoint:
        """Return what the head publishes.

        Raises:
            CorruptionError: the head is damaged; opening the channel again rebuilds it.
        """
        try:
            head = self.head.read()
        except StorageError:
            if self._closed:  # meanwhile, by another thread
                raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again") from None
            raise
        if head is None:
            raise CorruptionError("the head is damaged; open the channel again to rebuild it", str(self.layout.head))
        return head

    def current(self) -> CommitPoint:
        """Return what the head says; while the lock is held, without a look at it."""
        return self._held or self.published()

    def publish(self, published: CommitPoint) -> None:
        """Write the head; the lock is held."""
        self._held = self.head.write(published)

    def record_checkpoint(self) -> None:
        """Record in the head that a checkpoint was made now; the lock is held."""
        self.publish(self.current()._replace(checkpoint_time=int(time.time())))

    def close(self, *, forked: bool = False) -> None:
        """Close lock and head, when the lock's holder among the threads is done.

        Args:
            forked: in a forked child, where that thread does not exist.

        Raises:
            TransactionStateError: this thread holds the lock.
        """
        if not forked:
            self._thread_lock.acquire()
        try:
            if not forked and self._holding is not None:
                self._refuse_holder()
            self._closed = True
            self._lock.close()
            self.head.close()
        finally:
            if not forked:
                self._thread_lock.release()
