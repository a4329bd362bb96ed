"""Tells whether somebody owns a group."""

from __future__ import annotations

from spillable_stream.log.layout import Layout
from spillable_stream.names import is_name
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["has_owner"]


def has_owner(fs: FileSystem, layout: Layout, group: str) -> bool:
    """Tell whether a live process owns a group. Whoever wants to own it meanwhile is not refused for this look.

    Args:
        fs: the file system.
        layout: the channel's files.
        group: the group's name.
    """
    if not is_name(group):  # an old log's: it has no lock
        return False
    try:
        lock = FileLock.open(fs, layout.group_lock(group), create=False)
    except FileNotFoundError:
        return False
    try:
        return not lock.is_free_within(0)
    finally:
        lock.close()
