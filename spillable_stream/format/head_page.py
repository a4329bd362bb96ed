"""The bytes of the head file, which says how far the logs of a channel can be trusted.

It has two slots, written in turn, so that a writer killed in the middle of one leaves the other whole::

     0        8                24                  44                  64       72       80    84
    ┌────────┬────────────────┬───────────────────┬───────────────────┬────────┬────────┬─────┬─────┐
    │sequence│ boot ID        │ disk tier's end   │ memory tier's end │ last ID│checkpt.│ pid │CRC32│  slot 0
    └────────┴────────────────┴───────────────────┴───────────────────┴────────┴────────┴─────┴─────┘
    the same again at 128                                                                            slot 1
    mark, 12 bytes at 216: the sequence that an append under way is to publish (8 bytes), and whose it is (pid, 4)
    host name, UTF-8, 256 bytes from 256

    a tier's end:  file ID (8 bytes), offset in it (8), state (4); all zeros without a memory tier

A mark greater than the newer slot's sequence means that a writer died before it published.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import google_crc32c

__all__ = [
    "CLEAN",
    "DISOWNED",
    "HEAD_SIZE_BYTES",
    "HOST_OFFSET",
    "MARK_OFFSET",
    "NO_TIER",
    "SLOTS_AND_MARK_BYTES",
    "CommitPoint",
    "HeadSlot",
    "HeadState",
    "TierEnd",
    "disowned",
    "is_half_damaged",
    "pack_host",
    "pack_mark",
    "pack_slot",
    "parse_head",
    "parse_host",
    "parse_mark",
    "slot_offset",
]

_SLOT = struct.Struct("<Q16sQQIQQIQQI")
_CRC = struct.Struct("<I")
_SLOT_OFFSETS = (0, 128)
MARK_OFFSET = 216
_MARK = struct.Struct("<QI")
SLOTS_AND_MARK_BYTES = MARK_OFFSET + _MARK.size
HOST_OFFSET = 256
_HOST_SIZE = 256
HEAD_SIZE_BYTES = 512
_FIRST_MS = 10**11  # a smaller time is in seconds: an earlier release wrote it
DISOWNED = b"\xff" * 16  # replaces the boot ID in a head that was up to date when a repair began


class HeadState(IntEnum):
    """Whether the file may have bytes after the published end."""

    CLEAN = 0
    APPENDING = 1  # cut the bytes after the end
    SYNC_FAILED = 2  # never append to this file again


CLEAN = HeadState.CLEAN  # by itself, like `spillable_stream.format.frame.PUT`: every transaction asks for it


class TierEnd(NamedTuple):
    """How far the log of one tier can be trusted.

    Args:
        file_id: the number of the current file; 0 without this tier.
        end: the offset up to which it is committed.
        state: a `HeadState`.
    """

    file_id: int
    end: int
    state: int = HeadState.CLEAN

    def appending(self) -> TierEnd:
        """Return the same end, marked as `APPENDING` if it is clean and the tier exists."""
        return self._replace(state=HeadState.APPENDING) if self.file_id and self.state == HeadState.CLEAN else self


NO_TIER = TierEnd(0, 0)


class CommitPoint(NamedTuple):
    """The published ends of both logs, as the head holds them.

    Args:
        disk: the end of the disk tier's log, which is synced up to there.
        memory: the end of the memory tier's log.
        last_id: the last write-order ID.
        checkpoint_ms: when the last checkpoint was created, in milliseconds since 1970.
        pid: the process that wrote this.
    """

    disk: TierEnd
    memory: TierEnd = NO_TIER
    last_id: int = 0
    checkpoint_ms: int = 0
    pid: int = 0

    def is_clean(self) -> bool:
        """Tell whether both ends are clean: no append is under way, and none was cut short."""
        return self.disk.state == CLEAN == self.memory.state

    def appending(self) -> CommitPoint:
        """Return the same ends, marked as `APPENDING` where they are clean."""
        return self._replace(disk=self.disk.appending(), memory=self.memory.appending())


class HeadSlot(NamedTuple):
    """A valid slot.

    Args:
        sequence: how many times the head was published.
        boot: the 16 bytes of the boot ID at that time.
        published: the published ends.
    """

    sequence: int
    boot: bytes
    published: CommitPoint


def parse_head(data: bytes) -> HeadSlot | None:
    """Return the newer valid slot of a head file, or None if neither slot is valid."""
    newer, older = data, data[_SLOT_OFFSETS[1] :]
    if newer[:8][::-1] < older[:8][::-1]:  # the sequences
        newer, older = older, newer
    return _parse_slot(newer) or _parse_slot(older)


def _parse_slot(data: bytes) -> HeadSlot | None:
    """Return the slot at the beginning of some bytes, or None if it is not valid."""
    raw = data[: _SLOT.size + _CRC.size]
    if len(raw) < _SLOT.size + _CRC.size:
        return None
    if google_crc32c.value(raw[: _SLOT.size]) != _CRC.unpack_from(raw, _SLOT.size)[0]:
        return None
    sequence, boot, *ends = _SLOT.unpack_from(raw)
    last_id, checkpoint_ms, pid = ends[6:]
    checkpoint_ms *= 1000 if checkpoint_ms < _FIRST_MS else 1
    published = CommitPoint(TierEnd(*ends[:3]), TierEnd(*ends[3:6]), last_id, checkpoint_ms, pid)
    return HeadSlot(sequence, boot, published) if sequence else None


def is_half_damaged(data: bytes) -> bool:
    """Tell whether a slot is damaged that may be the newer one: slots are written in turn."""
    slots = [_parse_slot(data[offset:]) for offset in _SLOT_OFFSETS]
    found = sorted((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence)
    if not found or found[-1].sequence <= 1:
        return False
    if len(found) == 2:
        return found[1].sequence - found[0].sequence != 1
    return not _is_surely_older(data[_SLOT_OFFSETS[slots.index(None)] :], *found)


def _is_surely_older(damaged: bytes, whole: HeadSlot) -> bool:
    """Tell whether a damaged slot precedes the whole one: every field that can be read says so."""
    sequence, _, *ends = _SLOT.unpack_from(damaged.ljust(_SLOT.size, b"\0"))
    disk, memory, last_id = ends[:2], ends[3:5], ends[6]
    published = whole.published
    return (
        sequence == whole.sequence - 1
        and disk <= list(published.disk[:2])
        and (memory <= list(published.memory[:2]) or not published.memory.file_id)
        and last_id <= published.last_id
    )


def disowned(data: bytes, boot: bytes) -> bytes:
    """Return a head file's contents with a boot ID replaced, so that the head no longer counts but can still be read.

    Args:
        data: the head file's contents.
        boot: the boot ID to replace with `DISOWNED`.
    """
    head = bytearray(data[:HEAD_SIZE_BYTES].ljust(HEAD_SIZE_BYTES, b"\0"))
    for offset in _SLOT_OFFSETS:
        slot = _parse_slot(bytes(head[offset:]))
        if slot is not None and slot.boot == boot:
            head[offset + 8 : offset + 24] = DISOWNED
            crc = google_crc32c.value(bytes(head[offset : offset + _SLOT.size]))
            head[offset + _SLOT.size : offset + _SLOT.size + _CRC.size] = _CRC.pack(crc)
    return bytes(head)


def parse_host(data: bytes) -> str:
    """Return the host name in a head file."""
    return data[HOST_OFFSET : HOST_OFFSET + _HOST_SIZE].rstrip(b"\0").decode(errors="replace")


def slot_offset(sequence: int) -> int:
    """Return the offset of the slot that a publication is written to."""
    return _SLOT_OFFSETS[sequence % 2]


def pack_slot(slot: HeadSlot) -> bytes:
    """Return the bytes of a slot."""
    sequence, boot, (disk, memory, last_id, checkpoint_ms, pid) = slot
    (file, end, state), (file2, end2, state2) = disk, memory
    raw = _SLOT.pack(sequence, boot, file, end, state, file2, end2, state2, last_id, checkpoint_ms, pid)
    return raw + _CRC.pack(google_crc32c.value(raw))


def pack_mark(sequence: int, pid: int) -> bytes:
    """Return the bytes of a mark.

    Args:
        sequence: the sequence that the append under way will publish.
        pid: the process that appends.
    """
    return _MARK.pack(sequence, pid)


def pack_host(name: str) -> bytes:
    """Return the bytes of a host name, cut or padded to its field."""
    return name.encode()[:_HOST_SIZE].ljust(_HOST_SIZE, b"\0")


def parse_mark(data: bytes) -> tuple[int, int]:
    """Return the mark: the sequence of the last append, and the pid of its writer; zeros if the file is too short."""
    sequence, pid = _MARK.unpack_from(data.ljust(SLOTS_AND_MARK_BYTES, b"\0"), MARK_OFFSET)
    return sequence, pid
