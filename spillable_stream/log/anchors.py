"""Which files the handles of a channel share: the inodes of its locks and its head, noted in ``open.lock``.

Whoever comes first leaves the note::

     0        4            12       20       28       32
    ┌────────┬────────────┬────────┬────────┬────────┐
    │ "SPA1" │ open.lock  │ lock   │ head   │ CRC32C │   inodes, u64
    └────────┴────────────┴────────┴────────┴────────┘

A file that was put in place of one of these would share nothing with the handles that have the old one open: two
would have the lock at once, or publish in two heads. The note counts only while somebody holds the channel, and so
no inode in it can be used again. On a full disk there is none, and what is there is believed.
"""

from __future__ import annotations

import contextlib
import struct

import google_crc32c

from spillable_stream.errors import StorageError
from spillable_stream.storage.filesystem import File

__all__ = ["are_anchored", "write_anchors"]

_NOTE = struct.Struct("<4sQQQ")
_CRC = struct.Struct("<I")
_MAGIC = b"SPA1"


def write_anchors(open_lock: File, lock: File, head: File) -> None:
    """Note which files these are; the caller holds the channel alone."""
    note = _note(open_lock, lock, head)
    with contextlib.suppress(StorageError):
        open_lock.store(0, note + _CRC.pack(google_crc32c.value(note)))


def are_anchored(open_lock: File, lock: File, head: File) -> bool:
    """Tell whether these are the files that were noted, or none were."""
    data = open_lock.load(_NOTE.size + _CRC.size)
    note, crc = data[: _NOTE.size], data[_NOTE.size :]
    if not note.startswith(_MAGIC) or crc != _CRC.pack(google_crc32c.value(note)):
        return True
    return note == _note(open_lock, lock, head)


def _note(*files: File) -> bytes:
    return _NOTE.pack(_MAGIC, *(file.identity().inode for file in files))
