"""Opens a channel: holds its directories, and recovers it if no other handle held them.

There are two locks. Every handle that may write, parked or not, shares the owner files: a handle that finds them
free is the first, and recovers from the log whatever the head says. Only handles that are neither closed nor parked
share the open lock: it alone decides which handle flushes the memory tier and whether a repair may run.
"""

from __future__ import annotations

import time

from spillable_stream.engine.local.channel_recovery import recover_channel
from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.engine.local.loading import StateLoader
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.memory_recovery import MemoryRecovery
from spillable_stream.errors import ChannelBusyError
from spillable_stream.log.adoption import adopt
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.claim import restore_home
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.directories import Directories
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.log.tier_logs import Tiers
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["adopted", "enter", "hold"]

_POLL_SECONDS = 0.01
_SETTLED_SECONDS = 3.0


def enter(fs: FileSystem, layout: Layout, timeout_seconds: float) -> HeldChannel:
    """Hold a channel, and recover it first if no other handle holds it.

    Args:
        fs: the file system.
        layout: the channel's files.
        timeout_seconds: how long to wait for a recovery or repair by another process.

    Raises:
        ChannelBusyError: that took longer; or a lock file was removed while other handles have it open.
        ForeignDirectoryError: a directory is missing, or belongs to another channel.
        CorruptionError: bytes that had been synced are damaged.
    """
    began, deadline = time.monotonic(), time.monotonic() + timeout_seconds
    while True:
        try:
            _create_lock_files(fs, layout)
            held = _come_first(fs, layout, timeout_seconds)
            held = held or _join(fs, layout, timeout_seconds)
        except ChannelBusyError:
            # Other handles may only be creating missing files, recording a move, or closing.
            if time.monotonic() > min(deadline, began + _SETTLED_SECONDS):
                raise
            held = None
        if held is not None:
            return held
        if time.monotonic() > deadline:
            raise ChannelBusyError(
                f"{layout.path} is being recovered or repaired, or somebody damaged, removed or replaced its head, a "
                "lock file or its memory tier while others have it open: wait, or close it everywhere and open it again"
            )
        time.sleep(_POLL_SECONDS)


def _create_lock_files(fs: FileSystem, layout: Layout) -> None:
    """Create the lock files that a copy of a channel may lack, unless another handle has the channel open.

    A second lock file beside one that other handles hold would not exclude them.

    Raises:
        ChannelBusyError: another handle has the channel open.
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


def _come_first(fs: FileSystem, layout: Layout, timeout_seconds: float) -> HeldChannel | None:
    """Hold a channel as its first handle, and recover it whatever its head says; None if another handle holds it."""
    held = hold(fs, layout, first=True)
    if held is None:
        return None
    try:
        recover_channel(held, timeout_seconds)
        held.directories.settle()
        if held.directories.share():
            return held
    except BaseException:
        held.close()
        raise
    held.close()  # another handle became the first in between
    return None


def _join(fs: FileSystem, layout: Layout, timeout_seconds: float) -> HeldChannel | None:
    """Hold a channel together with other handles; None if one is recovering it, or if the head can't be used."""
    held = hold(fs, layout, first=False)
    if held is None:
        return None
    try:
        if held.is_current():
            held.recovery = held.noted_recovery()
            return held
        # A repair removed the head, or it is damaged. Parked handles will notice that the head is a new one.
        held.open_lock.release()
        if held.open_lock.try_acquire() and not held.is_current():
            recover_channel(held, timeout_seconds)
    except BaseException:
        held.close()
        raise
    held.close()
    return None


def hold(fs: FileSystem, layout: Layout, *, first: bool) -> HeldChannel | None:
    """Share the open lock and hold the directories, exclusively if ``first``; None if another handle prevents it."""
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
            return HeldChannel(directories, open_lock, lock, tiers, checkpoints, memory, loader, memory_recovery)
    except BaseException:
        open_lock.close()
        directories.close()
        raise
    open_lock.close()
    directories.close()
    return None


def adopted(fs: FileSystem, layout: Layout, timeout_seconds: float) -> Layout:
    """Return the layout of a channel, after giving owner files to one that an early release created.

    Raises:
        ChannelBusyError: a process has the channel open in an early release.
        ForeignDirectoryError: a directory is not proven to be the channel's.
    """
    if layout.owned:
        return layout
    lock, deadline = FileLock.open(fs, layout.open_lock), time.monotonic() + timeout_seconds
    try:
        while not lock.acquire(_POLL_SECONDS):
            found = read_identity(fs, layout.path)
            if found.owned:  # another handle of this release was faster, and has the channel open
                return found
            if time.monotonic() > deadline:
                raise ChannelBusyError(
                    f"{layout.path} is open in an earlier release of this package; close it there first"
                )
        found = read_identity(fs, layout.path)
        return found if found.owned else adopt(fs, found)
    finally:
        lock.close()
