"""The directories of a channel that nothing proves to be its own: a repair gives it those that somebody names.

The disk of such a directory may not be mounted, and the directory may be its mount point, or hold an older state of the
channel. What this module says about one is said to whoever opens, verifies or repairs the channel, and names a command
that does what it says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

from spillable_stream.errors import ForeignDirectoryError, StorageError
from spillable_stream.log.directory_ownership import (
    claim_fault,
    home_owner,
    is_outside,
    original_of,
    readable_owner,
)
from spillable_stream.log.layout import CHECKPOINT, Layout
from spillable_stream.log.owner_file import BACKUP, OWNER_FILE, DirectoryOwner
from spillable_stream.shown_value import command
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "claim_advice",
    "repair_advice",
    "require_claimable",
    "require_claimed",
    "unowned_directories",
]


def unowned_directories(fs: FileSystem, layout: Layout, *, files_missing: bool = False) -> tuple[Path, ...]:
    """Return the channel's directories that a repair may give to it only if somebody names them.

    Each has no owner file, or one that does not prove that it is of the newest state of the channel, as a mount point
    has that was claimed once: its disk may not be mounted. Not among them are the channel's own directory, since
    ``channel.json`` is in it; one for checkpoints in there, which the next open makes; and one for copies of
    checkpoints that is missing or of another state, since nothing depends on it.

    Args:
        fs: the file system.
        layout: the channel's files.
        files_missing: whether data files are missing. A directory of a channel of the first releases, which has no
            owner files, may be empty unless they are.
    """
    found, owner = [], home_owner(fs, layout)
    for role, directory in layout.directories().items():
        if fs.exists(directory / OWNER_FILE):
            is_unowned = not _is_of_newest_state(fs, layout, role, directory, owner)
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


def _is_of_newest_state(
    fs: FileSystem, layout: Layout, role: str, directory: Path, owner: DirectoryOwner | None
) -> bool:
    """Tell whether a directory with an owner file may be taken for one of the state that the channel is in.

    One elsewhere has to have a token that the channel's own directory knows. One inside comes along with that, and has
    another token only if it was exchanged: its disk, or what is below the mount point.

    Args:
        fs: the file system.
        layout: the channel's files.
        role: what the directory is to the channel.
        directory: the directory.
        owner: what `home_owner` says.
    """
    found = readable_owner(fs, directory)
    is_known = owner is not None and found is not None and found.token in owner.tokens()
    if is_known or is_outside(fs, layout, directory):
        return is_known
    return role == CHECKPOINT or owner is None or found is None


def require_claimable(fs: FileSystem, layout: Layout, claimed: Collection[Path] = ()) -> None:
    """Prove that a repair may give the channel its directories, if somebody names those that nothing proves.

    Args:
        fs: the file system.
        layout: the channel's files.
        claimed: the directories that somebody has named. That for copies of checkpoints is looked at only if it is one.

    Raises:
        ForeignDirectoryError: one is another channel's, or that of the original of this copy, which is there.
    """
    directories, backup = layout.directories(), layout.backup_checkpoint_dir
    if backup in claimed and backup is not None:
        directories = {**directories, BACKUP: backup}
    for role, directory in directories.items():
        if (fault := claim_fault(fs, layout, role, directory)) is not None:
            advice = _advice_of_fault(fs, layout, directory)
            raise ForeignDirectoryError(f"{directory} can't be given to the channel {layout.path}: {fault}. {advice}")


def require_claimed(fs: FileSystem, layout: Layout, unowned: Collection[Path], claimed: Collection[Path]) -> None:
    """Prove that somebody has named every directory that a repair gives to the channel only by somebody's word.

    Args:
        fs: the file system.
        layout: the channel's files.
        unowned: what `unowned_directories` says.
        claimed: the directories that somebody has named.

    Raises:
        ForeignDirectoryError: nobody has; the disks of those that it names may not be mounted.
    """
    backup = layout.backup_checkpoint_dir
    unnamed = [directory for directory in unowned if directory not in claimed and directory != backup]
    if unnamed:
        if len(unnamed) == 1:
            said = f"{unnamed[0]}, a directory of the channel {layout.path}, {_fact(fs, layout, unnamed[0])}"
        else:
            facts = "; ".join(f"{directory} {_fact(fs, layout, directory)}" for directory in unnamed)
            said = f"directories of the channel {layout.path} are not proven to be its own: {facts}"
        named = [directory for directory in unowned if directory in claimed]
        raise ForeignDirectoryError(f"{said}. {claim_advice(fs, layout, unnamed, named)}")


def claim_advice(fs: FileSystem, layout: Layout, unnamed: Sequence[Path], named: Sequence[Path] = ()) -> str:
    """Return what to do about directories that a repair gives to the channel only if somebody names them.

    Args:
        fs: the file system.
        layout: the channel's files.
        unnamed: the directories.
        named: those that somebody has named already.
    """
    without = [directory for directory in unnamed if not fs.exists(directory / OWNER_FILE)]
    is_one, is_other = len(unnamed) == 1, len(without) < len(unnamed)
    hints = [_newer_state(fs, layout, unnamed)] if is_other else []
    if without:
        hints.insert(
            0, f"{'Its disk' if is_one else 'Some disks'} may not be mounted: mount {'it' if is_one else 'them'}"
        )
    condition = "If this is the one to continue with" if is_other else "If it is mounted, or lost for good"
    what = "the directory as it is"
    if not is_one:
        condition, what = "If they are the ones to continue with", "the directories as they are"
    claims = [word for directory in [*named, *unnamed] for word in ("--claim", directory)]
    return f"{'. '.join(hints)}. {condition}, '{command('repair', layout.path, *claims)}' gives the channel {what}"


def _newer_state(fs: FileSystem, layout: Layout, unnamed: Sequence[Path]) -> str:
    newer = "A newer state of some"
    if len(unnamed) == 1:  # what is said before is about that one, or about the channel's own
        newer = "The newer one" if home_owner(fs, layout) is not None else f"A newer state of {unnamed[0]}"
    return f"{newer} may be on a disk that is not mounted: mount it; or the channel was restored from a backup"


def repair_advice(fs: FileSystem, layout: Layout) -> str:
    """Return what to do about a channel that is refused for its directories; no handle has it open."""
    for role, directory in layout.directories().items():
        if claim_fault(fs, layout, role, directory) is not None:
            return _advice_of_fault(fs, layout, directory)
    backup = layout.backup_checkpoint_dir
    unowned = [directory for directory in unowned_directories(fs, layout) if directory != backup]
    if unowned:
        return claim_advice(fs, layout, unowned)
    return f"Is its disk mounted? If so, run '{command('repair', layout.path)}' to let this channel have it"


def _advice_of_fault(fs: FileSystem, layout: Layout, directory: Path) -> str:
    """Return what to do about a directory that no repair gives to the channel."""
    if (original := original_of(fs, layout, directory)) is not None:
        backup = command("backup", original, "DIR")
        return (
            f"A copy with directories of its own is made by '{backup}' and 'spillable restore DIR PATH "
            f"--new-identity'. If {layout.path} is to take the place of the original, move {original} away"
        )
    return f"Mount the disk that belongs there; or remove {directory / OWNER_FILE} if that channel is gone"


def _fact(fs: FileSystem, layout: Layout, directory: Path) -> str:
    """Return why nothing proves that a directory is of the newest state of the channel."""
    if not fs.exists(directory / OWNER_FILE):
        return f"has no {OWNER_FILE}" if fs.exists(directory) else "is missing"
    if readable_owner(fs, directory) is None:
        return f"has an {OWNER_FILE} that can't be read"
    if home_owner(fs, layout) is None:
        return f"may be of an older state: {layout.path / OWNER_FILE}, which tells, is missing or can't be read"
    return "is of an older or another state of it"
