"""The write-ahead log of one tier: append under the commit lock, sync, publish.

An append is: mark the head → write the frames → sync → publish the new end. What a holder of the
lock leaves behind when it dies lies after the published end, is seen by nobody, and is cut by the
next holder (`spillable_stream.log.healing`). A sync that failed is never tried again: the log rolls to a new file
whose header names the end of the last one that is trusted, which settles that the append does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from spillable_stream.errors import CommitOutcomeUnknownError, StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameHeader, Payload, encode_all
from spillable_stream.format.head_page import CLEAN, CommitPoint, HeadState, TierEnd
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.format.record import FileHeader, Record
from spillable_stream.log.append_failure import AppendFailure
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.disk_space import with_room
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.healing import Healing
from spillable_stream.log.layout import Layout
from spillable_stream.log.log_files import LogFiles, Position
from spillable_stream.log.preallocation import Preallocation
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.rolling import MakeImage, Rolling
from spillable_stream.log.tier_files import DiskFiles, MemoryFiles, TierFiles
from spillable_stream.log.written_file import WrittenFile
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.file import File

__all__ = ["Entry", "Position", "WriteAheadLog"]

_log = log_of(__name__)

_SLOW_SYNC_SECONDS = 1.0


Entry: TypeAlias = tuple[FrameHeader, Payload, Record]
"""A frame on its way into the log, with the IDs it was given: its header, its payload, and what that says
(`spillable_stream.format.record.parse_record`). Once written, it is applied as it is."""


class _Publish(Protocol):
    """`PublishedEnd.publish`."""

    def __call__(self, end: TierEnd, last_id: int | None = None) -> None: ...


class WriteAheadLog:
    """The log of one tier of a channel: a directory of files and a sync policy.

    Args:
        lock: the commit lock and head.
        tier: which files these are.
        max_file_size_bytes: when to roll; by default never.

    Attributes:
        end_within: returns the tier's end of what the head says.
        policy: how the tier's files are written and synced.
        preallocation: what is reserved of the file that is written.
    """

    end_within: Callable[[CommitPoint], TierEnd]
    published: Callable[[], TierEnd]
    publish: _Publish
    seed: Callable[[int], int]
    records: Callable[[Position, Position], Iterator[tuple[int, LocatedFrame]]]
    end_of: Callable[[int], int]
    read_file_header: Callable[[int], FileHeader | None]
    first_frame_end: Callable[[int], int]
    create_first_file: Callable[[MakeImage, int], None]
    roll: Callable[[MakeImage], TierEnd]
    heal: Callable[[MakeImage], None]
    trim: Callable[[], None]
    leave_read: Callable[[int], None]
    leave_written: Callable[[int], None]

    def __init__(self, lock: CommitLock, tier: Tier, max_file_size_bytes: int = 1 << 62) -> None:
        self.lock = lock
        self.tier = tier
        self.layout: Layout = lock.layout
        self.max_file_size_bytes = max_file_size_bytes
        policy: TierFiles = (MemoryFiles if tier is Tier.MEMORY else DiskFiles)(lock.fs, lock.layout)
        self.policy: TierFiles = policy
        files = LogFiles(lock.fs, lock.layout, tier)
        end = PublishedEnd(lock, tier)
        writing = WrittenFile(lock.fs, lock.layout, files, policy.preallocation, lambda: lock.require_directories())
        failure = AppendFailure(end, policy)
        rolling = Rolling(lock, end, policy, files, writing, failure)
        healing = Healing(lock, end, policy, files, writing, failure, rolling)
        self.preallocation: Preallocation = policy.preallocation
        self._files, self._writing = files, writing
        self._failure, self._rolling = failure, rolling
        # What the parts do is bound, not delegated: an append calls some of it often.
        self.end_within, self.published, self.publish = end.within, end.published, end.publish
        self.seed, self.records, self.end_of = files.seed, files.records, files.end_of
        self.read_file_header, self.first_frame_end = files.read_file_header, files.first_frame_end
        self.create_first_file, self.roll, self.heal = rolling.begin, rolling.roll, healing.heal
        self.trim = rolling.trim
        self.leave_read, self.leave_written = files.leave, writing.leave

    def reserve(self, size_bytes: int, image: MakeImage) -> Position:
        """Return where the next append of ``size_bytes`` goes; rolls to a new file if it must.

        Args:
            size_bytes: the size of the append.
            image: makes the image of the state now, for a new file's header.
        """
        head = self.end_within(self.lock.current())
        if head.end + size_bytes > self.max_file_size_bytes:
            head = self._rolling.roll_if_full(head, size_bytes, self.max_file_size_bytes, image)
        return new_tuple(Position, head[:2])

    def is_directory_full(self) -> bool:
        """Tell whether the newest file's disk has no room, and that of another directory has; the lock is held."""
        path = self.layout.log_file(self.end_within(self.lock.current()).file_id)
        return path.parent not in with_room(self.lock.fs, self.layout, self.preallocation.minimum_required_space)

    def keep_for_takes(self, end: int, kept: int) -> None:
        """Reserve the space of a put that is about to be appended, and some behind it that only takes may use.

        Args:
            end: the offset of the newest file where the put ends, at most.
            kept: how many bytes only takes may use.

        Raises:
            DiskSpaceError: there is no room for both.
            DataLossError: the file was removed, replaced or cut.
        """
        file = self._writing.open(self.end_within(self.lock.current()).file_id)
        self.preallocation.keep_for_takes(file, end, kept, self.max_file_size_bytes)

    def append(self, at: Position, entries: Sequence[Entry], last_id: int, image: MakeImage) -> Position:
        """Write entries at the published end, sync, publish, and return the new end.

        Args:
            at: what `reserve` returned.
            entries: the frames, in order.
            last_id: the last write-order ID in use after them.
            image: makes the image of the state before them.

        Raises:
            StorageError: a call failed; nothing of the entries counts.
            DiskSpaceError: the disk is full; nothing of them is there any more.
            CommitOutcomeUnknownError: a sync failed, and so did recording that it had.
        """
        head = new_tuple(TierEnd, (*at, CLEAN))
        file = self._writing.open(at.file_id)
        self._writing.require_whole(file, head)
        self.lock.head.mark()
        buffers = encode_all(entries, self.seed(at.file_id))
        size = sum(map(len, buffers))
        try:
            self.policy.reserve(file, at.offset, at.offset + size, self.max_file_size_bytes)
            file.write(at.offset, buffers)
        except StorageError as e:
            self._failure.cut(file, head)
            if self.end_within(self.lock.current()).state != HeadState.CLEAN:  # a crash now may yet make it count
                raise StorageError(f"{e}. The written part could not be cut either; the next commit cuts it") from e
            raise
        self._sync(file, head, image)
        end = new_tuple(Position, (at.file_id, at.offset + size))
        try:
            self.publish(new_tuple(TierEnd, (*end, CLEAN)), last_id)
        except StorageError as e:
            self.lock.failed = str(e)
            raise CommitOutcomeUnknownError(
                f"{e}. Whether the transaction counts shows when the channel is opened again"
            ) from e
        return end

    def append_unpublished(self, at: Position, entries: Sequence[Entry]) -> Position:
        """Write entries at the end that a recovery found, sync, and return the new end, for the caller to publish.

        A crash before that leaves them to the next recovery, whole or torn.
        """
        file = self._writing.open(at.file_id)
        size = file.write(at.offset, encode_all(entries, self.seed(at.file_id)))
        file.sync()
        return Position(at.file_id, at.offset + size)

    def _sync(self, file: File, head: TierEnd, image: MakeImage) -> None:
        started = time.monotonic()
        try:
            self._failure.sync_or_distrust(file, head)
        except StorageError as e:
            self._settle_failed_sync(head, image, e)
            raise StorageError(f"{e}; the transaction was not committed; the log continues in a new file") from e
        took = time.monotonic() - started
        if took > _SLOW_SYNC_SECONDS:
            _log.warning(
                "syncing %s took %.1f s; the disk is slow or overloaded, or this process was suspended",
                file.path,
                took,
                extra=fields(file=file.path, seconds=took),
            )

    def _settle_failed_sync(self, head: TierEnd, image: MakeImage, cause: StorageError) -> None:
        try:
            self._rolling.roll_from(head._replace(state=HeadState.SYNC_FAILED), image)
        except StorageError as e:
            self.lock.failed = f"{cause}; then {e}"
            raise CommitOutcomeUnknownError(
                f"{self.lock.failed}. Whether the transaction counts shows when the channel is opened again"
            ) from cause

    def require_in_place(self) -> None:
        """Prove that the newest file is where it was, as an append to it does.

        Raises:
            DataLossError: it was removed, replaced or cut.
        """
        self._writing.open(self.end_within(self.lock.current()).file_id)

    def close(self) -> None:
        """Close every file; nothing is written."""
        self._writing.close()
        self._files.close()
