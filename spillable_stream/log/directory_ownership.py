"""Whose a directory is: what its owner file proves, judged without a lock."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.errors import ForeignDirectoryError, NotAChannelError, SpillableError
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import BACKUP, HOME, OWNER_FILE, DirectoryOwner, read_owner
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import is_locked

__all__ = [
    "adoption_fault",
    "backup_fault",
    "claim_fault",
    "home_owner",
    "is_held",
    "is_original_elsewhere",
    "is_outside",
    "original_of",
    "ownership_fault",
    "readable_owner",
    "whereabouts",
]


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


def backup_fault(fs: FileSystem, layout: Layout, backup: Path) -> str | None:
    """Return why the directory of copies of checkpoints is not proven to be the channel's, or None if it is.

    The channel's own owner file may be missing, or damaged: then what the directory says by itself has to do, so that a
    repair knows its checkpoints.
    """
    try:
        found = read_owner(fs, backup)
    except ForeignDirectoryError:
        return claim_fault(fs, layout, BACKUP, backup) or f"its {OWNER_FILE} can't be read"
    owner = readable_owner(fs, layout.path)
    if owner is None:
        return ownership_fault(fs, layout, BACKUP, backup, found, None) or claim_fault(fs, layout, BACKUP, backup)
    return ownership_fault(fs, layout, BACKUP, backup, found, owner)


def claim_fault(fs: FileSystem, layout: Layout, role: str, directory: Path) -> str | None:
    """Return why a repair can't give a directory to the channel, or None if it can.

    The arguments are those of `ownership_fault`.
    """
    found = readable_owner(fs, directory)
    if found is not None and (fault := ownership_fault(fs, layout, role, directory, found, None)) is not None:
        return fault
    if (original := original_of(fs, layout, directory)) is None:
        return None
    if found is not None:
        return f"it belongs to the channel at {original}, and this is a copy of that"
    return (
        f"its {OWNER_FILE} does not say whose it is, and {layout.path} is a copy of the channel at {original}, "
        "which is there"
    )


def original_of(fs: FileSystem, layout: Layout, directory: Path) -> str | None:
    """Return where the channel is that a directory belongs to because this channel is a copy of that one, or None.

    Where the directory does not say itself whose it is, the owner files that come along with the channel say whether
    the channel is a copy: then what does not come along is the original's. Those inside of the channel say it even
    after the copy was opened.
    """
    if not _is_there_outside(fs, layout, directory):
        return None
    says = [directory]
    if readable_owner(fs, directory) is None:
        says = [layout.path, *(d for d in layout.directories().values() if _is_inside(fs, layout, d))]
    owners = (readable_owner(fs, d) for d in says)
    own = (o for o in owners if o is not None and o.channel == layout.channel)
    return next((owner.home for owner in own if is_original_elsewhere(fs, owner, layout)), None)


def adoption_fault(fs: FileSystem, layout: Layout, role: str, directory: Path) -> str | None:
    """Return why a channel of a first release does not get a directory when it is opened, or None if it does.

    Its directories have no owner files until then, so of such a channel and its copies the first that is opened has
    those elsewhere. They say so from then on, and no other one gets them.
    The arguments are those of `ownership_fault`.
    """
    try:
        found = read_owner(fs, directory)
    except ForeignDirectoryError:
        return f"its {OWNER_FILE} can't be read"
    if found is None:
        return None
    if is_outside(fs, layout, directory) and is_original_elsewhere(fs, found, layout):
        return f"it belongs to the channel at {found.home}, and this is a copy of that"
    owner = home_owner(fs, layout)
    if owner is None and is_outside(fs, layout, directory):  # an adoption gives the channel's own directory one first
        return f"it is of another state of the channel at {found.home}"
    return ownership_fault(fs, layout, role, directory, found, owner)


def home_owner(fs: FileSystem, layout: Layout) -> DirectoryOwner | None:
    """Return what the owner file of the channel's own directory says, or None if it does not prove that directory."""
    owner = readable_owner(fs, layout.path)
    return owner if ownership_fault(fs, layout, HOME, layout.path, owner, None) is None else None


def _is_inside(fs: FileSystem, layout: Layout, directory: Path) -> bool:
    return fs.exists(directory) and not is_outside(fs, layout, directory)


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
