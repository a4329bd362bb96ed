"""Owner files: what a directory says of the channel that it belongs to.

Every directory of a channel has one, `owner.json`::

    {"channel":  the channel's UUID,
     "role":     "home", "data-0", …, "checkpoint", "backup" or "memory",
     "token":    random; the same in all directories of a channel, but the memory tier's,
     "next":     the token that a move cut short was about to write; "" but then,
     "home":     where the channel's directory was when this was written,
     "inode":    and its inode there,
     "layout":   in the channel's directory what `channel.json` says of the other ones, else null,
     "checksum": the CRC32C of all that}

A path, an inode or a missing file proves nothing alone: paths are renamed and copied, inodes used again,
disks not mounted. A directory is a channel's if its owner file says so, and if no other directory of the
same channel has a better claim to it (`spillable_stream.log.directories`). The file is also the
directory's lock: every handle that may write shares it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c

from spillable_stream.errors import ForeignDirectoryError
from spillable_stream.format.file_names import OWNER_FILE
from spillable_stream.format.packing import NONSENSE
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.log.identity_file import ChannelIdentity

__all__ = ["BACKUP", "HOME", "OWNER_FILE", "DirectoryOwner", "parse_owner", "read_owner", "write_owner"]

HOME = "home"
BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class DirectoryOwner:
    """What an owner file says; the module's head explains the fields."""

    channel: str
    role: str
    token: str
    home: str
    inode: int
    next: str = ""
    layout: ChannelIdentity | None = None

    def tokens(self) -> set[str]:
        """Return the tokens by which other directories of the channel are known."""
        return {self.token, self.next} - {""}

    def of(self, role: str) -> DirectoryOwner:
        """Return what another directory of the same channel says: the layout and a move are the channel's own's."""
        return replace(self, role=role, next="", layout=None)

    def _bytes(self) -> bytes:
        value = asdict(self)
        return json.dumps({**value, "checksum": _checksum(value)}, indent=1, sort_keys=True).encode() + b"\n"


def read_owner(fs: FileSystem, directory: Path) -> DirectoryOwner | None:
    """Return what a directory's owner file says, or None if it has none.

    Raises:
        ForeignDirectoryError: the file is damaged.
        StorageError: it can't be read.
    """
    try:
        return parse_owner(directory, fs.read_file(directory / OWNER_FILE))
    except FileNotFoundError:
        return None


def parse_owner(directory: Path, data: bytes) -> DirectoryOwner:
    """Return what the contents of a directory's owner file say.

    Raises:
        ForeignDirectoryError: they are damaged.
    """
    try:
        value = json.loads(data)
        checksum = value.pop("checksum")
        if checksum != _checksum(value):
            raise ValueError("its checksum is wrong")
        return DirectoryOwner(**value)
    except NONSENSE as e:
        raise ForeignDirectoryError(
            f"{directory / OWNER_FILE}, which says whose directory that is, can't be read ({e}); restore it, or run "
            "'spillable repair' with the path of the channel whose directory it is"
        ) from e


def write_owner(fs: FileSystem, directory: Path, owner: DirectoryOwner) -> None:
    """Put an owner file in place of the last one, durably; a lock on that stays behind with it."""
    fs.write_atomically(directory / OWNER_FILE, owner._bytes())


def _checksum(value: Mapping[str, object]) -> int:
    return int(google_crc32c.value(json.dumps(value, sort_keys=True).encode()))
