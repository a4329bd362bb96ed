"""What the operating system says by an error, and the error of this package that tells it."""

from __future__ import annotations

import errno

from spillable_stream.errors import DiskSpaceError, StorageError

__all__ = ["FULL_DISK", "may_not_write", "storage_error"]

FULL_DISK = {
    errno.ENOSPC: "make room on its file system",
    errno.EDQUOT: "make room, or raise the quota",
}
"""What to do where the operating system says by its error that a disk is full, or a user's part of it."""


def storage_error(what: str, e: OSError, advice: str) -> StorageError:
    """Return the error for a call that the operating system refused: on a full disk a `DiskSpaceError`.

    Args:
        what: what failed, and on what, as "can't write PATH".
        e: how it refused.
        advice: what to do, unless the disk is full.
    """
    full = FULL_DISK.get(e.errno or 0)
    why = (e.strerror or str(e)).partition("\n")[0].rstrip(" .")  # of Hadoop's client it is a whole trace
    said = f"{what} ({why}); {full or advice}"
    return DiskSpaceError(said) if full else StorageError(said)


def may_not_write(error: StorageError) -> bool:
    """Tell whether the file system refused a call since this process has no right to write there."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
