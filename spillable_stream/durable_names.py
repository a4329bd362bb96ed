"""Making the names of directories durable: which ones a process syncs so that a path survives a power cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.sync_refusals import is_not_ours

__all__ = ["sync_directory", "sync_names"]


def sync_directory(path: Path) -> None:
    """Return once a directory's entries are on the medium; raises OSError."""
    opened: list[int] = []
    closing = map(os.close, opened)
    try:
        # Opened and noted in one call, which is C's: an interrupt between the two would leave it open.
        opened.extend(map(os.open, (path,), (os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,)))
        os.fsync(opened[0])
    finally:
        next(closing, None)


def sync_names(path: Path, sync: Callable[[Path], None], is_durable: Callable[[Path], bool]) -> None:
    """Make the names of a directory and of those above it durable, whoever created them, and maybe was killed then.

    The walk ends at a mount point, or below a directory that this process may not or can't sync: that is somebody
    else's.

    Args:
        path: the directory, without symbolic links.
        sync: syncs one; it raises a `StorageError` of an OSError.
        is_durable: whether the names of a directory and of those above it are known to be durable.

    Raises:
        StorageError: the disk refused.
    """
    for directory in (path, *path.parents):
        if is_durable(directory):
            return
        try:
            sync(directory.parent)
        except StorageError as e:
            if is_not_ours(e.__cause__):
                return
            raise
        if os.path.ismount(directory.parent):
            return
