"""What a channel is: its identity file, a JSON map with a checksum.

It holds the format version, the channel's UUID, and where its directories are, those inside of the channel relative
to it, so that the channel can be moved.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NotRequired, TypedDict

import google_crc32c

from spillable_stream.errors import (
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    StorageError,
    UnsupportedFormatError,
)
from spillable_stream.format import file_names
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.record import EXTENDED_FORMAT_VERSION, FORMAT_VERSION
from spillable_stream.format.slot import OBJECT_FORMAT_VERSION
from spillable_stream.log.layout import IDENTITY, Layout
from spillable_stream.log.owner_file import HOME, read_owner
from spillable_stream.option_types import CreationOptions
from spillable_stream.shown_value import command
from spillable_stream.storage.access import PRIVATE_MODE
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "ChannelIdentity",
    "backup_at",
    "extend_identity",
    "has_identity",
    "identity_checksum",
    "identity_of",
    "layout_of",
    "of_a_backup",
    "planned_layout",
    "proven_channel",
    "read_identity",
    "remove_unfinished_identity",
    "require_directory",
    "what_else_is_at",
    "write_identity",
]


_MOST_LOOKS = 10


class ChannelIdentity(TypedDict):
    """What an identity file says, but for its checksum.

    The keys: the format version, the channel's UUID, its directories, their permissions if they are not private, and
    whether every directory has an owner file, as those of the first releases have none.
    """

    format: int
    channel: str
    dataDirs: list[str]
    checkpointDir: str
    backupCheckpointDir: str | None
    mode: NotRequired[str]
    owned: NotRequired[bool]


def has_identity(fs: FileSystem, path: Path) -> bool:
    """Tell whether the directory holds a channel."""
    return fs.exists(path / IDENTITY)


def require_directory(fs: FileSystem, path: Path) -> None:
    """Refuse a path that leads to a file, or at which no directory can be.

    Raises:
        NotAChannelError: it is such a path.
    """
    if fs.is_file(path):
        raise NotAChannelError(
            f"{path} is not a channel: it is a file, and a channel is a directory; give the directory"
        )
    if why := fs.why_impossible(path / IDENTITY):
        raise NotAChannelError(f"{path} is not a channel: {why}; give the path of a directory")


def planned_layout(path: Path, options: CreationOptions) -> Layout:
    """Return the layout that a new channel with these options has; nothing is written."""
    data = tuple(Path(d).absolute() for d in options.data_dirs or ()) or (path / "data",)
    checkpoint = options.checkpoint_dir
    backup = options.backup_checkpoint_dir
    return Layout(
        path,
        str(uuid.uuid4()),
        data,
        Path(checkpoint).absolute() if checkpoint else path / "checkpoint",
        Path(backup).absolute() if backup else None,
        mode=int(options.mode, 8),
    )


def write_identity(fs: FileSystem, layout: Layout, *, extended: bool = False) -> None:
    """Write the identity file; from then on the directory is a channel.

    Args:
        fs: the file system.
        layout: what it says.
        extended: whether the channel has records that earlier versions can't read, whatever the layout says.

    Raises:
        StorageError: the file system refused; what the file says now may not outlive a power cut.
    """
    said = identity_of(replace(layout, format=EXTENDED_FORMAT_VERSION) if extended else layout)
    value = {**said, "checksum": identity_checksum(said)}
    fs.write_atomically(layout.path / IDENTITY, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def extend_identity(fs: FileSystem, layout: Layout) -> None:
    """Record durably that the channel has records from now on that earlier versions of this package can't read.

    They refuse to open it then. The caller holds the commit lock.

    Raises:
        StorageError: the file system refused; what the file says now may not outlive a power cut.
    """
    found = read_identity(fs, layout.path)
    if found.format < EXTENDED_FORMAT_VERSION:
        write_identity(fs, found, extended=True)
    else:  # its writer may have failed, or been killed, before its name was durable
        fs.sync_directory(layout.path)


def remove_unfinished_identity(fs: FileSystem, layout: Layout) -> None:
    """Remove what a crash in the middle of `extend_identity` left; the caller recovers the channel."""
    fs.remove(layout.path / f"{IDENTITY}.tmp")


def identity_of(layout: Layout) -> ChannelIdentity:
    """Return what the identity file says."""
    value: ChannelIdentity = {
        "format": layout.format,
        "channel": layout.channel,
        "dataDirs": [_relative(layout, d) for d in layout.data_dirs],
        "checkpointDir": _relative(layout, layout.checkpoint_dir),
        "backupCheckpointDir": _relative(layout, layout.backup_checkpoint_dir)
        if layout.backup_checkpoint_dir
        else None,
    }
    if layout.mode != PRIVATE_MODE:
        value["mode"] = f"{layout.mode:04o}"
    if layout.owned:
        value["owned"] = True
    return value


def layout_of(path: Path, identity: ChannelIdentity) -> Layout:
    """Return the layout that `identity_of` made such a map of, for the directory at ``path``.

    One that was read is proven here: what is not an identity raises one of `NONSENSE`.
    """
    return Layout(
        path,
        str(uuid.UUID(identity["channel"])),
        tuple(path / d for d in identity["dataDirs"]),
        path / identity["checkpointDir"],
        path / identity["backupCheckpointDir"] if identity["backupCheckpointDir"] else None,
        bool(identity.get("owned", False)),
        int(identity.get("mode", f"{PRIVATE_MODE:o}"), 8),
        identity.get("format", FORMAT_VERSION),
    )


def _relative(layout: Layout, path: Path) -> str:
    """Return a path inside the channel relative to it, so that the directory can be moved."""
    return str(path.relative_to(layout.path)) if path.is_relative_to(layout.path) else str(path)


def read_identity(fs: FileSystem, path: Path) -> Layout:
    """Return the layout of an existing channel.

    Raises:
        NotAChannelError: the directory holds none.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: the identity file can't be read.
    """
    file = path / IDENTITY
    require_directory(fs, path)
    try:
        value = json.loads(fs.read_file(file))
        if value.get("checksum", checksum := identity_checksum(value)) != checksum:
            raise ValueError("its checksum does not match; if you changed it by hand, remove the checksum")
        version = int(value["format"])
        if version <= FORMAT_VERSION or (version == EXTENDED_FORMAT_VERSION and "dataDirs" in value):
            return layout_of(path, value)
    except FileNotFoundError:
        what = "is missing" if not fs.exists(path) else f"has no {IDENTITY}"
        if of_a_channel := _of_a_channel(fs, path):
            what += of_a_channel
        elif fs.exists(path / file_names.OWNER_FILE) or any(map(file_names.parse_data_file, fs.list(path / "data"))):
            what += f", but the data of a channel; if that was removed, '{command('repair', path)}' rewrites it"
        elif (above := _channel_above(fs, path)) is not None:
            what += f", and is inside of a channel: give {above}"
        else:
            what += backup_at(fs, path) or _above_a_channel(fs, path)
        raise NotAChannelError(f"{path} is not a channel: it {what}", is_missing=not of_a_channel) from None
    except NONSENSE as e:
        mend = f"'{command('repair', path)}' rewrites it if the other files say it, or restore it from a copy"
        raise CorruptionError(f"the channel's identity can't be read ({e}); {mend}", str(file)) from e
    if version in (OBJECT_FORMAT_VERSION, EXTENDED_FORMAT_VERSION) and "dataDirs" not in value:
        raise NotAChannelError(f"{path} holds a channel of objects, not of files: open it as object+file://{path}")
    raise UnsupportedFormatError(
        f"{path} has format version {version}; this package reads up to {EXTENDED_FORMAT_VERSION}: upgrade "
        "spillable-stream"
    )


def _of_a_channel(fs: FileSystem, path: Path) -> str:
    with contextlib.suppress(ForeignDirectoryError, StorageError):
        owner = read_owner(fs, path)
        if owner is not None and owner.role != HOME:
            # A directory inside of a channel was moved or copied with that, and says where that was before.
            home = _channel_above(fs, path) or Path(owner.home)
            moved = f", or where that is now; remove {path / file_names.OWNER_FILE} if that channel is gone"
            return f", and is a directory of a channel: give {home}{'' if has_identity(fs, home) else moved}"
    return ""


def _channel_above(fs: FileSystem, path: Path) -> Path | None:
    for above in fs.real_path(path).parents:
        with contextlib.suppress(FileNotFoundError, StorageError, *NONSENSE):
            proven_channel(fs.read_file(above / IDENTITY))
            return above
    return None


def _above_a_channel(fs: FileSystem, path: Path) -> str:
    """Return what to say of a directory right above a channel; "" if none of the first directories in it is one."""
    with contextlib.suppress(StorageError):
        for name in fs.list_directories(path)[:_MOST_LOOKS]:
            with contextlib.suppress(FileNotFoundError, StorageError, *NONSENSE):
                proven_channel(fs.read_file(path / name / IDENTITY))
                return f", but is above a channel: give {path / name}, or another one there"
    return ""


def what_else_is_at(fs: FileSystem, path: Path) -> str:
    """Return what to say of a directory that is not a channel but one of a channel, a backup, or above one; else ""."""
    return _of_a_channel(fs, path) or backup_at(fs, path) or _above_a_channel(fs, path)


def backup_at(fs: FileSystem, path: Path) -> str:
    """Return what `of_a_backup` does of a directory; "" of one that is somebody else's, and can't be listed."""
    with contextlib.suppress(StorageError):
        return of_a_backup(path, (file_names.BACKUPS + name for name in fs.list(path / file_names.BACKUPS)))
    return ""


def of_a_backup(where: object, keys: Iterable[str]) -> str:
    """Return what to say of a place that holds no channel but a backup; "" if it holds none.

    Args:
        where: the place, as users write it.
        keys: the files or objects there that may be manifests, from the place on.
    """
    is_backup = any(map(file_names.is_manifest, keys))
    return f", and is a backup: '{command('restore', where, 'PATH')}' creates a channel from it" if is_backup else ""


def proven_channel(data: bytes) -> str:
    """Return the UUID of the channel, on a disk or in a store, whose identity file of any version has these contents.

    What another program wrote, or is damaged, raises one of `NONSENSE`.
    """
    value = json.loads(data)
    if "checksum" not in value:  # of the first channels, or changed by hand
        return layout_of(Path(), value).channel
    if value["checksum"] != identity_checksum(value):
        raise ValueError("its checksum does not match")
    return str(uuid.UUID(value["channel"]))


def identity_checksum(identity: Mapping[str, object]) -> int:
    """Return the CRC32C of an identity; the first channels had none."""
    value = {k: v for k, v in identity.items() if k != "checksum"}
    return int(google_crc32c.value(json.dumps(value, sort_keys=True).encode()))
