"""A small file that is written over in place with one sync, so that a crash leaves the old value or the new one.

Two slots, each half of the file, take turns. The one with the higher number counts::

    ┌────────┬───┬──────────┬───┬───────┬────────┬────┐
    │ number │ ␠ │ checksum │ ␠ │ value │ spaces │ LF │   twice
    └────────┴───┴──────────┴───┴───────┴────────┴────┘
     16 hexadecimal digits, and the 8 of the CRC32C of the number's digits and the value

A crash may tear the slot that is being written, never the other one. The first write replaces the file of an earlier
run as a whole, or makes the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import google_crc32c

from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import replace_file

__all__ = ["SlotFile", "newest_value"]

_LEAST_SLOT_BYTES = 4096
_PREFIX_BYTES = 16 + 1 + 8 + 1


class SlotFile:
    """The file, for one writer.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._slot_bytes = 0
        self._number = 0

    def write(self, value: bytes) -> None:
        """Replace the value, durably.

        Args:
            value: the value; it has no spaces at its end.

        Raises:
            StorageError: the disk refused; which of the two values a restart finds is not known.
        """
        slot = _slot(self._number + 1, value)
        if self._descriptor < 0 or len(slot) > self._slot_bytes or not self._is_there():
            self.replace(value)
            return
        self._number += 1
        try:
            write_over(self._descriptor, _padded(slot, self._slot_bytes), self._number % 2 * self._slot_bytes)
        except OSError as e:
            self.close()
            raise StorageError(f"can't write {self.path} ({e.strerror}); check the disk, and free some space") from e

    def replace(self, value: bytes) -> None:
        """Replace the file as a whole, durably: nothing of what it was is left.

        Raises:
            StorageError: the disk refused.
        """
        self.close()
        slot = _slot(0, value)
        size = _LEAST_SLOT_BYTES
        while size < len(slot):
            size *= 2
        replace_file(self.path, _padded(slot, size) + _padded(b"", size))
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as e:
            raise StorageError(f"can't open {self.path} ({e.strerror}); let this user write to it") from e
        self._slot_bytes, self._number = size, 0

    def _is_there(self) -> bool:
        """Whether the open file still has its name: else a restart would not find what is written to it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def close(self) -> None:
        """Close it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_over(descriptor: int, slot: bytes, offset: int) -> None:
    """Write over a slot, durably; raises OSError."""
    os.pwrite(descriptor, slot, offset)
    os.fdatasync(descriptor)


def newest_value(data: bytes) -> bytes | None:
    """Return the value that the bytes of such a file say; None if they are not those of one."""
    half = len(data) // 2
    found = [slot for slot in map(_parsed, (data[:half], data[half:])) if slot is not None]
    return max(found)[1] if found else None


def _slot(number: int, value: bytes) -> bytes:
    digits = b"%016x" % number
    return b"%b %08x %b\n" % (digits, _checksum(digits, value), value)


def _padded(slot: bytes, size: int) -> bytes:
    return slot[:-1].ljust(size - 1) + b"\n"


def _parsed(slot: bytes) -> tuple[int, bytes] | None:
    digits, checksum, value = slot[:16], slot[17:25], slot[_PREFIX_BYTES:].rstrip()
    try:
        number, expected = int(digits, 16), int(checksum, 16)
    except ValueError:
        return None
    return (number, value) if expected == _checksum(digits, value) else None


def _checksum(digits: bytes, value: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(digits), value))
