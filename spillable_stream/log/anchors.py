"""What the handles of a channel share: the inodes of its locks and its head, and the token of its last recovery.

The first to open the channel leaves the record in ``open.lock``::

     0        4            12       20       28         36       40
    ┌────────┬────────────┬────────┬────────┬──────────┬────────┐
    │ "SPA2" │ open.lock  │ lock   │ head   │ recovery │ CRC32C │   inodes, u64, and 8 random bytes
    └────────┴────────────┴────────┴────────┴──────────┴────────┘

A file that was put in place of one of these would share nothing with the handles that have the old one open: two
would have the lock at once, or publish in two heads. The record counts only while somebody holds the channel, and so
no inode in it can be used again. Where it could not be written there is none, and what is there is believed. Version
0.1.0 writes "SPA1", and no token.

The token tells copies of a channel apart, however they were made: each gets one of its own when it is first opened. The
first append after that records it (`ChannelState.recoveries`), by whichever handle. So all handles of a recovery say
the same token, or none: a record that could not be replaced is removed.
"""

from __future__ import annotations

import contextlib
import os
import struct

import google_crc32c

from spillable_stream.errors import StorageError
from spillable_stream.storage.file import File

__all__ = ["are_anchored", "recovery_token", "write_anchors"]

_INODES = struct.Struct("<QQQ")
_TOKEN_BYTES = 8
_MAGIC, _FORMER_MAGIC = b"SPA2", b"SPA1"
_SIZES = {_MAGIC: len(_MAGIC) + _INODES.size + _TOKEN_BYTES, _FORMER_MAGIC: len(_FORMER_MAGIC) + _INODES.size}
_CRC = struct.Struct("<I")


def write_anchors(open_lock: File, lock: File, head: File) -> str:
    """Record which files these are, with a new token; the caller holds the channel alone, and recovers it.

    Returns:
        The token; "" if that of an earlier recovery is still there, where other handles read it.
    """
    token = os.urandom(_TOKEN_BYTES)
    record = _MAGIC + _inodes(open_lock, lock, head) + token
    try:
        open_lock.store(0, record + _CRC.pack(google_crc32c.value(record)))
    except StorageError:
        try:
            open_lock.truncate(0)
        except StorageError:
            return ""
    return token.hex()


def are_anchored(open_lock: File, lock: File, head: File) -> bool:
    """Tell whether these are the files that were recorded, or none were."""
    found = _read(open_lock)
    return found is None or found.startswith(_inodes(open_lock, lock, head))


def recovery_token(open_lock: File) -> str:
    """Return the token of the channel's last recovery; "" if there is none, or it can't be read: nothing needs it."""
    with contextlib.suppress(StorageError):
        if (found := _read(open_lock)) is not None:
            return found[_INODES.size :].hex()
    return ""


def _read(open_lock: File) -> bytes | None:
    """Return the inodes of the record, and its token if it has one; None if there is no record, or it is damaged."""
    data = open_lock.load(_SIZES[_MAGIC] + _CRC.size)
    size = _SIZES.get(data[: len(_MAGIC)], len(data))
    record, crc = data[:size], data[size : size + _CRC.size]
    return record[len(_MAGIC) :] if crc == _CRC.pack(google_crc32c.value(record)) else None


def _inodes(*files: File) -> bytes:
    return _INODES.pack(*(file.identity().inode for file in files))
