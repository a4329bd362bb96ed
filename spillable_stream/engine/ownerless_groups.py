"""Automatic groups without an owner: they hold events back though nobody reads as them.

A group's owner holds its lock file. The only way to ask the kernel whether somebody does is to share the lock for a
moment. A consumer that comes just then waits that moment out (`FileLock.acquire_alone`).
"""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

from spillable_stream.errors import SpillableError
from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["OwnerSeen", "OwnerlessGroup", "look_for_owner", "ownerless_groups"]

_MOST_LOOKS = 100  # each opens a file


class OwnerSeen(NamedTuple):
    """What a look at a group's lock file found.

    Args:
        is_alive: whether somebody owns the group now.
        note: what the last owner wrote about itself (`Consumer.owner`); "" if nobody has owned the group.
    """

    is_alive: bool
    note: str


class OwnerlessGroup(NamedTuple):
    """An automatic group that nobody owns.

    Args:
        name: its name.
        lag: how many events it has yet to take.
    """

    name: str
    lag: int


def look_for_owner(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
    """Tell whether a group has an owner, without getting in the way of one that comes.

    Raises:
        StorageError: the lock file can't be read.
    """
    try:
        lock = FileLock(fs.open(layout.group_lock(group), readonly=True))
    except FileNotFoundError:
        return OwnerSeen(is_alive=False, note="")
    try:
        note = lock.read_holder()  # first: a new owner in between is seen now, or by its note the next time
        return OwnerSeen(not lock.is_free_within(0), note)
    finally:
        lock.close()


def ownerless_groups(fs: FileSystem, layout: Layout, state: ChannelState) -> list[OwnerlessGroup]:
    """Return the automatic groups that nobody owns, those with most to take first.

    Of more than a hundred automatic groups it looks at those with most to take. A group that can't be looked at is
    left out.

    Args:
        fs: the file system.
        layout: the channel's files.
        state: the channel's state.
    """
    automatic = [(state.lag(name), name) for name, g in state.groups.items() if g.is_automatic and is_name(name)]
    return [
        OwnerlessGroup(name, lag) for lag, name in nlargest(_MOST_LOOKS, automatic) if _is_ownerless(fs, layout, name)
    ]


def _is_ownerless(fs: FileSystem, layout: Layout, group: str) -> bool:
    try:
        return not look_for_owner(fs, layout, group).is_alive
    except SpillableError:
        return False
