"""The write-ahead log: append under the channel's lock, publish, roll, heal.

An append is: mark the head → write the frames → sync → publish the new end. What a holder of the
lock leaves behind when it dies lies after the published end, is seen by nobody, and is cut by the
next holder. A sync that failed is never tried again: the log rolls to a new file whose header
names the end of the last one that is trusted, which settles that the append does not count.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from spillable_stream.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    StateTooLargeError,
    StorageError,
)
from spillable_stream.format.file_names import Tier, log_name
from spillable_stream.format.frame import Frame, FrameHeader, FrameType, Payload, encode, file_seed
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.format.record import CommitRecord, FileHeader
from spillable_stream.log.append_check import AppendChecker
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.frames import FrameScanner, LocatedFrame, find_frame
from spillable_stream.log.preallocation import Preallocation
from spillable_stream.storage.filesystem import File

__all__ = ["Entry", "Position", "WriteAheadLog"]

_log = logging.getLogger(__name__)

_ZEROS = 1 << 20
_SLOW_SYNC_SECONDS = 1.0
_ROLL_AGAIN_SECONDS = 60.0


class Position(NamedTuple):
    """A place in the log of a tier: a file's number and an offset in it."""

    file_id: int
    offset: int


class Entry(NamedTuple):
    """A frame on its way into the log, with the IDs it was given.

    Args:
        frame: the frame.
        transaction_id: its transaction's ID.
        write_order_id: its first event's ID, or 0.
        time_us: the time of the commit.
        record: what its payload says (`spillable_stream.format.record.parse_record`).
    """

    frame: Frame
    transaction_id: int
    write_order_id: int
    time_us: int
    record: Any = None

    def header(self) -> FrameHeader:
        """Return the header that the frame gets."""
        type_, payload, payload_crc, count, schema_id = self.frame
        return FrameHeader(
            type_, len(payload), self.transaction_id, self.write_order_id, count, schema_id, self.time_us, payload_crc
        )


Snapshot = Callable[[], dict[str, Any]]


