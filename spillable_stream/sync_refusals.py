"""When a sync is refused though no write failed: another one owns the directory, or its file system syncs nothing."""

from __future__ import annotations

import errno

__all__ = ["is_not_ours"]

_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}


def is_not_ours(error: BaseException | None) -> bool:
    """Tell whether this process may not sync, or can't on this file system.

    Args:
        error: what the system refused with, or None.
    """
    return isinstance(error, OSError) and error.errno in _NOT_OURS
