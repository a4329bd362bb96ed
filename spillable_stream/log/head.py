"""The head: a small file that says how far the log may be trusted.

Two slots, written in turn, so that a writer killed in the middle leaves the other one whole::

     0        8                24                  44                  64       72       80    84
    ┌────────┬────────────────┬───────────────────┬───────────────────┬────────┬────────┬─────┬─────┐
    │sequence│ boot ID        │ disk tier's end   │ memory tier's end │ last ID│checkpt.│ pid │CRC32│  slot 0
    └────────┴────────────────┴───────────────────┴───────────────────┴────────┴────────┴─────┴─────┘
    the same again at 128                                                                            slot 1
    mark, 12 bytes at 216: the sequence that an append under way is to publish (8 bytes), and whose it is (pid, 4)
    host name, UTF-8, 256 bytes from 256

    a tier's end:  file ID (8 bytes), offset in it (8), state (4); all zeros without a memory tier

Readers trust only what the head publishes, so they never see what a crash could take back. A mark
that is greater than the newer slot's sequence says that a writer died on the way to it.

The head is a cache. It is never synced, and counts only while some process has held the channel
without a break (`spillable_stream.log.directories`): whoever comes first recovers from the log and
writes it anew. It is read and written with system calls rather than mapped: a mapping of a disk that
is gone kills the process.
"""

from __future__ import annotations

import functools
import os
import struct
import uuid
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from spillable_stream.errors import ChannelClosedError, CorruptionError, StorageError
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "DISOWNED",
    "NO_TIER",
    "CommitPoint",
    "Head",
    "HeadState",
    "TierEnd",
    "boot_id",
    "disowned",
    "is_half_damaged",
    "parse_head",
    "parse_host",
]

_SLOT = struct.Struct("<Q16sQQIQQIQQI")
_CRC = struct.Struct("<I")
_SLOT_OFFSETS = (0, 128)
_SLOTS_END = 216
_MARK = struct.Struct("<QI")
_MARK_END = _SLOTS_END + _MARK.size
_HOST_OFFSET = 256
_HOST_SIZE = 256
HEAD_SIZE_BYTES = 512
DISOWNED = b"\xff" * 16  # the boot of a head that was up to date when a repair began


class HeadState(IntEnum):
    """Whether anything may lie behind the published end."""

    CLEAN = 0
    APPENDING = 1  # cut what lies behind
    SYNC_FAILED = 2  # never append to this file again


class TierEnd(NamedTuple):
    """How far the log of one tier may be trusted.

    Args:
        file_id: the file that is written now; 0 where there is no such tier.
        end: the offset up to which it is committed.
        state: whether anything may lie behind the end.
    """

    file_id: int
    end: int
    state: int = HeadState.CLEAN

    def appending(self) -> TierEnd:
        """Return the same where something may lie behind the end, if there is such a tier."""
        return self._replace(state=HeadState.APPENDING) if self.file_id and self.state == HeadState.CLEAN else self


NO_TIER = TierEnd(0, 0)


class CommitPoint(NamedTuple):
    """What the head says.

    Args:
        disk: the end of the disk tier's log; it is synced up to there.
        memory: the end of the memory tier's log.
        last_id: the last write-order ID.
        checkpoint_time: when the last checkpoint was made, in seconds since 1970.
        pid: who wrote this.
    """

    disk: TierEnd
    memory: TierEnd = NO_TIER
    last_id: int = 0
    checkpoint_time: int = 0
    pid: int = 0

    def is_clean(self) -> bool:
        """Tell whether nothing lies behind either end."""
        return self.disk.state == HeadState.CLEAN == self.memory.state

    def appending(self) -> CommitPoint:
        """Return the same where something may lie behind the ends."""
        return self._replace(disk=self.disk.appending(), memory=self.memory.appending())


_Parsed = tuple[int, bytes, CommitPoint]  # sequence, boot, contents


