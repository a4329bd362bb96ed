"""Whose a directory is: what its owner file proves, judged without a lock."""

from __future__ import annotations

import contextlib
from pathlib import Path

from spillable_stream.errors import ForeignDirectoryError, NotAChannelError, SpillableError, StorageError
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import CHECKPOINT, Layout
from spillable_stream.log.owner_file import OWNER_FILE, DirectoryOwner, read_owner
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import is_locked

__all__ = [
    "BACKUP",
    "HOME",
    "backup_fault",
    "claim_advice",
    "claim_fault",
    "home_owner",
    "is_held",
    "is_of_another_state",
    "is_original_elsewhere",
    "is_outside",
    "ownership_fault",
    "ownership_fault_without_home",
    "readable_owner",
    "unowned_directories",
    "whereabouts",
]

HOME = "home"
BACKUP = "backup"


def whereabouts(fs: FileSystem, layout: Layout) -> tuple[str, int]:
    """Return where the channel's directory is, without links, and its inode there: what owner files note."""
    return str(fs.real_path(layout.path)), fs.identity(layout.path).inode


def is_outside(fs: FileSystem, layout: Layout, directory: Path) -> bool:
    """Tell whether a directory does not come along when the channel's directory is copied or moved."""
    if directory.parent == layout.path and fs.link_target(directory) is None:
        return fs.identity(directory).device != fs.identity(layout.path).device
    home, real = fs.real_path(layout.path), fs.real_path(directory)
    return not real.is_relative_to(home) or fs.identity(real).device != fs.identity(home).device


def ownership_fault(
    fs: FileSystem,
    layout: Layout,
    role: str,
    directory: Path,
    found: DirectoryOwner | None,
    owner: DirectoryOwner | None,
) -> str | None:
    """Return why a directory is not proven to be the channel's, or None if it is.

    Args:
        fs: the file system.
        layout: the channel's files.
        role: what the directory is to the channel.
        directory: the directory.
        found: what its owner file says.
        owner: what the owner file of the channel's own directory says; None to look at no other file.
    """
    if found is None:
        return f"it has no {OWNER_FILE}"
    if found.channel != layout.channel:
        return f"it belongs to the channel {found.channel} at {found.home}"
    if found.role != role:
        return f"it is {found.role} of the channel at {found.home}"
    if owner is None or not is_outside(fs, layout, directory):
        return None
    if found.token not in owner.tokens():
        return f"it is of an older or another state of the channel at {found.home}"
    if is_original_elsewhere(fs, found, layout):
        return f"it belongs to the channel at {found.home}, and this is a copy of that"
    return None


def ownership_fault_without_home(
    fs: FileSystem, layout: Layout, role: str, directory: Path, found: DirectoryOwner | None
) -> str | None:
    """Return why a directory can't be the channel's, where the channel's own owner file says nothing; None if it can.

    The arguments are those of `ownership_fault`.
    """
    fault = ownership_fault(fs, layout, role, directory, found, None)
    if fault is None and found and is_outside(fs, layout, directory) and is_original_elsewhere(fs, found, layout):
        return f"it belongs to the channel at {found.home}, and this is a copy of that"
    return fault


def backup_fault(fs: FileSystem, layout: Layout, backup: Path) -> str | None:
    """Return why the directory of copies of checkpoints is not proven to be the channel's, or None if it is.

    The channel's own owner file may be missing, or damaged: then what the directory says by itself has to do, so that a
    repair knows its checkpoints.
    """
    try:
        found = read_owner(fs, backup)
    except ForeignDirectoryError as e:
        return claim_fault(fs, layout, BACKUP, backup) or str(e)
    owner = readable_owner(fs, layout.path)
    if owner is None:
        return ownership_fault_without_home(fs, layout, BACKUP, backup, found)
    return ownership_fault(fs, layout, BACKUP, backup, found, owner)


def claim_fault(fs: FileSystem, layout: Layout, role: str, directory: Path) -> str | None:
    """Return why a repair can't give a directory to the channel, or None if it can.

    Where the directory does not say itself whose it is, the owner files that come along with the channel say whether
    the channel is a copy: then what does not come along is the original's. Those inside of the channel say it even
    after the copy was opened.
    """
    found = readable_owner(fs, directory)
    if found is not None:
        return ownership_fault_without_home(fs, layout, role, directory, found)
    if not _is_there_outside(fs, layout, directory):
        return None
    within = [d for d in layout.directories().values() if fs.exists(d) and not is_outside(fs, layout, d)]
    for came_along in (readable_owner(fs, d) for d in [layout.path, *within]):
        if came_along is not None and is_original_elsewhere(fs, came_along, layout):
            return (
                f"its {OWNER_FILE} does not say whose it is, and {layout.path} is a copy of the channel at "
                f"{came_along.home}, which is there"
            )
    return None


