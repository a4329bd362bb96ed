"""Giving a channel its directories: when it is created, when it is repaired, and where a copy lacks some."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from spillable_stream.errors import ChannelBusyError, ForeignDirectoryError, LockUnsupportedError, StorageError
from spillable_stream.format.file_names import CLAIM_LOCK
from spillable_stream.log.directory_ownership import (
    claim_fault,
    home_owner,
    is_original_elsewhere,
    is_outside,
    ownership_fault,
    readable_owner,
    whereabouts,
)
from spillable_stream.log.identity_file import identity_of
from spillable_stream.log.layout import CHECKPOINT, Layout
from spillable_stream.log.owner_file import BACKUP, HOME, OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.log.unproven_directories import (
    repair_advice,
    require_claimable,
    require_claimed,
    unowned_directories,
)
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = [
    "make_directories",
    "make_missing",
    "own_again",
    "own_backup",
    "require_unowned",
    "restore_home",
]

_log = log_of(__name__)

_CLAIM_SECONDS = 30.0


def own_again(
    fs: FileSystem, layout: Layout, *, claimed: Collection[Path] = (), keep: Callable[[], None] = lambda: None
) -> None:
    """Let a channel have its directories by the word of whoever repairs it; nobody has it open.

    Args:
        fs: the file system.
        layout: the channel's files.
        claimed: the directories that it may have though they have no owner file, or one of another state of the
            channel; one that is missing is created.
        keep: is called before the first file is changed, when nothing but the disk can refuse any more.

    Raises:
        ForeignDirectoryError: one is another channel's, or that of the original of this copy, which is there; or it
            has no owner file, or one of another state, and was not claimed. Nothing was changed.
        StorageError: a claimed directory can't be written, and nothing was changed; or the file system refused later.
        ChannelBusyError: somebody holds one: the original of this copy, wherever that is.
    """
    with contextlib.ExitStack() as held:
        for directory in layout.directories().values():
            with contextlib.suppress(FileNotFoundError):
                lock = FileLock.open(fs, directory / OWNER_FILE, create=False)
                held.callback(lock.close)
                if not lock.try_acquire():
                    raise ChannelBusyError(f"{directory} is held by another copy of {layout.path}; close that first")
        _own_again(fs, layout, claimed, keep)


def _own_again(fs: FileSystem, layout: Layout, claimed: Collection[Path], keep: Callable[[], None]) -> None:
    require_claimable(fs, layout)
    unowned = unowned_directories(fs, layout)
    require_claimed(fs, layout, unowned, claimed)
    last = {directory for directory in claimed if directory in unowned}
    backup = _free_backup(fs, layout, claimed)  # by what the owner files say now
    _make_claimed(fs, layout, claimed)
    keep()
    (home, inode), known = whereabouts(fs, layout), home_owner(fs, layout)
    token = (known.next if known is not None else "") or uuid.uuid4().hex
    owner = DirectoryOwner(layout.channel, HOME, token, home, inode, layout=identity_of(layout))
    if known is not None and known.next != token:
        write_owner(fs, layout.path, replace(known, next=token))  # as for a move: killed from here on, both are known
    for role, directory in layout.directories().items():
        if directory not in last:
            _give(fs, layout, role, directory, owner)
    write_owner(fs, layout.path, owner)
    for role, directory in layout.directories().items():
        if directory in last:  # its disk, if it comes back after all, is of another state from now on
            _give(fs, layout, role, directory, owner)
    if backup is not None:
        with _without_backup(layout):
            fs.share_directory(backup)
            _give(fs, layout, BACKUP, backup, owner)


def _make_claimed(fs: FileSystem, layout: Layout, claimed: Collection[Path]) -> None:
    """Create the claimed directories that are missing, and prove that each can be written.

    Raises:
        StorageError: one can't, and those that were created are gone again.
    """
    made: list[Path] = []
    try:
        for directory in layout.directories().values():
            if directory in claimed:
                if not fs.exists(directory) and (target := fs.link_target(directory)) is not None:
                    raise StorageError(f"{directory} is a link to {target}, which is not there: create its target")
                made += [above for above in (directory, *directory.parents) if not fs.exists(above)]
                fs.make_directory(directory)
                fs.share_directory(directory)
                probe = directory / f"{OWNER_FILE}.tmp"  # one that a kill leaves is in nobody's way
                fs.write_atomically(probe, b"{}")
                fs.remove(probe)
    except BaseException:
        with contextlib.suppress(StorageError):
            for directory in sorted(made, reverse=True):  # what is deepest, first
                fs.remove_directory(directory)
        raise


def _give(fs: FileSystem, layout: Layout, role: str, directory: Path, owner: DirectoryOwner) -> None:
    """Write the owner file of a directory, and create it if it is inside of the channel.

    Raises:
        StorageError: the file system refused, as where a disk is not mounted any more.
    """
    if directory.is_relative_to(layout.path):
        fs.make_directory(directory)
        fs.share_directory(directory)
    fs.sync_parents(directory, done=layout.path)  # whoever created it, or a repair that was killed, may not have
    with _claiming(fs, directory, role):
        found, given = readable_owner(fs, directory), owner.of(role)
        _require_no_other(fs, layout, directory, role, found)
        if found is not None and not is_outside(fs, layout, directory):
            given = replace(found, token=owner.token, next="")  # it still says where the channel was copied from
        write_owner(fs, directory, given)


def _free_backup(fs: FileSystem, layout: Layout, claimed: Collection[Path]) -> Path | None:
    """Return the backup directory if a repair may give it to the channel, else None; that is logged."""
    backup = layout.backup_checkpoint_dir
    if backup is not None:
        with _without_backup(layout):
            if not fs.exists(backup / OWNER_FILE) and not (backup in claimed and fs.exists(backup)):
                raise StorageError(f"{backup} has no {OWNER_FILE}; its disk may not be mounted. It is left alone")
            _require_none(claim_fault(fs, layout, BACKUP, backup))
            return backup
    return None


def own_backup(fs: FileSystem, layout: Layout, owner: DirectoryOwner, moved_from: DirectoryOwner | None = None) -> None:
    """Give a channel its backup directory, if that can be: nothing depends on it.

    Args:
        fs: the file system.
        layout: the channel's files.
        owner: what its owner file is to say.
        moved_from: what the channel's own directory said before it was moved: a backup directory that does not follow
            that one is left alone. None where the directory is created.
    """
    backup = layout.backup_checkpoint_dir
    if backup is None:
        return
    with _without_backup(layout):
        if moved_from is None:
            fs.make_directory(backup)
            fs.share_directory(backup)
            found = read_owner(fs, backup)
            if found is not None and found.channel == layout.channel:
                _require_none(claim_fault(fs, layout, BACKUP, backup))
        elif ownership_fault(fs, layout, BACKUP, backup, read_owner(fs, backup), moved_from) is not None:
            return  # `Checkpoints` says so
        _own(fs, layout, backup, owner)


@contextlib.contextmanager
def _without_backup(layout: Layout) -> Iterator[None]:
    """Continue without the backup directory if the block fails, and log it."""
    try:
        yield
    except (StorageError, ForeignDirectoryError, ChannelBusyError, FileNotFoundError) as e:
        backup = layout.backup_checkpoint_dir
        _log.warning("there is no backup of checkpoints in %s: %s", backup, e, extra=fields(layout.path, file=backup))


def restore_home(fs: FileSystem, layout: Layout) -> None:
    """Write the owner file of the channel's own directory anew, which a copy of ``channel.json`` and ``data`` lacks.

    Raises:
        ChannelBusyError: somebody has the channel open, from under whom the file was removed.
        ForeignDirectoryError: the channel has directories elsewhere: nothing but that file says that they are its own.
    """
    file, held = layout.path / OWNER_FILE, []
    owner: DirectoryOwner | None = None
    try:
        for role, directory in layout.directories().items():
            found = read_owner(fs, directory)
            if role == CHECKPOINT and found is None:
                continue
            fault = ownership_fault(fs, layout, role, directory, found, None)
            if fault is not None or is_outside(fs, layout, directory):
                raise ForeignDirectoryError(
                    f"{file} is missing, and {directory} does not prove that the channel {layout.path} is its own: "
                    f"{fault or 'it is elsewhere'}. Restore the file if you can. {repair_advice(fs, layout)}"
                )
            held.append(FileLock.open(fs, directory / OWNER_FILE, create=False))
            if not held[-1].try_acquire():
                raise ChannelBusyError(f"{file} was removed while the channel was open; close every handle first")
            if len(held) == 1 and found is not None:
                owner = replace(found, role=HOME, layout=identity_of(layout))
        if owner is None:
            raise ForeignDirectoryError(f"{file} is missing, and nothing else says whose the directory is")
        write_owner(fs, layout.path, owner)
    finally:
        for lock in held:
            lock.close()


def make_missing(fs: FileSystem, layout: Layout, owner: DirectoryOwner) -> None:
    """Create the directories that a copy of a channel may lack: they hold nothing that cannot be missed.

    Args:
        fs: the file system.
        layout: the channel's files; nobody else holds the channel.
        owner: what the owner file of its own directory says.
    """
    fs.make_directory(layout.path / "groups")
    checkpoint = layout.checkpoint_dir
    if not checkpoint.is_relative_to(layout.path) or CHECKPOINT not in layout.directories():
        return
    fs.make_directory(checkpoint)
    if readable_owner(fs, checkpoint) is None:
        write_owner(fs, checkpoint, owner.of(CHECKPOINT))


def make_directories(fs: FileSystem, layout: Layout) -> None:
    """Create the directories of a new channel, or of one that was created before there were owner files, and own them.

    Whoever calls this is alone. The channel's own directory comes first, so that a creation that is cut short is
    done again under the same identity. A failing backup directory is reported and done without.

    Raises:
        ForeignDirectoryError: a directory belongs to another channel.
        ChannelBusyError: another process has been claiming one for too long.
        LockUnsupportedError: the file system of one has no locks.
        StorageError: the file system refused.
    """
    home = layout.path
    fs.make_directory(home)
    fs.share_directory(home)
    fs.sync_parents(home)
    mine = readable_owner(fs, home)
    token = mine.token if mine and mine.channel == layout.channel else uuid.uuid4().hex
    where, inode = whereabouts(fs, layout)
    owner = DirectoryOwner(layout.channel, HOME, token, where, inode, layout=identity_of(layout))
    write_owner(fs, home, owner)
    fs.make_directory(home / "groups")
    for role, directory in layout.directories().items():
        fs.make_directory(directory)
        fs.share_directory(directory)
        fs.sync_parents(directory, done=home)
        _own(fs, layout, directory, owner.of(role))
    own_backup(fs, layout, owner.of(BACKUP))


def require_unowned(fs: FileSystem, layout: Layout) -> None:
    """Prove that no directory of a channel to be created is another channel's.

    Raises:
        ForeignDirectoryError: one is.
    """
    for role, directory in {HOME: layout.path, **layout.directories()}.items():
        _require_no_other(fs, layout, directory, role, read_owner(fs, directory))
    if layout.backup_checkpoint_dir is not None:
        with contextlib.suppress(StorageError):  # a dead one is no reason not to create the channel
            backup = layout.backup_checkpoint_dir
            _require_no_other(fs, layout, backup, BACKUP, read_owner(fs, backup))


def _own(fs: FileSystem, layout: Layout, directory: Path, owner: DirectoryOwner) -> None:
    """Write a directory's owner file, also over one that says the same: its name may not be durable."""
    with _claiming(fs, directory, owner.role):
        _require_no_other(fs, layout, directory, owner.role, read_owner(fs, directory))
        write_owner(fs, directory, owner)


