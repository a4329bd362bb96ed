"""Channels that fill a disk, and what they take of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, DiskSpaceError
from spillable_stream.engine.local import disk_room
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import put, take

MIB = 1 << 20


def used_bytes(path: Path) -> int:
    """Return the disk space that the channel's data files and segments take."""
    return sum(file.stat().st_blocks * 512 for file in (path / "data").iterdir())


def fill(channel: Channel, size_bytes: int = 4 * MIB) -> None:
    """Put so much, 64 KiB at a time."""
    for _ in range(size_bytes // (64 << 10)):
        put(channel, bytes(64 << 10))


def drain(channel: Channel) -> None:
    """Take all there is."""
    while take(channel, 1000):
        pass


class DiskOf64MiB(FileSystem):
    """A file system whose free space is what the data files leave of 64 MiB."""

    def free_bytes(self, path: Path) -> int:
        return 64 * MIB - sum(file.stat().st_blocks * 512 for file in path.iterdir())


def until_refused(channel: Channel) -> None:
    """Put until the disk has no room."""
    with pytest.raises(DiskSpaceError):
        fill(channel, 64 * MIB)


def drain_without_a_word(channel: Channel) -> None:
    """Take all there is, as a process does that is killed before it gives anything back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_room.DiskRoom, "_give_back", lambda *_: None)
        drain(channel)


def refuse_once(patch: pytest.MonkeyPatch, channel: Channel, of: str) -> list[str]:
    """Let the disk have no room for the first staged file; return what happens: "refused", and "room" that is made.

    Args:
        patch: undoes it.
        channel: whose engine makes room.
        of: which method of the file's writer meets it.
    """
    real, calls = getattr(StagedFileWriter, of), list[str]()

    def refuse(self: StagedFileWriter, *arguments: Any, **named: Any) -> None:
        if not calls:
            calls.append("refused")
            raise DiskSpaceError("full")
        real(self, *arguments, **named)

    patch.setattr(StagedFileWriter, of, refuse)
    patch.setattr(channel.engine(), "make_room", lambda: calls.append("room"))
    return calls