class WriteAheadLog:
    """The log files of one tier of a channel.

    Args:
        lock: the channel's lock and head.
        tier: whether these are the data files, synced at every commit, or the memory tier's, never synced.
        max_file_size_bytes: when to roll.

    Attributes:
        preallocation: what is reserved of the file that is written.
    """

    def __init__(self, lock: CommitLock, tier: Tier, max_file_size_bytes: int) -> None:
        self.lock = lock
        self.tier = tier
        self.layout = lock.layout
        self.max_file_size_bytes = max_file_size_bytes
        self._fs = lock.fs
        self._writing: tuple[int, File] | None = None
        self._begin = (0, 0)  # a file, and where its first frame ends
        self.preallocation = Preallocation(lock.fs)
        self._proven = 0  # the file that was proven to be this channel's since it was opened
        self._roll_again_at = float("-inf")
        self._seeded = (0, 0)  # a file, and its seed
        self._reading: tuple[int, File] | None = None

    # ── reading what others wrote ───────────────────────────────────────────────────────────

    def published(self) -> TierEnd:
        """Return what the head publishes of this tier.

        Raises:
            CorruptionError: the head is damaged; opening the channel again rebuilds it.
        """
        return self._of(self.lock.published())

    def _of(self, published: CommitPoint) -> TierEnd:
        return published.memory if self.tier is Tier.MEMORY else published.disk

    def seed(self, file_id: int) -> int:
        """Return the CRC seed of a data file."""
        if self._seeded[0] != file_id:
            self._seeded = (file_id, file_seed(self.layout.channel, log_name(file_id)))
        return self._seeded[1]

    def records(self, start: Position, end: Position) -> Iterator[tuple[int, LocatedFrame]]:
        """Yield (file number, frame) for every frame between two published positions.

        Raises:
            FileNotFoundError: the file at ``start`` was deleted since; begin from a checkpoint.
            CorruptionError: a frame that must be whole is not.
        """
        file_id, offset = start
        while True:
            limit = end.offset if file_id == end.file_id else self.end_of(file_id)
            if offset < limit:
                scanner = FrameScanner(self._open_for_reading(file_id), self.seed(file_id), offset, limit)
                appends = AppendChecker(offset)
                for found in scanner:
                    if (wrong := appends.wrong(found)) is not None:
                        path = str(self.layout.log_file(file_id))
                        raise CorruptionError(f"{wrong}; the log is damaged", path, found.offset)
                    yield file_id, found
                if scanner.offset != limit:
                    self._require_present(file_id)
                    raise CorruptionError(
                        f"a frame of {log_name(file_id)} is damaged; its bytes up to {limit} were committed",
                        str(self.layout.log_file(file_id)),
                        scanner.offset,
                    )
            if file_id >= end.file_id:
                return
            file_id, offset = self._next_file(file_id), 0

    def _require_present(self, file_id: int) -> None:
        """Raise FileNotFoundError for a file that was removed, or is used again for another, while it was read."""
        path = self.layout.log_file(file_id)
        if not self._fs.exists(path):
            raise FileNotFoundError(path)

    def _open_for_reading(self, file_id: int) -> File:
        if self._reading and self._reading[0] == file_id:
            return self._reading[1]
        file = self._fs.open(self.layout.log_file(file_id), readonly=True)
        self._close_reading()
        self._reading = (file_id, file)
        return file

    def _files(self) -> list[int]:
        """Return the numbers of this tier's files, ascending."""
        return self.layout.log_files(self._fs, self.tier)

    def read_file_header(self, file_id: int) -> FileHeader | None:
        """Return the header of a data file, or None if it is not whole."""
        file = self._fs.open(self.layout.log_file(file_id), readonly=True)
        try:
            for found in FrameScanner(file, self.seed(file_id), 0):
                return FileHeader.parse(found.payload or b"") if found.header.type == FrameType.FILE_HEADER else None
            return None
        except CorruptionError as e:
            raise CorruptionError(e.args[0], str(file.path), 0) from e
        finally:
            file.close()

    def _next_file(self, file_id: int) -> int:
        later = [i for i in self._files() if i > file_id]
        if not later:
            raise CorruptionError(f"the data file after {log_name(file_id)} is missing", str(self.layout.path))
        return later[0]

    def end_of(self, file_id: int) -> int:
        """Return the trusted end of a file that is no longer written: its successor names it."""
        following = self._next_file(file_id)
        path = str(self.layout.log_file(following))
        header = self.read_file_header(following)
        if header is None:
            raise CorruptionError(f"the header of {log_name(following)} is damaged", path, 0)
        if header.previous is None or header.previous[0] != file_id:
            raise DataLossError(f"data files between {log_name(file_id)} and {log_name(following)} are missing", path)
        return header.previous[1]

    # ── writing; the lock is held ───────────────────────────────────────────────────────────

    def current(self) -> TierEnd:
        """Return what the head says of this tier; while the lock is held, without a look at it."""
        return self._of(self.lock.current())

    def publish(self, end: TierEnd, last_id: int | None = None) -> None:
        """Write the head; the lock is held.

        Args:
            end: this tier's end.
            last_id: the last write-order ID, where it changes.
        """
        disk, memory, last, checkpoint_time, pid = self.lock.current()
        disk, memory = (disk, end) if self.tier is Tier.MEMORY else (end, memory)
        self.lock.publish(CommitPoint(disk, memory, last if last_id is None else last_id, checkpoint_time, pid))

    def heal(self, snapshot: Snapshot) -> None:
        """Cut what a holder of the lock that died or failed left behind the published end.

        Args:
            snapshot: the channel's small state at the published end, for a new file's header.
        """
        head = self.current()
        if head.state == HeadState.CLEAN:
            return
        self._close_writing()
        unpublished = [file_id for file_id in self._files() if file_id > head.file_id]
        for file_id in unpublished:  # made by a roll that was not published
            self._require_no_commit(file_id)
        if head.state != HeadState.SYNC_FAILED:
            self._require_one_append(self._open_for_writing(head.file_id), head)
        for file_id in unpublished:
            self._remove(self.layout.log_file(file_id))
        if head.state != HeadState.SYNC_FAILED:
            file = self._open_for_writing(head.file_id)
            self._discard_behind(file, head.end)
            self._sync_cut(file, head)
        if self.current().state == HeadState.SYNC_FAILED:
            self._roll(self.current(), snapshot)

    def _require_no_commit(self, file_id: int) -> None:
        """Refuse to remove a file that holds a whole COMMIT: it was published once, whatever the head says now."""
        file = self._fs.open(self.layout.log_file(file_id), readonly=True)
        try:
            if (found := next(find_frame(file, self.seed(file_id), 0, FrameType.COMMIT), None)) is not None:
                raise self._head_is_older(file, found.offset)
        finally:
            file.close()

    def _require_one_append(self, file: File, head: TierEnd) -> None:
        """Refuse to cut more than the one append that the mark speaks of."""
        for found in FrameScanner(file, self.seed(head.file_id), head.end):
            if found.header.type == FrameType.COMMIT and CommitRecord.parse(found.payload or b"").start > head.end:
                raise self._head_is_older(file, found.offset)

    def _head_is_older(self, file: File, offset: int) -> CorruptionError:
        return CorruptionError(
            "the head is older than the log, which holds a commit behind its end; close every handle of the channel "
            "and open it again, which recovers from the log",
            str(file.path),
            offset,
        )

    def reserve(self, size_bytes: int, snapshot: Snapshot) -> Position:
        """Return where the next append of ``size_bytes`` goes; rolls to a new file if it must.

        Args:
            size_bytes: the size of the append.
            snapshot: the channel's small state now, for a new file's header.
        """
        head = self.current()
        if head.end + size_bytes > self.max_file_size_bytes:
            begin = self.first_frame_end(head.file_id)
            most = self.max_file_size_bytes
            if self.tier is Tier.MEMORY:  # where the image of a long backlog is large, many appends share it
                most = max(most, 4 * begin)
            if head.end + size_bytes > most and head.end > begin and time.monotonic() >= self._roll_again_at:
                try:
                    head = self._roll(head, snapshot)
                except StateTooLargeError as e:  # what makes it smaller must still find a place
                    self._roll_again_at = time.monotonic() + _ROLL_AGAIN_SECONDS
                    _log.warning("%s grows beyond maxFileSize: %s", log_name(head.file_id), e)
        return Position(head.file_id, head.end)

    def first_frame_end(self, file_id: int) -> int:
        """Return where the header of a file ends."""
        if self._begin[0] != file_id:
            self._begin = (file_id, self._scan_first_frame(file_id))
        return self._begin[1]

    def _scan_first_frame(self, file_id: int) -> int:
        file = self._fs.open(self.layout.log_file(file_id), readonly=True)
        with contextlib.closing(file):  # not the one that a thread may be following with
            return next((found.end for found in FrameScanner(file, self.seed(file_id), 0)), 0)

    def append(self, at: Position, entries: list[Entry], last_id: int, snapshot: Snapshot) -> Position:
        """Write entries at the published end, sync, publish, and return the new end.

        Args:
            at: what `reserve` returned.
            entries: the frames, in order.
            last_id: the last write-order ID in use after them.
            snapshot: the channel's small state before them.

        Raises:
            StorageError: a call failed; nothing of the entries counts.
            CommitOutcomeUnknownError: a sync failed, and so did recording that it had.
        """
        head = self.current()
        file = self._open_for_writing(head.file_id)
        self._require_whole(file, head)
        self.lock.head.mark()
        buffers, size = self._encode(at.file_id, entries)
        try:
            if self.tier is Tier.DISK:
                self.preallocation.reserve(file, at.offset + size, self.max_file_size_bytes)
            file.write(at.offset, _joined(buffers))
        except StorageError:
            self._cut(file, head)
            raise
        self._sync(file, head, snapshot)
        end = Position(at.file_id, at.offset + size)
        try:
            self.publish(TierEnd(at.file_id, end.offset), last_id)
        except StorageError as e:
            self.lock.failed = str(e)
            raise CommitOutcomeUnknownError(
                f"{e}. Whether the transaction counts shows when the channel is opened again"
            ) from e
        return end

    def append_unpublished(self, at: Position, entries: list[Entry]) -> Position:
        """Write entries at the end that a recovery found, sync, and return the new end, for the caller to publish.

        A crash before that leaves them to the next recovery, whole or torn.
        """
        file = self._open_for_writing(at.file_id)
        buffers, size = self._encode(at.file_id, entries)
        file.write(at.offset, buffers)
        file.sync()
        return Position(at.file_id, at.offset + size)

    def _encode(self, file_id: int, entries: list[Entry]) -> tuple[list[Payload], int]:
        """Return the buffers of some frames, and how many bytes they have."""
        seed = self.seed(file_id)
        buffers: list[Payload] = []
        for entry in entries:
            buffers += encode(entry.frame, seed, entry.transaction_id, entry.write_order_id, entry.time_us)
        return buffers, sum(map(len, buffers))

    def _sync(self, file: File, head: TierEnd, snapshot: Snapshot) -> None:
        if self.tier is Tier.MEMORY:
            return
        started = time.monotonic()
        try:
            self._sync_or_distrust(file, head)
        except StorageError as e:
            self._settle_failed_sync(head, snapshot, e)
            raise StorageError(f"{e}; the transaction was not committed; the log continues in a new file") from e
        took = time.monotonic() - started
        if took > _SLOW_SYNC_SECONDS:
            _log.warning("syncing %s took %.1f s; the disk is slow or overloaded", file.path, took)

    def _sync_or_distrust(self, file: File, head: TierEnd) -> None:
        """Sync, or note in the head that nobody may append to the file again, also where an interrupt (Ctrl-C) comes.

        The next sync would say that all is well.
        """
        try:
            try:
                file.sync()
            except BaseException:
                self._distrust(head)
                raise
        except BaseException:
            self._distrust(head)  # again: an interrupt may have come before it was noted
            raise

    def _distrust(self, head: TierEnd) -> None:
        if self.current().state != HeadState.SYNC_FAILED:
            self.publish(head._replace(state=HeadState.SYNC_FAILED))

    def _settle_failed_sync(self, head: TierEnd, snapshot: Snapshot, cause: StorageError) -> None:
        try:
            self._roll(head._replace(state=HeadState.SYNC_FAILED), snapshot)
        except StorageError as e:
            self.lock.failed = f"{cause}; then {e}"
            raise CommitOutcomeUnknownError(
                f"{self.lock.failed}. Whether the transaction counts shows when the channel is opened again"
            ) from cause

    def _cut(self, file: File, head: TierEnd) -> None:
        """Take back an append that failed before its sync; if that fails too, the next holder does it."""
        try:
            self._discard_behind(file, head.end)
        except StorageError as e:
            self.publish(head._replace(state=HeadState.APPENDING))
            _log.warning("the next commit cuts the rest of a failed append: %s", e)
            return
        self._sync_cut(file, head)

    def _discard_behind(self, file: File, end: int) -> None:
        """Make sure that nothing behind ``end`` can pass for a frame."""
        if self.tier is Tier.DISK:
            file.truncate(end)
            return
        for offset in range(end, file.size(), _ZEROS):  # zeros keep the pages, which cost more than a copy
            file.write(offset, [bytes(min(_ZEROS, file.size() - offset))])

    def _sync_cut(self, file: File, head: TierEnd) -> None:
        """Make a cut durable; if the sync fails, the next holder of the lock goes on in a new file."""
        self.preallocation.begin(head.end)
        try:
            if self.tier is Tier.DISK:
                self._sync_or_distrust(file, head)
        except StorageError as e:
            _log.warning("the log continues in a new file: %s", e)
        else:
            self.publish(head._replace(state=HeadState.CLEAN))

    def roll(self, snapshot: Snapshot) -> TierEnd:
        """Begin a new file, which holds a snapshot of the state at this moment.

        On a full disk it takes what room the old one has in reserve.

        Raises:
            StorageError: it could not be made; the log stays in the old one.
        """
        try:
            return self._roll(self.current(), snapshot)
        except StorageError:
            head = self.current()  # not clean if the new file is still there: who heals the log removes it first
            if self.tier is Tier.MEMORY or head.state != HeadState.CLEAN or not self._give_back_unused(head):
                raise
            self.preallocation.begin(head.end)
            return self._roll(head, snapshot)

    def _roll(self, head: TierEnd, snapshot: Snapshot, first_file_id: int = 1) -> TierEnd:
        """Begin a new file and publish it."""
        self.lock.require_directories()
        file_id = max([head.file_id + 1, first_file_id, *(i + 1 for i in self._files())])
        previous = (head.file_id, head.end) if head.file_id else None
        frame = FileHeader(self.layout.channel, file_id, previous, snapshot()).frame()
        state = head.state if head.state != HeadState.CLEAN else HeadState.APPENDING
        self.publish(head._replace(state=state))
        path = self.layout.log_file(file_id)
        file: File | None = None
        try:
            file = self._make(path)
            end = file.write(0, encode(frame, self.seed(file_id), time_us=time.time_ns() // 1000))
            if self.tier is Tier.DISK:
                file.sync()
                self._fs.sync_directory(path.parent)
        except StorageError:
            if file is not None:
                file.close()
            with contextlib.suppress(StorageError):
                self._remove(path)
                if state == HeadState.APPENDING:
                    self.publish(head._replace(state=HeadState.CLEAN))
            raise
        published = TierEnd(file_id, end)
        self.publish(published)
        self._give_back_unused(head)
        self._close_writing()
        self._writing = (file_id, file)
        self._proven = file_id
        self.preallocation.begin(end)
        return published

    def _make(self, path: Path) -> File:
        """Make a file; in memory, of one that is not needed any more: new pages cost more than the copy into them.

        What is left in it can't pass for frames: their checksums start from another name.
        """
        if self.tier is Tier.MEMORY and (spare := self.layout.spare_memory(self._fs)):
            self._fs.rename(spare[-1], path)  # the one that was used last
            return self._fs.open(path)
        return self._fs.open(path, create=True, exclusive=True)

    def _remove(self, path: Path) -> None:
        """Remove a data file for good: after a power cut it must not come back and end the file before it."""
        self._fs.remove(path)
        if self.tier is Tier.DISK:
            self._fs.sync_directory(path.parent)

    def _give_back_unused(self, head: TierEnd) -> bool:
        """Cut the preallocated rest of a file, and tell whether there was one; only space depends on it."""
        if head.file_id and self.tier is Tier.DISK:
            with contextlib.suppress(StorageError, FileNotFoundError):
                file = self._open_for_writing(head.file_id)
                size = file.size()
                file.truncate(head.end)
                return size > head.end
        return False

    def create_first_file(self, snapshot: Snapshot, file_id: int = 1) -> None:
        """Begin the log.

        Args:
            snapshot: the channel's state.
            file_id: the first file's number.
        """
        if self.tier is Tier.DISK:
            self.lock.publish(CommitPoint(NO_TIER, checkpoint_time=int(time.time())))
        self._roll(NO_TIER, snapshot, file_id)

    def require_in_place(self) -> None:
        """Prove that the newest file is where it was, as an append to it does.

        Raises:
            DataLossError: it was removed, replaced or cut.
        """
        self._open_for_writing(self.current().file_id)

    def _open_for_writing(self, file_id: int) -> File:
        """Return the file, which is where it was: nothing may be acknowledged that is written to one that was removed.

        Raises:
            DataLossError: it was removed, replaced or cut.
        """
        if self._writing is not None and self._writing[0] == file_id:
            if not self._writing[1].is_in_place():
                raise self._lost(self._writing[1].path, "was removed or replaced")
            return self._writing[1]
        self._close_writing()
        path = self.layout.log_file(file_id)
        try:
            self._writing = (file_id, self._fs.open(path))
        except FileNotFoundError as e:
            raise self._lost(path, "is missing") from e
        self._proven = 0
        self.preallocation.begin(0)
        return self._writing[1]

    def _require_whole(self, file: File, published: TierEnd) -> None:
        """Prove once that a file with the right name is this channel's, and reaches to the published end."""
        if self._proven == published.file_id:
            return
        found = next(iter(FrameScanner(file, self.seed(published.file_id), 0)), None)
        if found is None or found.header.type != FrameType.FILE_HEADER:
            raise self._lost(file.path, "was replaced: it does not begin with its header")
        if file.size() < published.end:
            raise self._lost(file.path, f"was cut to {file.size()} bytes, and held {published.end}")
        self._proven = published.file_id

    def _lost(self, path: Path, what: str) -> DataLossError:
        self._close_writing()
        text = f"{path.name}, the newest data file, {what}; close every handle of the channel and open it again"
        return DataLossError(text, str(path))

    def leave_read(self, current: int) -> None:
        """Close the file that was followed, if the log went on in another: an open file keeps its disk space."""
        if self._reading and self._reading[0] < current:
            self._close_reading()

    def leave_written(self, current: int) -> None:
        """Do the same with the file that was written; the lock is held."""
        if self._writing and self._writing[0] < current:
            self._close_writing()

    def _close_writing(self) -> None:
        if self._writing:
            self._writing[1].close()
            self._writing = None

    def _close_reading(self) -> None:
        if self._reading:
            self._reading[1].close()
            self._reading = None

    def close(self) -> None:
        """Close every file; nothing is written."""
        self._close_writing()
        self._close_reading()


def _joined(buffers: list[Payload]) -> list[Payload]:
    """Join runs of small buffers, so that one system call writes many small transactions."""
    if len(buffers) <= 64:
        return buffers
    joined: list[Payload] = []
    run: list[bytes] = []
    for buffer in buffers:
        if isinstance(buffer, bytes):
            run.append(buffer)
        else:
            joined += [b"".join(run), buffer] if run else [buffer]
            run = []
    return [*joined, b"".join(run)] if run else joined