def unowned_directories(fs: FileSystem, layout: Layout, *, files_missing: bool = False) -> tuple[Path, ...]:
    """Return the channel's directories that a repair may give to it only if somebody names them.

    Each has no owner file, or one of an older or another state of the channel, as a mount point has that was claimed
    once: its disk may not be mounted. Not among them are the channel's own directory, since ``channel.json`` is in it;
    one for checkpoints in there, which the next open makes; and one for copies of checkpoints that is missing or of
    another state, since nothing depends on it.

    Args:
        fs: the file system.
        layout: the channel's files.
        files_missing: whether data files are missing. A directory of a channel of the first releases, which has no
            owner files, may be empty unless they are.
    """
    found, owner = [], home_owner(fs, layout)
    for role, directory in layout.directories().items():
        if fs.exists(directory / OWNER_FILE):
            is_unowned = is_of_another_state(fs, layout, directory, owner)
        elif role == CHECKPOINT and directory.is_relative_to(layout.path):
            is_unowned = False  # the next open makes it
        elif layout.owned or not fs.exists(directory):
            is_unowned = True
        else:
            is_unowned = files_missing and role != CHECKPOINT and not fs.list(directory)
        if is_unowned and claim_fault(fs, layout, role, directory) is None:
            found.append(directory)
    backup = layout.backup_checkpoint_dir
    if backup is not None and layout.owned and fs.exists(backup) and not fs.exists(backup / OWNER_FILE):
        with contextlib.suppress(StorageError):  # nothing depends on that directory
            if claim_fault(fs, layout, BACKUP, backup) is None:
                found.append(backup)
    return tuple(found)


def home_owner(fs: FileSystem, layout: Layout) -> DirectoryOwner | None:
    """Return what the owner file of the channel's own directory says, or None if it does not prove that directory."""
    owner = readable_owner(fs, layout.path)
    return owner if ownership_fault(fs, layout, HOME, layout.path, owner, None) is None else None


def is_of_another_state(fs: FileSystem, layout: Layout, directory: Path, owner: DirectoryOwner | None) -> bool:
    """Tell whether a directory elsewhere has a token that the channel's own directory does not know.

    Args:
        fs: the file system.
        layout: the channel's files.
        directory: the directory.
        owner: what `home_owner` says; None tells nothing.
    """
    found = readable_owner(fs, directory)
    if owner is None or found is None or found.token in owner.tokens():
        return False
    return is_outside(fs, layout, directory)


def claim_advice(layout: Layout, directory: Path, *, is_owned: bool = False) -> str:
    """Return what to do about a directory that a repair gives to the channel only if somebody names it.

    Args:
        layout: the channel's files.
        directory: the directory.
        is_owned: whether it has an owner file, of another state of the channel.
    """
    claim = f"'spillable repair {layout.path} --claim {directory}' gives the channel the directory as it is"
    if is_owned:
        newer = (
            "The newer one may be on a disk that is not mounted: mount it; or the channel was restored from a backup"
        )
        return f"{newer}. If this is the one to continue with, {claim}"
    return f"Its disk may not be mounted: mount it. If it is mounted, or lost for good, {claim}"


def _is_there_outside(fs: FileSystem, layout: Layout, directory: Path) -> bool:
    if not fs.exists(directory):
        return not directory.is_relative_to(layout.path)
    return is_outside(fs, layout, directory)


def readable_owner(fs: FileSystem, directory: Path) -> DirectoryOwner | None:
    """Return what a directory's owner file says, or None if it is missing or damaged."""
    try:
        return read_owner(fs, directory)
    except ForeignDirectoryError:
        return None


def is_held(fs: FileSystem, path: Path) -> bool:
    """Tell whether some handle holds the channel at a path, so that its head counts; nothing is written."""
    return is_locked(fs, path / OWNER_FILE)


def is_original_elsewhere(fs: FileSystem, found: DirectoryOwner, layout: Layout) -> bool:
    """Tell whether what an owner file names as its channel's directory is there, and is not ``layout``'s."""
    home = Path(found.home)
    if fs.real_path(layout.path) == fs.real_path(home) or not fs.exists(home):
        return False
    try:
        if fs.identity(home) == fs.identity(layout.path):
            return False
        return read_identity(fs, home).channel == found.channel
    except (NotAChannelError, FileNotFoundError):
        return fs.exists(home / OWNER_FILE)
    except SpillableError:
        return True  # it is there, though it can't be read