@functools.cache
def boot_id() -> bytes:
    """Return the 16 bytes that name this boot of this machine."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):  # not Linux: the node's address, so that a reboot is not noticed
        return uuid.UUID(int=uuid.getnode()).bytes


def parse_head(data: bytes) -> _Parsed | None:
    """Return sequence, boot and contents of the newer valid slot of a head file, or None if neither is valid."""
    newer, older = data, data[_SLOT_OFFSETS[1] :]
    if newer[:8][::-1] < older[:8][::-1]:  # the sequences
        newer, older = older, newer
    return _parse_slot(newer) or _parse_slot(older)


def _parse_slot(data: bytes) -> _Parsed | None:
    """Return what the slot says that some bytes begin with, or None if it is not valid."""
    raw = data[: _SLOT.size + _CRC.size]
    if len(raw) < _SLOT.size + _CRC.size:
        return None
    if google_crc32c.value(raw[: _SLOT.size]) != _CRC.unpack_from(raw, _SLOT.size)[0]:
        return None
    sequence, boot, *ends = _SLOT.unpack_from(raw)
    published = CommitPoint(TierEnd(*ends[:3]), TierEnd(*ends[3:6]), *ends[6:])
    return (sequence, boot, published) if sequence else None


def is_half_damaged(data: bytes) -> bool:
    """Tell whether the newer slot of a head file may be the one that is not valid: they are written in turn."""
    slots = [_parse_slot(data[offset:]) for offset in _SLOT_OFFSETS]
    found = sorted((slot for slot in slots if slot is not None), key=lambda slot: slot[0])
    if not found or found[-1][0] <= 1:
        return False
    if len(found) == 2:
        return found[1][0] - found[0][0] != 1
    return not _is_surely_older(data[_SLOT_OFFSETS[slots.index(None)] :], *found)


def _is_surely_older(damaged: bytes, whole: _Parsed) -> bool:
    """Tell whether a damaged slot is the one before a whole one: all that is left of it says so."""
    sequence, _, *ends = _SLOT.unpack_from(damaged.ljust(_SLOT.size, b"\0"))
    disk, memory, last_id = ends[:2], ends[3:5], ends[6]
    published = whole[2]
    return (
        sequence == whole[0] - 1
        and disk <= list(published.disk[:2])
        and (memory <= list(published.memory[:2]) or not published.memory.file_id)
        and last_id <= published.last_id
    )


def disowned(data: bytes) -> bytes:
    """Return a head file's contents as those of no boot: what this boot published stays known, and is nobody's."""
    head = bytearray(data[:HEAD_SIZE_BYTES].ljust(HEAD_SIZE_BYTES, b"\0"))
    for offset in _SLOT_OFFSETS:
        slot = _parse_slot(bytes(head[offset:]))
        if slot is not None and slot[1] == boot_id():
            head[offset + 8 : offset + 24] = DISOWNED
            crc = google_crc32c.value(bytes(head[offset : offset + _SLOT.size]))
            head[offset + _SLOT.size : offset + _SLOT.size + _CRC.size] = _CRC.pack(crc)
    return bytes(head)


def parse_host(data: bytes) -> str:
    """Return the host's name that a head file holds."""
    return data[_HOST_OFFSET : _HOST_OFFSET + _HOST_SIZE].rstrip(b"\0").decode(errors="replace")


def _mark_in(data: bytes) -> tuple[int, int]:
    """Return the sequence that the last append was to publish, and the pid of its writer; zeros in a head cut short."""
    sequence, pid = _MARK.unpack(data[_SLOTS_END:_MARK_END].ljust(_MARK.size, b"\0"))
    return sequence, pid


def _closed(_: int) -> bytes:
    raise ChannelClosedError("the channel is closed; open it again")


