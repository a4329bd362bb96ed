"""Tells whether somebody owns a group.

A group's owner holds its lock file. The only way to ask the kernel whether somebody does is to share the lock for a
moment. A consumer that comes just then waits that moment out (`FileLock.acquire_alone`), and is not refused for it.
"""

from __future__ import annotations

from typing import NamedTuple

from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["OwnerSeen", "has_owner", "look_for_owner"]


class OwnerSeen(NamedTuple):
    """What a look at a group's lock file found.

    Args:
        is_alive: whether somebody owns the group now.
        note: what the last owner wrote about itself (`Consumer.owner`); "" if nobody has owned the group.
    """

    is_alive: bool
    note: str


def look_for_owner(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
    """Look who owns a group.

    Args:
        fs: the file system.
        layout: the channel's files.
        group: the group's name.

    Raises:
        StorageError: the lock file can't be read.
    """
    if not is_name(group):  # an old log's: it has no lock
        return OwnerSeen(is_alive=False, note="")
    try:
        lock = FileLock(fs.open(layout.group_lock(group), readonly=True))
    except FileNotFoundError:
        return OwnerSeen(is_alive=False, note="")
    try:
        note = lock.read_holder()  # first: an owner that comes in between is seen now, or by its note the next time
        return OwnerSeen(not lock.is_free_within(0), note)
    finally:
        lock.close()


def has_owner(fs: FileSystem, layout: Layout, group: str) -> bool:
    """Tell whether a live process owns a group; the arguments are those of `look_for_owner`, which raises the same."""
    return look_for_owner(fs, layout, group).is_alive
