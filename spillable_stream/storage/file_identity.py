"""What tells a file from its copies, asked for without its times.

Since Linux 6.13 a file whose times were asked for gets a new one at its next write, and the change of its inode goes
through the file system's journal. A log file that is looked at before every append pays that every time: a durable put
took an eighth longer. `os.stat` asks for everything, so this asks ``statx`` itself, where the C library has it, and
`os.stat` only for what went wrong.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

__all__ = ["FileIdentity", "RawIdentity", "identity_of", "raw_identity_in", "raw_identity_of"]

_AT_FDCWD = -100
_STATX_INO = 0x100
_SIZE_BYTES = 256
_RAW_IDENTITY = struct.Struct("<32xQ96xII")  # stx_ino at 32, stx_dev_major and stx_dev_minor at 136

RawIdentity: TypeAlias = tuple[int, int, int]
"""A `FileIdentity` as the kernel says it, for a caller that only compares: the inode, and two numbers of its device."""


class FileIdentity(NamedTuple):
    """What tells a file or directory from its copies, as long as it exists and its file system stays mounted.

    Args:
        device: the number of its file system, another one after each mount.
        inode: its number there, which may be used again once it was removed.
    """

    device: int
    inode: int


def _by_statx() -> Callable[[bytes], RawIdentity] | None:
    """Return what asks ``statx``, or None where there is none."""
    try:
        statx = ctypes.CDLL(None).statx  # its arguments' types are not declared: each call would convert them
    except (AttributeError, OSError, TypeError):
        return None
    buffer = ctypes.c_char * _SIZE_BYTES

    def raw_identity(path: bytes) -> RawIdentity:
        found = buffer()
        if statx(_AT_FDCWD, path, 0, _STATX_INO, found):
            return _by_stat(path)
        said: RawIdentity = _RAW_IDENTITY.unpack_from(found)
        return said

    try:
        return (
            raw_identity if raw_identity(b"/") == _by_stat(b"/") else None
        )  # an old kernel, or a filter of system calls
    except OSError:
        return None


def raw_identity_in(found: os.stat_result) -> RawIdentity:
    """Return the identity of a file that was looked at."""
    return found.st_ino, os.major(found.st_dev), os.minor(found.st_dev)


def _by_stat(path: bytes) -> RawIdentity:
    return raw_identity_in(os.stat(path))


raw_identity_of: Callable[[bytes], RawIdentity] = _by_statx() or _by_stat
"""Return the identity of what a path leads to, as the kernel says it.

Raises:
    OSError: it leads nowhere, or the file system refused.
"""


def identity_of(path: bytes) -> FileIdentity:
    """Return the identity of what a path leads to; raises what `raw_identity_of` raises."""
    inode, major, minor = raw_identity_of(path)
    return FileIdentity(os.makedev(major, minor), inode)