class Head:
    """The head file.

    Args:
        fs: the file system.
        path: the head file, made if it is missing.

    Attributes:
        boot: what names this boot of this machine.
        file: the file.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._path = path
        self.file = fs.open(path, create=True)
        if self.file.size() < HEAD_SIZE_BYTES:
            self.file.preallocate(0, HEAD_SIZE_BYTES)  # a full disk is an error here, and not in the midst of a commit
            self.file.truncate(HEAD_SIZE_BYTES)
        self.boot = boot_id()
        self._load: Callable[[int], bytes] = self.file.load
        self._sequence = 0
        self._greatest = 0  # the greatest sequence that was ever seen here
        self._pid = os.getpid()
        self._seen: tuple[bytes, _Parsed | None] = (b"", None)  # what it was parsed to

    def read(self) -> CommitPoint | None:
        """Return what the head publishes, or None if it is damaged or of another boot.

        Raises:
            CorruptionError: it publishes less than it did.
        """
        slots, seen = self._load(_SLOTS_END), self._seen
        found = seen[1] if slots == seen[0] else self._parsed(slots)
        return found[2] if found and found[1] == self.boot else None

    def begin_writing(self) -> CommitPoint | None:
        """Return what `read` does; the caller has just got the channel's lock and may write until it gives it back.

        What a writer that died may have left behind the ends shows in their states.

        Raises:
            CorruptionError: it publishes less than it did.
        """
        data, seen = self._load(_MARK_END), self._seen
        found = seen[1] if data.startswith(seen[0] or b"-") else self._parsed(data[:_SLOTS_END])
        self._sequence = found[0] if found else 0
        if found is None or found[1] != self.boot:
            return None
        return found[2] if _mark_in(data)[0] <= found[0] else found[2].appending()

    def mark(self) -> None:
        """Say that there may be something behind the published ends until the next `write`."""
        self.file.store(_SLOTS_END, _MARK.pack(self._sequence + 1, self._pid))

    def writer(self) -> int:
        """Return the pid of the last process known to have had the channel's lock, 0 if none is known."""
        found, (mark, pid) = self._newest(), _mark_in(self._load(_MARK_END))
        return pid if found is None or mark > found[0] else found[2].pid

    def read_any_boot(self) -> CommitPoint | None:
        """Return what the head published, even before a reboot: a lower bound of what was synced."""
        found = self._newest()
        return found[2] if found else None

    def _newest(self) -> _Parsed | None:
        return self._parsed(self._load(_SLOTS_END))

    def _parsed(self, slots: bytes) -> _Parsed | None:
        """Return what the newer valid slot says, or None if neither is valid."""
        found = parse_head(slots)
        if found is None or found[0] < self._greatest:  # read while it was written, or really gone back
            least = self._greatest  # other threads publish meanwhile
            slots = self._load(_SLOTS_END)
            found = parse_head(slots)
            if found is not None and found[0] < least:
                raise CorruptionError(
                    f"the head went back from publication {least} to {found[0]}: it was restored, or its disk lost it; "
                    "close every handle of the channel and open it again, which recovers from the log",
                    str(self._path),
                )
        if found is not None:
            self._greatest = max(self._greatest, found[0])
        self._seen = (slots, found)
        return found

    def is_whole(self) -> bool:
        """Tell whether no slot is damaged: else what the head says may be older than what was published last."""
        return not is_half_damaged(self._load(_SLOTS_END))

    def write(self, published: CommitPoint) -> CommitPoint:
        """Publish, and return what was; between `begin_writing` and the end of the lock.

        Raises:
            StorageError: the file system refused.
        """
        sequence = self._sequence + 1
        published = CommitPoint(*published[:-1], self._pid)
        raw = _SLOT.pack(
            sequence,
            self.boot,
            *published.disk,
            *published.memory,
            published.last_id,
            published.checkpoint_time,
            self._pid,
        )
        slot, offset = raw + _CRC.pack(google_crc32c.value(raw)), _SLOT_OFFSETS[sequence % 2]
        self.file.store(offset, slot)
        slots = self._seen[0] or self._load(_SLOTS_END)  # nobody else writes while the lock is held
        self._seen = (slots[:offset] + slot + slots[offset + len(slot) :], (sequence, self.boot, published))
        self._sequence = self._greatest = sequence
        return published

    def host(self) -> str:
        """Return the name of the host that last opened the channel first."""
        return parse_host(self._load(HEAD_SIZE_BYTES))

    def write_host(self) -> None:
        """Leave this host's name."""
        name = os.uname().nodename.encode()[:_HOST_SIZE]
        self.file.store(_HOST_OFFSET, name.ljust(_HOST_SIZE, b"\0"))

    def is_linked(self) -> bool:
        """Tell whether this is still the channel's head, and not that of one that was removed or closed."""
        return self.file.is_linked()

    def is_in_place(self) -> bool:
        """Tell whether this is the file that the channel's path leads to: not moved away, nor removed."""
        try:
            return self.file.is_in_place()
        except (StorageError, ChannelClosedError):
            return False

    def close(self) -> None:
        """Close the file; again is fine."""
        self._load = _closed
        self.file.close()
