"""The head: a small file that says how far the log may be trusted (`spillable_stream.format.head_page`).

Readers trust only what the head publishes, so they never see what a crash could take back.

The head is a cache. It is never synced, and counts only while some process has held the channel without a break
(`spillable_stream.log.directories`): whoever comes first recovers from the log and rewrites it. It is read and
written with system calls rather than mapped: a mapping of a disk that is gone kills the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from spillable_stream.errors import ChannelClosedError, CorruptionError, StorageError
from spillable_stream.format.head_page import (
    HEAD_SIZE_BYTES,
    HOST_OFFSET,
    MARK_OFFSET,
    SLOTS_AND_MARK_BYTES,
    CommitPoint,
    HeadSlot,
    is_half_damaged,
    pack_host,
    pack_mark,
    pack_slot,
    parse_head,
    parse_host,
    parse_mark,
    slot_offset,
)
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Head"]


def _closed(_: int) -> bytes:
    raise ChannelClosedError("the channel is closed; open it again")


class Head:
    """The head file.

    Args:
        fs: the file system.
        path: the head file, created if it is missing.

    Attributes:
        boot: what names this boot of this machine.
        file: the file.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._path = path
        self.file: File = fs.open(path, create=True)
        if self.file.size() < HEAD_SIZE_BYTES:
            self.file.preallocate(0, HEAD_SIZE_BYTES)  # a full disk is an error here, and not in the midst of a commit
            self.file.truncate(HEAD_SIZE_BYTES)
        self.boot: bytes = boot_id()
        self._load: Callable[[int], bytes] = self.file.load
        self._sequence = 0
        self._greatest = 0  # the greatest sequence that was ever seen here
        self._pid = os.getpid()
        self._parsed_before: tuple[bytes, HeadSlot | None] = (b"", None)  # what it was parsed to

    def read(self) -> CommitPoint | None:
        """Return what the head publishes, or None if it is damaged or of another boot.

        Raises:
            CorruptionError: it publishes less than it did.
        """
        slots, before = self._load(MARK_OFFSET), self._parsed_before
        found = before[1] if slots == before[0] else self._parsed(slots)
        return found[2] if found and found[1] == self.boot else None

    def begin_writing(self) -> CommitPoint | None:
        """Return what `read` does; the caller has just got the commit lock and may write until it gives it back.

        What a writer that died may have left behind the ends shows in their states.

        Raises:
            CorruptionError: it publishes less than it did.
        """
        data, before = self._load(SLOTS_AND_MARK_BYTES), self._parsed_before
        found = before[1] if data.startswith(before[0] or b"-") else self._parsed(data[:MARK_OFFSET])
        self._sequence = found[0] if found else 0
        if found is None or found[1] != self.boot:
            return None
        return found[2] if parse_mark(data)[0] <= found[0] else found[2].appending()

    def mark(self) -> None:
        """Say that there may be something behind the published ends until the next `write`."""
        self.file.store(MARK_OFFSET, pack_mark(self._sequence + 1, self._pid))

    def writer(self) -> int:
        """Return the pid of the last process known to have had the commit lock, 0 if none is known."""
        found, (mark, pid) = self._newest(), parse_mark(self._load(SLOTS_AND_MARK_BYTES))
        return pid if found is None or mark > found[0] else found[2].pid

    def read_any_boot(self) -> CommitPoint | None:
        """Return what the head published, even before a reboot: a lower bound of what was synced."""
        found = self._newest()
        return found[2] if found else None

    def _newest(self) -> HeadSlot | None:
        return self._parsed(self._load(MARK_OFFSET))

    def _parsed(self, slots: bytes) -> HeadSlot | None:
        """Return what the newer valid slot says, or None if neither is valid."""
        found = parse_head(slots)
        if found is None or found[0] < self._greatest:  # read while it was written, or really gone back
            least = self._greatest  # other threads publish meanwhile
            slots = self._load(MARK_OFFSET)
            found = parse_head(slots)
            if found is not None and found[0] < least:
                raise CorruptionError(
                    f"the head went back from publication {least} to {found[0]}: it was restored, or its disk lost it; "
                    "close every handle of the channel and open it again, which recovers from the log",
                    str(self._path),
                )
        if found is not None:
            self._greatest = max(self._greatest, found[0])
        self._parsed_before = (slots, found)
        return found

    def is_whole(self) -> bool:
        """Tell whether no slot is damaged: else what the head says may be older than what was published last."""
        return not is_half_damaged(self._load(MARK_OFFSET))

    def write(self, published: CommitPoint) -> CommitPoint:
        """Publish, and return what was; between `begin_writing` and the end of the lock.

        Raises:
            StorageError: the file system refused.
        """
        sequence = self._sequence + 1
        if published.pid != self._pid:
            published = CommitPoint(*published[:-1], self._pid)
        written = new_tuple(HeadSlot, (sequence, self.boot, published))
        slot, offset = pack_slot(written), slot_offset(sequence)
        self.file.store(offset, slot)
        slots = self._parsed_before[0] or self._load(MARK_OFFSET)  # nobody else writes while the lock is held
        self._parsed_before = slots[:offset] + slot + slots[offset + len(slot) :], written
        self._sequence = self._greatest = sequence
        return published

    def host(self) -> str:
        """Return the name of the host that last opened the channel first."""
        return parse_host(self._load(HEAD_SIZE_BYTES))

    def write_host(self) -> None:
        """Leave this host's name."""
        self.file.store(HOST_OFFSET, pack_host(os.uname().nodename))

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