@contextlib.contextmanager
def _claiming(fs: FileSystem, directory: Path, role: str) -> Iterator[None]:
    """Keep others from claiming a directory for the time of the block: another channel, or a copy of this one.

    Whoever finds the owner file of another one there later than it looked would write over it.

    Raises:
        ChannelBusyError: another process has been claiming it for too long.
        LockUnsupportedError: its file system has no locks, which only copies of checkpoints do without.
    """
    with contextlib.ExitStack() as held:
        try:
            held.callback(_claim_lock(fs, directory).close)
        except LockUnsupportedError:
            if role != BACKUP:
                _remove_claim_lock(fs, directory)
                raise
        held.callback(_remove_claim_lock, fs, directory)
        yield


def _claim_lock(fs: FileSystem, directory: Path) -> FileLock:
    """Return the lock of a directory's claim, held; its last holder removed the file, so it may be a new one."""
    while True:
        lock = FileLock.open(fs, directory / CLAIM_LOCK)
        try:
            is_held = lock.acquire(_CLAIM_SECONDS)
            if is_held and lock.is_in_place():
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()
        if not is_held:
            raise ChannelBusyError(
                f"another process has been claiming {directory} for more than {_CLAIM_SECONDS:g} s; check whether it "
                "is stuck"
            )


def _remove_claim_lock(fs: FileSystem, directory: Path) -> None:
    with contextlib.suppress(StorageError):  # one that is left is in nobody's way
        fs.remove(directory / CLAIM_LOCK)


def _require_none(fault: str | None) -> None:
    if fault is not None:
        raise ForeignDirectoryError(fault)


def _require_no_other(fs: FileSystem, layout: Layout, directory: Path, role: str, found: DirectoryOwner | None) -> None:
    """Prove that a directory's owner file, if there is one, is not another channel's, or of the original of this copy.

    Raises:
        ForeignDirectoryError: it is.
    """
    if found is None:
        return
    if found.channel != layout.channel:
        raise ForeignDirectoryError(
            f"{directory} is {found.role} of the channel {found.channel} at {found.home}; give every channel "
            f"directories of its own, or remove {directory / OWNER_FILE} if that channel is gone"
        )
    if found.role != role:
        raise ForeignDirectoryError(
            f"{directory} is {found.role} of the channel at {found.home}, whose creation was cut short: give the same "
            f"directories as then, in that order; or remove their {OWNER_FILE} files, and that of {found.home}"
        )
    if is_outside(fs, layout, directory) and is_original_elsewhere(fs, found, layout):
        raise ForeignDirectoryError(
            f"{directory} can't be given to the channel {layout.path}: it belongs to the channel at {found.home}, and "
            f"this is a copy of that. {repair_advice(fs, layout)}"
        )
