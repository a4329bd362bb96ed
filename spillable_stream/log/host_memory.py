"""Channels whose events end with the host: they are on a file system in memory, such as ``/dev/shm``."""

from __future__ import annotations

import os
from pathlib import Path

from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["directory_in_memory"]


def directory_in_memory(fs: FileSystem, layout: Layout) -> Path | None:
    """Return the first directory of a channel's events that is on a file system in memory; None if none is.

    One where temporary files are does not count: it is meant to end.
    """
    temporary = fs.real_path(Path(os.environ.get("TMPDIR") or "/tmp"))
    for directory in (layout.path, *layout.data_dirs):
        if fs.is_in_memory(directory) and not fs.real_path(directory).is_relative_to(temporary):
            return directory
    return None
