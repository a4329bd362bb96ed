"""What the handles of a channel share: the inodes of its locks and its head, and the token of its last recovery.

The first to open the channel leaves the record in ``open.lock``::

     0        4            12       20       28         36       40
    ┌────────┬────────────┬────────┬────────┬──────────┬────────┐
    │ "SPA2" │ open.lock  │ lock   │ head   │ recovery │ CRC32C │   inodes, u64, and 8 random bytes
    └────────┴────────────┴────────┴────────┴──────────┴────────┘

A file that was put in place of one of these would share nothing with the handles that have the old one open: two
would have the lock at once, or publish in two heads. The record counts only while somebody holds the channel, and so
no inode in it can be used again. On a full disk there is none, and what is there is believed.

The token tells copies of a channel apart, however they were made: each gets one of its own when it is first opened. The
first append after that records it (`ChannelState.recoveries`).
"""

from __future__ import annotations

import contextlib
import secrets
import struct

import google_crc32c

from spillable_stream.errors import StorageError
from spillable_stream.storage.file import File

__all__ = ["are_anchored", "recovery_token", "write_anchors"]

_FILES = struct.Struct("<4sQQQ")
_TOKEN_BYTES = 8
_RECORD_BYTES = _FILES.size + _TOKEN_BYTES
_CRC = struct.Struct("<I")
_MAGIC = b"SPA2"


def write_anchors(open_lock: File, lock: File, head: File) -> None:
    """Record which files these are, with a new token; the caller holds the channel alone, and recovers it."""
    record = _files(open_lock, lock, head) + secrets.token_bytes(_TOKEN_BYTES)
    with contextlib.suppress(StorageError):
        open_lock.store(0, record + _CRC.pack(google_crc32c.value(record)))


def are_anchored(open_lock: File, lock: File, head: File) -> bool:
    """Tell whether these are the files that were recorded, or none were."""
    record = _read(open_lock)
    return record is None or record.startswith(_files(open_lock, lock, head))


def recovery_token(open_lock: File) -> str:
    """Return the token of the channel's last recovery; "" if there is no record."""
    record = _read(open_lock)
    return "" if record is None else record[_FILES.size :].hex()


def _read(open_lock: File) -> bytes | None:
    data = open_lock.load(_RECORD_BYTES + _CRC.size)
    record, crc = data[:_RECORD_BYTES], data[_RECORD_BYTES:]
    is_whole = record.startswith(_MAGIC) and crc == _CRC.pack(google_crc32c.value(record))
    return record if is_whole else None


def _files(*files: File) -> bytes:
    return _FILES.pack(_MAGIC, *(file.identity().inode for file in files))
