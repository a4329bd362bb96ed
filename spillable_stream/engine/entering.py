"""Entering a channel: holding its directories, and recovering it if nobody held them before.

Two locks are kept apart. The owner files are shared by every handle that may write, parked ones too: who
finds them free comes first, and recovers from the log whatever the head says. The open lock is shared by
handles that are neither closed nor parked: it alone decides who flushes the memory tier and who repairs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spillable_stream.engine.loading import LoadedState, StateLoader
from spillable_stream.engine.memory_directory import MemoryDirectory
from spillable_stream.engine.memory_recovery import MemoryRecovery
from spillable_stream.engine.recovery import recover_channel
from spillable_stream.errors import ChannelBusyError
from spillable_stream.log.adoption import adopt
from spillable_stream.log.anchors import are_anchored, write_anchors
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.directories import Directories
from spillable_stream.log.identity import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner import OWNER_FILE
from spillable_stream.log.owning import restore_home
from spillable_stream.log.tiers import Tiers
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Held", "adopted", "enter", "hold"]

_POLL_SECONDS = 0.01
_SETTLED_SECONDS = 3.0


@dataclass(slots=True)
class Held:
    """A channel that is held, and what it is read and committed with.

    Args:
        directories: its directories.
        open_lock: the lock of who is neither closed nor parked, shared.
        lock: its commit lock and head.
        tiers: its logs.
        checkpoints: its checkpoints.
        memory_directory: the memory tier's directory.
        loader: loads its state.
        memory_recovery: recovers its memory tier.
        torn_bytes: how many bytes a recovery cut.
        recovered: whether this handle came first, and recovered it.
    """

    directories: Directories
    open_lock: FileLock
    lock: CommitLock
    tiers: Tiers
    checkpoints: Checkpoints
    memory_directory: MemoryDirectory
    loader: StateLoader
    memory_recovery: MemoryRecovery
    torn_bytes: int = 0
    recovered: bool = False
    _replayed: LoadedState | None = None  # by the recovery, for the first load

    def recover(self, timeout_seconds: float) -> None:
        """Recover from the log; no other handle that is not parked has the channel open."""
        with self.lock.locked(timeout_seconds):
            self.torn_bytes, self._replayed = recover_channel(
                self.lock, self.tiers, self.checkpoints, self.memory_directory, self.loader, self.memory_recovery
            )
            write_anchors(*self._anchors())
        self.recovered = True

    def load(self) -> LoadedState:
        """Return the state at the published ends.

        Raises what `StateLoader.load` raises.
        """
        replayed, self._replayed = self._replayed, None
        return self.loader.load(replayed)

    def is_current(self) -> bool:
        """Tell whether the head, and the memory tier that it publishes, are of use.

        Raises:
            OtherHostError: the memory tier is alive elsewhere.
        """
        if not self.is_anchored() or (published := self.lock.head.read()) is None:
            return False
        # Of a damaged head the older slot is left, which would take commits back.
        return self.memory_recovery.is_usable(published) and self.lock.head.is_whole()

    def is_anchored(self) -> bool:
        """Tell whether the locks and the head are those of the other handles, and none was put in their place."""
        return are_anchored(*self._anchors())

    def _anchors(self) -> tuple[File, File, File]:
        return self.open_lock.file, self.lock.file, self.lock.head.file

    def close(self, *, forked: bool = False) -> None:
        """Close everything; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        self.lock.close(forked=forked)
        self.tiers.close()
        self.memory_directory.close()
        self.open_lock.close()
        self.directories.close()  # last: until then the head counts


def enter(fs: FileSystem, layout: Layout, timeout_seconds: float) -> Held:
    """Hold a channel, after a recovery if nobody held it.

    Args:
        fs: the file system.
        layout: the channel's files.
        timeout_seconds: how long to wait for those who recover or repair it.

    Raises:
        ChannelBusyError: they take longer; or a lock file was removed from under those who have it open.
        ForeignDirectoryError: a directory is missing, or not the channel's.
        CorruptionError: bytes that had been synced are damaged.
    """
    began, deadline = time.monotonic(), time.monotonic() + timeout_seconds
    while True:
        try:
            _make_lock_files(fs, layout)
            held = _come_first(fs, layout, timeout_seconds)
            held = held or _join(fs, layout, timeout_seconds)
        except ChannelBusyError:
            # Others may only be at making what is missing, or at moving the channel, or be on their way out.
            if time.monotonic() > min(deadline, began + _SETTLED_SECONDS):
                raise
            held = None
        if held is not None:
            return held
        if time.monotonic() > deadline:
            raise ChannelBusyError(
                f"{layout.path} is being recovered or repaired; or its head is damaged, or that or a lock file is not "
                "the one of the other handles, and these keep it open. Wait for them, or close them"
            )
        time.sleep(_POLL_SECONDS)


