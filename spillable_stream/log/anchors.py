"""Which files the handles of a channel share: the inodes of its locks and its head, recorded in ``open.lock``.

The first to open the channel leaves the record::

     0        4            12       20       28       32
    ┌────────┬────────────┬────────┬────────┬────────┐
    │ "SPA1" │ open.lock  │ lock   │ head   │ CRC32C │   inodes, u64
    └────────┴────────────┴────────┴────────┴────────┘

A file that was put in place of one of these would share nothing with the handles that have the old one open: two
would have the lock at once, or publish in two heads. The record counts only while somebody holds the channel, and so
no inode in it can be used again. On a full disk there is none, and what is there is believed.
"""

from __future__ import annotations

import contextlib
import struct

import google_crc32c

from spillable_stream.errors import StorageError
from spillable_stream.storage.file import File

__all__ = ["are_anchored", "write_anchors"]

_RECORD = struct.Struct("<4sQQQ")
_CRC = struct.Struct("<I")
_MAGIC = b"SPA1"


def write_anchors(open_lock: File, lock: File, head: File) -> None:
    """Record which files these are; the caller holds the channel alone."""
    record = _record(open_lock, lock, head)
    with contextlib.suppress(StorageError):
        open_lock.store(0, record + _CRC.pack(google_crc32c.value(record)))


def are_anchored(open_lock: File, lock: File, head: File) -> bool:
    """Tell whether these are the files that were recorded, or none were."""
    data = open_lock.load(_RECORD.size + _CRC.size)
    record, crc = data[: _RECORD.size], data[_RECORD.size :]
    if not record.startswith(_MAGIC) or crc != _CRC.pack(google_crc32c.value(record)):
        return True
    return record == _record(open_lock, lock, head)


def _record(*files: File) -> bytes:
    return _RECORD.pack(_MAGIC, *(file.identity().inode for file in files))
