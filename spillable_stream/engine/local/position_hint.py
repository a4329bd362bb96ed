"""How far a group is, in a small file of its own, for the day the memory tier is lost.

A take of events that are in memory is recorded in memory, so the loss of the memory tier loses the
record too. This file, written without a sync after such a take, says then what had been taken, so
that only what is really lost is reported lost. It is a sealed note of msgpack ``[position, [[first, last], …]]``,
seeded by channel and group.

It may be behind, never ahead. It is a hint: everything but that report holds without it. Whoever commits
a take of the group writes it, its owner or who finishes takes for that, before the commit lock is given
up: so what is older never overwrites what is newer.
"""

from __future__ import annotations

import contextlib

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.frame import file_seed
from spillable_stream.format.packing import NONSENSE, pack, unpack
from spillable_stream.format.sealed_note import seal, unseal
from spillable_stream.format.take_record import GroupTaken
from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lru import LruCache

__all__ = ["NO_HINT", "PositionHint", "parse_position_hint", "read_position_hint"]

NO_HINT: GroupTaken = (0, [])
"""What a file says that says nothing: of no event is it known that it was taken."""


class PositionHint:
    """The file of one group.

    Args:
        fs: the file system.
        layout: the channel's files.
        group: the group's name.
        files: the files of a handle's groups that were written last: of how many groups it takes, few are kept open.
    """

    def __init__(self, fs: FileSystem, layout: Layout, group: str, files: LruCache[File] | None = None) -> None:
        self._fs = fs
        self._group = group
        self._path = layout.group_position(group)
        self._seed = _seed(layout, group)
        self._files: LruCache[File] = LruCache(1) if files is None else files

    def keep(self, state: ChannelState) -> None:
        """Record what the group has taken, where there is a memory tier to lose; the commit lock is held.

        The takes are committed whether it can be written or not.
        """
        group = state.groups.get(self._group)
        if group is not None:
            with contextlib.suppress(StorageError):
                self.write(group)

    def write(self, group: GroupState) -> None:
        """Write what the group has taken."""
        file = self._files.get(self._group, self._open)
        value = pack(group.taken())
        file.write(0, [seal(value, self._seed)])

    def _open(self) -> File:
        return self._fs.open(self._path, create=True)

    def forget(self) -> None:
        """Remove the file: the group begins anew, or is no more."""
        self.close()
        self._fs.remove(self._path)
        self._fs.sync_directory(self._path.parent)

    def close(self) -> None:
        """Let go of the file, which closes it."""
        self._files.forget(self._group)


def read_position_hint(fs: FileSystem, layout: Layout, group: str) -> GroupTaken:
    """Return what a group's file says; `NO_HINT` if it says nothing."""
    if not is_name(group):  # an old log's: it has no file
        return NO_HINT
    try:
        data = fs.read_file(layout.group_position(group))
    except (FileNotFoundError, StorageError):
        return NO_HINT
    return parse_position_hint(layout, group, data) or NO_HINT


def parse_position_hint(layout: Layout, group: str, data: bytes) -> GroupTaken | None:
    """Return what the bytes of a group's file say, or None if they are damaged.

    What is whole and invalid, another program wrote: nothing is damaged then, and the answer is `NO_HINT`.
    """
    value = unseal(data, _seed(layout, group))
    if value is None:
        return None
    try:
        position, ahead = unpack(value)
        return int(position), [(int(a), int(b)) for a, b in ahead]
    except (CorruptionError, *NONSENSE):
        return NO_HINT


def _seed(layout: Layout, group: str) -> int:
    return file_seed(layout.channel, f"group/{group}")
