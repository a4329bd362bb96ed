"""What a channel is, even where its identity file is damaged: every data file says it too."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from spillable_stream.errors import CorruptionError, ForeignDirectoryError, NotAChannelError, StorageError
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed, parse_header, payload_matches
from spillable_stream.format.packing import NONSENSE
from spillable_stream.integrity.findings import Findings
from spillable_stream.log.chain import parsed_header
from spillable_stream.log.directory_ownership import (
    adoption_fault,
    backup_fault,
    claim_fault,
    ownership_fault,
)
from spillable_stream.log.identity_file import layout_of, read_identity
from spillable_stream.log.layout import CHECKPOINT, Layout
from spillable_stream.log.owner_file import BACKUP, HOME, OWNER_FILE, read_owner
from spillable_stream.log.unproven_directories import require_claimable, require_claimed, unowned_directories
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["check_owners", "find_identity", "usual_layout", "why_unclaimed"]

_LARGEST_HEADER_BYTES = 64 << 20


def usual_layout(path: Path) -> Layout:
    """Return where the files of a channel are unless its identity file says otherwise."""
    return Layout(path, "", (path / "data",), path / CHECKPOINT, None)


def find_identity(fs: FileSystem, path: Path, findings: Findings) -> tuple[Layout, bool]:
    """Return where a channel's files are, and whether its identity file has to be written anew.

    Args:
        fs: the file system.
        path: the channel's directory.
        findings: where damage to the identity file is added.

    Raises:
        NotAChannelError: the directory holds no channel.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: the identity file is damaged, and no data file in the usual place says what was in it.
    """
    file = path / "channel.json"
    usual = usual_layout(path)
    try:
        layout = read_identity(fs, path)
    except (CorruptionError, NotAChannelError) as e:
        found_layout = _layout_of_owner(fs, path)
        if found_layout is None:
            found = _channel_of_files(fs, usual)
            if found is None:
                raise
            found_layout = Layout(path, found, usual.data_dirs, usual.checkpoint_dir, None)
        what = "is missing" if isinstance(e, NotAChannelError) else "can't be read"
        findings.damage(file, f"the channel's identity {what}; its other files say it too")
        return found_layout, True
    if _says(fs, layout, layout.channel):
        return layout, False
    found = _channel_of_files(fs, layout)
    if found is not None:
        findings.damage(file, f"the channel's identity is damaged: its data files belong to the channel {found}")
        return replace(layout, channel=found, owned=True), True
    if not layout.log_files(fs) and (found := _channel_of_files(fs, usual)) is not None:
        findings.damage(file, f"the channel's identity is damaged: it has no data files there, but in {path / 'data'}")
        return replace(layout, channel=found, data_dirs=usual.data_dirs, owned=True), True
    return layout, False


def _layout_of_owner(fs: FileSystem, path: Path) -> Layout | None:
    """Return the layout that the owner file of a channel's directory tells, or None."""
    try:
        owner = read_owner(fs, path)
        return layout_of(path, owner.layout) if owner is not None and owner.layout is not None else None
    except (ForeignDirectoryError, StorageError, *NONSENSE):
        return None


def check_owners(fs: FileSystem, layout: Layout, findings: Findings, claimed: Collection[Path] = ()) -> bool:
    """Add the directories to the findings that are not proven to be the channel's, and tell whether there are any.

    Channels of the first releases have no owner files until they are opened: their directories have to be there.

    Args:
        fs: the file system.
        layout: the channel's files.
        findings: where they are added.
        claimed: the directories that a repair gives to the channel by somebody's word. One for copies of checkpoints
            that has no owner file is left alone unless it is one of them.
    """
    if not layout.owned:
        return _check_directories(fs, layout, findings)
    before, owner = len(findings.all()), None
    for role, directory in {HOME: layout.path, **layout.directories()}.items():
        try:
            found = read_owner(fs, directory)
        except ForeignDirectoryError:
            findings.damage(directory / OWNER_FILE, _unproven(directory, f"its {OWNER_FILE} can't be read"))
            continue
        owner = found if role == HOME else owner
        if found is None and role == CHECKPOINT and directory.is_relative_to(layout.path):
            continue  # the next open makes it
        if (fault := ownership_fault(fs, layout, role, directory, found, owner)) is not None:
            why = ". Its disk may not be mounted" if found is None and role != HOME else ""
            findings.damage(directory / OWNER_FILE, _unproven(directory, fault) + why)
    if (backup := layout.backup_checkpoint_dir) is not None:
        with contextlib.suppress(StorageError):  # nothing depends on that directory
            if backup in claimed or fs.exists(backup / OWNER_FILE):
                _check_owner_of_backup(fs, layout, backup, findings)
    return len(findings.all()) > before


def _check_directories(fs: FileSystem, layout: Layout, findings: Findings) -> bool:
    """Add the directories with which no open gives owner files to any, and tell whether there are some.

    They are missing, or a copy of the channel has them.
    """
    before = len(findings.all())
    for role, directory in layout.directories().items():
        if (fault := adoption_fault(fs, layout, role, directory)) is not None:
            findings.damage(directory / OWNER_FILE, _unproven(directory, fault))
    missing = [directory for directory in unowned_directories(fs, layout) if not fs.exists(directory)]
    for directory in missing:
        findings.damage(directory, _unproven(directory, "it is missing") + ". Its disk may not be mounted")
    return len(findings.all()) > before


def _check_owner_of_backup(fs: FileSystem, layout: Layout, backup: Path, findings: Findings) -> None:
    """Add the backup directory if it is not proven to be the channel's, and a repair may give it to the channel."""
    fault = backup_fault(fs, layout, backup)
    if fault is not None and claim_fault(fs, layout, BACKUP, backup) is None:
        findings.warn(backup / OWNER_FILE, _unproven(backup, fault))


def _unproven(directory: Path, fault: str) -> str:
    return f"{directory} is not proven to be this channel's: {fault}"


def why_unclaimed(fs: FileSystem, layout: Layout, unowned: Collection[Path]) -> str:
    """Return which directory a repair gives to the channel only by somebody's word, or not at all; "" if there is none.

    Args:
        fs: the file system.
        layout: the channel's files.
        unowned: what `unowned_directories` says.
    """
    try:
        require_claimable(fs, layout)
        require_claimed(fs, layout, unowned, ())
    except ForeignDirectoryError as e:
        return str(e)
    return ""


def _says(fs: FileSystem, layout: Layout, channel: str) -> bool:
    """Tell whether some data file is of a channel."""
    return any(_owner(fs, layout, i) == channel for i in reversed(layout.log_files(fs)))


def _channel_of_files(fs: FileSystem, layout: Layout) -> str | None:
    """Return the UUID that the newest data file with a whole header says, or None."""
    owners = (_owner(fs, layout, i) for i in reversed(layout.log_files(fs)))
    return next((owner for owner in owners if owner is not None), None)


def _owner(fs: FileSystem, layout: Layout, file_id: int) -> str | None:
    """Return the UUID in a data file's header, which its own checksum proves, or None."""
    file = fs.open(layout.log_file(file_id), readonly=True)
    try:
        data = file.read(0, HEADER_SIZE_BYTES)
        length = int.from_bytes(data[4:8], "little")
        payload = file.read(HEADER_SIZE_BYTES, min(length, _LARGEST_HEADER_BYTES))
    finally:
        file.close()
    record = parsed_header(payload)
    if record is None or not isinstance(record.channel, str):
        return None
    header = parse_header(data, 0, file_seed(record.channel, log_name(file_id)))
    if header is None or header.type != FrameType.FILE_HEADER or not payload_matches(header, payload):
        return None
    return record.channel
