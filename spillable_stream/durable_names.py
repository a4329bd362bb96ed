"""The names of directories: whether one is there, and which of them a process syncs so that a path survives a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from spillable_stream.errors import StorageError

__all__ = ["is_not_ours", "is_there", "sync_directory", "sync_names"]

_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}


def is_not_ours(error: BaseException | None) -> bool:
    """Tell whether a sync is refused though no write failed: it is another one's directory, or nothing is synced there.

    Args:
        error: what the system refused with, or None.
    """
    return isinstance(error, OSError) and error.errno in _NOT_OURS


def is_there(path: str | Path) -> bool:
    """Tell whether a path leads to something.

    Raises:
        OSError: the system can't tell; `os.path.exists`, and since Python 3.14 `Path.exists`, would say no.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


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