def _make_lock_files(fs: FileSystem, layout: Layout) -> None:
    """Make the lock files that a copy of a channel may lack, but not while somebody has it open.

    A second file in place of one that others hold would keep nobody out.
    """
    if not fs.exists(layout.path / OWNER_FILE):
        restore_home(fs, layout)
    missing = [path for path in (layout.open_lock, layout.lock) if not fs.exists(path)]
    if not missing:
        return
    directories = Directories(fs, layout)
    try:
        if not directories.try_first():
            raise ChannelBusyError(
                f"{missing[0]} was removed while other handles have the channel open; close them all"
            )
        for path in missing:
            FileLock.open(fs, path).close()
    finally:
        directories.close()


def _come_first(fs: FileSystem, layout: Layout, timeout_seconds: float) -> Held | None:
    """Recover a channel that nobody holds, whatever its head says; None if somebody does."""
    held = hold(fs, layout, first=True)
    if held is None:
        return None
    try:
        held.recover(timeout_seconds)
        if held.directories.share():
            return held
    except BaseException:
        held.close()
        raise
    held.close()  # somebody else came first in between
    return None


def _join(fs: FileSystem, layout: Layout, timeout_seconds: float) -> Held | None:
    """Hold a channel with others; None if they are recovering it, or if the head is of no use."""
    held = hold(fs, layout, first=False)
    if held is None:
        return None
    try:
        if held.is_current():
            return held
        # A repair removed the head, or it is damaged. Handles that are only parked will find another one.
        held.open_lock.release()
        if held.open_lock.try_acquire() and not held.is_current():
            held.recover(timeout_seconds)
    except BaseException:
        held.close()
        raise
    held.close()
    return None


def hold(fs: FileSystem, layout: Layout, *, first: bool) -> Held | None:
    """Share the open lock and hold the directories, alone if ``first``; None if that can't be."""
    open_lock, directories = FileLock.open(fs, layout.open_lock, create=False), Directories(fs, layout)
    try:
        if open_lock.try_acquire(shared=True) and (directories.try_first() if first else directories.try_join()):
            directories.prove(first=first)
            lock = CommitLock(fs, layout, create=False)
            lock.require_directories = directories.require_in_place
            tiers, checkpoints = Tiers(lock), Checkpoints(fs, layout)
            memory = MemoryDirectory(fs, layout)
            loader = StateLoader(lock, tiers, checkpoints)
            memory_recovery = MemoryRecovery(lock, tiers, memory, loader)
            return Held(directories, open_lock, lock, tiers, checkpoints, memory, loader, memory_recovery)
    except BaseException:
        open_lock.close()
        directories.close()
        raise
    open_lock.close()
    directories.close()
    return None


def adopted(fs: FileSystem, layout: Layout, timeout_seconds: float) -> Layout:
    """Return the layout of a channel whose directories have owner files; one of the first releases gets them now.

    Raises:
        ChannelBusyError: some process has the channel open.
        ForeignDirectoryError: a directory is not proven to be the channel's.
    """
    if layout.owned:
        return layout
    lock, deadline = FileLock.open(fs, layout.open_lock), time.monotonic() + timeout_seconds
    try:
        while not lock.acquire(_POLL_SECONDS):
            found = read_identity(fs, layout.path)
            if found.owned:  # another handle of this release was faster, and keeps it open
                return found
            if time.monotonic() > deadline:
                raise ChannelBusyError(
                    f"{layout.path} is open in an earlier release of this package; close it there first"
                )
        found = read_identity(fs, layout.path)
        return found if found.owned else adopt(fs, found)
    finally:
        lock.close()
