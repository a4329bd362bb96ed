"""A small file that is written over in place with one sync, so that a crash leaves the old value or the new one.

Two slots, each half of the file, take turns. The one with the higher number counts::

    ┌────────┬───┬──────────┬───┬───────┬────────┬────┐
    │ number │ ␠ │ checksum │ ␠ │ value │ spaces │ LF │   twice
    └────────┴───┴──────────┴───┴───────┴────────┴────┘
     16 hexadecimal digits, and the 8 of the CRC32C of the number's digits and the value

A crash may tear the slot that is being written, and a disk that writes 4 KiB leaves the other one alone: then the value
before it counts. It counts, too, where the newest slot is damaged later; that can't be told from a tear, so it is
logged. The first write replaces the file of an earlier run as a whole, or creates the file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import google_crc32c

from spillable_stream.errors import CorruptionError
from spillable_stream.flow.descriptor import Descriptor
from spillable_stream.flow.durable_file import read_file, replace_file
from spillable_stream.log_records import fields, log_of
from spillable_stream.system_errors import storage_error

__all__ = ["SlotFile", "newest_value", "write_over"]

_log = log_of("spillable_stream.flow")

_LEAST_SLOT_BYTES = 4096
_PREFIX_BYTES = 16 + 1 + 8 + 1


class SlotFile:
    """The file, for one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: Descriptor | None = None
        self._slot_bytes = 0
        self._number = 0

    def read(self) -> bytes | None:
        """Return the value, durably: no crash takes it back.

        A process that was killed may have written the value and not synced it. Then it is in the page cache alone,
        and a power cut would take it back after somebody has acted on it.

        Returns:
            The value; None if there is no file.

        Raises:
            CorruptionError: no slot is whole.
            StorageError: the file can't be read, or the disk refused.
        """
        data = read_file(self.path)
        if data is None:
            return None
        value = newest_value(data)
        if value is None:
            raise CorruptionError("no slot of the file is whole", str(self.path))
        if any(map(_is_damaged, _halves(data))):
            _log.warning(
                "%s: a slot is damaged, so the other one counts. A power cut in a write leaves that, and does "
                "no harm; if there was none, check the disk",
                self.path,
                extra=fields(file=self.path),
            )
        replace_file(self.path, _file_of(value))
        return value

    def write(self, value: bytes) -> None:
        """Replace the value, durably.

        Args:
            value: the value; it has no spaces at its end.

        Raises:
            StorageError: the disk refused; which of the two values a restart finds is not known.
        """
        descriptor = self._descriptor
        if descriptor is None or _size_of(value) > self._slot_bytes:
            self.replace(value)
            return
        try:
            if not descriptor.is_at(self.path):
                self.replace(value)
                return
            self._number += 1
            slot = _slot(self._number, value, self._slot_bytes)
            write_over(descriptor.number, slot, self._number % 2 * self._slot_bytes)
        except BaseException as e:
            self.close()  # an interrupt, too, leaves a slot with nobody knows what
            if not isinstance(e, OSError):
                raise
            raise storage_error(f"can't write {self.path}", e, "check the disk") from e

    def replace(self, value: bytes) -> None:
        """Replace the file as a whole, durably: nothing of what it was is left.

        Raises:
            StorageError: the disk refused.
        """
        self.close()
        data = _file_of(value)
        replace_file(self.path, data)
        self._slot_bytes, self._number = len(data) // 2, 0  # first: an interrupt may come when it is open
        try:
            self._descriptor = Descriptor(self.path, os.O_WRONLY)
        except OSError as e:
            raise storage_error(f"can't open {self.path}", e, "let this user write to it") from e

    def close(self) -> None:
        """Close it; each value that was written is durable already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                descriptor.close()


def write_over(descriptor: int, slot: bytes, offset: int) -> None:
    """Write over a slot, or behind the end of a file, durably; raises OSError."""
    view = memoryview(slot)
    while view.nbytes:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
    os.fdatasync(descriptor)


def newest_value(data: bytes) -> bytes | None:
    """Return the value that the bytes of such a file say; None if they are not those of one."""
    found = [slot for slot in map(_parsed, _halves(data)) if slot is not None]
    return max(found)[1] if found else None


def _halves(data: bytes) -> list[bytes]:
    half = len(data) // 2
    return [data[:half], data[half:]]


def _is_damaged(slot: bytes) -> bool:
    return _parsed(slot) is None and slot != _blank(len(slot))


def _blank(size: int) -> bytes:
    return b"\n".rjust(size)


def _size_of(value: bytes) -> int:
    return _PREFIX_BYTES + len(value) + 1


def _file_of(value: bytes) -> bytes:
    """Return a file with a value in its first slot; a slot has room for longer ones."""
    size = _LEAST_SLOT_BYTES
    while size < _size_of(value):
        size *= 2
    return _slot(0, value, size) + _blank(size)


def _slot(number: int, value: bytes, size: int) -> bytes:
    digits = b"%016x" % number
    return (b"%b %08x %b" % (digits, _checksum(digits, value), value)).ljust(size - 1) + b"\n"


def _parsed(slot: bytes) -> tuple[int, bytes] | None:
    digits, checksum, value = slot[:16], slot[17:25], slot[_PREFIX_BYTES:].rstrip()
    try:
        number, expected = int(digits, 16), int(checksum, 16)
    except ValueError:
        return None
    return (number, value) if expected == _checksum(digits, value) else None


def _checksum(digits: bytes, value: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(digits), value))
