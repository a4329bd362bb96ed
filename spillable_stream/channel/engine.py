"""One process's view of a channel: open, follow, commit, checkpoint."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from spillable_stream.channel.group_commit import GroupCommit, Ticket
from spillable_stream.channel.requests import Committed, Plan, Put, Request
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    CorruptionError,
    DataLossError,
    DiskSpaceError,
    LockTimeoutError,
    SpillableError,
    StorageError,
)
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.frame import FrameHeader, FrameType, frame_size
from spillable_stream.format.record import SegmentRef
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.head import Published
from spillable_stream.log.layout import Layout, log_name
from spillable_stream.log.reader import EventReader
from spillable_stream.log.recovery import discard_unfinished_file, oldest_file, recover
from spillable_stream.log.scan import Scanned
from spillable_stream.log.segment import remove_abandoned_segments
from spillable_stream.log.wal import Entry, Position, WriteAheadLog
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Engine"]

_log = logging.getLogger(__name__)

_SPACE_CHECK_SECONDS = 1.0
_FULL_POLL_SECONDS = 0.01
_OPEN_ATTEMPTS = 5


class Engine:
    """The channel as one process sees it. Thread-safe.

    Args:
        fs: the file system.
        layout: the channel's files.
    """

    def __init__(self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0) -> None:
        self.fs = fs
        self.layout = layout
        self.lock_timeout_seconds = lock_timeout_seconds
        self.torn_bytes = 0
        self._closed = False
        self._half_applied = False
        self._mutex = threading.RLock()
        self._group_commit = GroupCommit(self._commit_group)
        self._checkpoints = Checkpoints(fs, layout)
        self._checkpointing = threading.Lock()
        self._checkpoint_failed = float("-inf")
        self._checkpoint_lock = FileLock.open(fs, layout.checkpoint_lock)
        self._space_checked = float("-inf")
        self._schemas: list[pa.Schema] = []
        self._open_lock = FileLock.open(fs, layout.open_lock)
        self.wal = WriteAheadLog(fs, layout, max_file_size_bytes=1 << 62)
        try:
            self._enter()
            self.state, self.position = self._load()
        except BaseException:
            self.close()
            raise
        self.wal.max_file_size_bytes = self.state.options["max_file_size"]
        self._opened_at, self._opened_id = time.monotonic(), self.state.next_id

    # ── opening ─────────────────────────────────────────────────────────────────────────────────

    def _enter(self) -> None:
        """Share the open lock with this host's other handles; rebuild the head if it is of no use."""
        deadline = time.monotonic() + self.lock_timeout_seconds
        while True:
            if self._open_lock.try_acquire(shared=True) and self.wal.head.read() is not None:
                return
            self._open_lock.release()
            if self._open_lock.try_acquire():  # nobody else has it open: after a reboot, or a damaged head
                if self.wal.head.read() is None:
                    with self.wal.locked(self.lock_timeout_seconds):
                        self._recover()
                self._open_lock.release()
            elif time.monotonic() > deadline:
                raise ChannelBusyError(
                    f"{self.layout.path} is open on the host {self.wal.head.host() or '?'}; "
                    "one host at a time can have it open, and one process recovers it"
                )
            else:
                time.sleep(0.01)

    def _recover(self) -> None:
        self.layout.make_small_directories(self.fs)
        discard_unfinished_file(self.fs, self.wal, self._checkpoints.newest_file_id())
        state, start = self._base(None)

        def apply(file_id: int, found: Scanned) -> None:
            state.apply(file_id, found.offset, found.header, found.payload)

        found = recover(self.fs, self.wal, start, lambda: state.last_id, apply)
        self.torn_bytes = found.torn_bytes
        _log.info("recovered %s: the log ends at %s, event %d", self.layout.path, found.end, state.last_id)

    def _base(self, end: Position | None) -> tuple[ChannelState, Position]:
        """Return the state to replay from: the newest good checkpoint's, else the oldest file's.

        Args:
            end: what was published; None while nothing is, after a reboot.
        """
        for position, image in self._checkpoints.load():
            if end is not None and position > end:
                continue  # made by another process since
            if position.file_id not in self.layout.log_files(self.fs):
                raise DataLossError(
                    f"{log_name(position.file_id)} is missing: a checkpoint was made of it", str(self.layout.path)
                )
            return ChannelState.from_image(image), position
        file_id, header = oldest_file(self.fs, self.wal)
        return ChannelState.from_image(header.state), Position(file_id, 0)

    def _load(self) -> tuple[ChannelState, Position]:
        """Return the state at the published end.

        Raises:
            CorruptionError: the log is damaged.
            DataLossError: events are missing.
        """
        for attempt in range(_OPEN_ATTEMPTS):
            head = self.wal.published()
            end = Position(head.file_id, head.end)
            try:
                state, start = self._base(end)
                for file_id, found in self.wal.records(start, end):
                    state.apply(file_id, found.offset, found.header, found.payload)
                self._check_complete(state)
            except (FileNotFoundError, DataLossError, CorruptionError):
                # Another process may have made a checkpoint and deleted files meanwhile.
                if attempt == _OPEN_ATTEMPTS - 1 or (attempt and self.wal.published() == head):
                    raise
                continue
            return state, end
        raise ChannelBusyError(f"{self.layout.path} changes faster than it can be read; try again")

    def _check_complete(self, state: ChannelState) -> None:
        """Prove that every event that is still needed has a file."""
        if (lost := state.missing()) is not None:
            raise DataLossError(
                f"the events {lost[0]} to {lost[1]} are missing: data files were removed",
                str(self.layout.path),
            )
        present = set(self.layout.log_files(self.fs)) | set(self.layout.segments(self.fs))
        for block in state.blocks:
            if block.file not in present:
                raise DataLossError(
                    f"the events {block.first_id} to {block.last_id} are missing: the file {block.file} was removed",
                    str(self.layout.path),
                )

    # ── following ───────────────────────────────────────────────────────────────────────────

    def follow(self) -> ChannelState:
        """Apply what other processes and threads committed, and return the state."""
        self.require_open()
        head = self.wal.published()
        if Position(head.file_id, head.end) != self.position or self._half_applied:
            self._catch_up(self.wal.published)
        return self.state

    def _catch_up(self, published: Callable[[], Published]) -> None:
        """Apply everything up to the published end."""
        with self._mutex:
            head = published()
            end = Position(head.file_id, head.end)
            if end == self.position and not self._half_applied:
                return
            if end > self.position and not self._half_applied:
                with contextlib.suppress(FileNotFoundError, DataLossError):  # so far behind that files are gone
                    self._apply_until(end)
            if self._half_applied:
                self.state, self.position = self._load()
                self._half_applied = False
            self.wal.max_file_size_bytes = self.state.options["max_file_size"]

    def _apply_until(self, end: Position) -> None:
        with self._applying():
            for file_id, found in self.wal.records(self.position, end):
                self.state.apply(file_id, found.offset, found.header, found.payload)
            self.position = end

    @contextlib.contextmanager
    def looking(self) -> Iterator[ChannelState]:
        """Hold the state still, up to date, while it is looked at more than once."""
        with self._mutex:
            yield self.follow()

    def schemas(self) -> list[pa.Schema]:
        """Return the channel's schemas, oldest first."""
        if len(self._schemas) != len(self.state.schemas):
            with self._mutex:
                self._schemas = [decode_schema(s) for s in self.state.schemas]
        return self._schemas

    def reader(self) -> EventReader:
        """Return a reader of events."""
        return EventReader(self.fs, self.layout, lambda schema_id: self.schemas()[schema_id])

    # ── committing ──────────────────────────────────────────────────────────────────────────

    def commit(self, request: Request, keep_alive_seconds: float = 0.0) -> Committed:
        """Commit a request durably and return what it got.

        Args:
            request: what to do.
            keep_alive_seconds: how long to wait for room.

        Raises:
            ChannelFullError: no room within ``keep_alive_seconds``.
            DiskSpaceError: ``minimumRequiredSpace`` is reached.
            StorageError: the disk refused; nothing was committed.
        """
        deadline = time.monotonic() + keep_alive_seconds
        while True:
            if isinstance(request, Put):
                self._check_space()
            self.require_open()
            seen = self.wal.published()
            try:
                return self._group_commit.submit(request)
            except ChannelFullError as e:
                fits = request.count() <= self.state.options["overflow_capacity"] if isinstance(request, Put) else False
                if not fits or time.monotonic() >= deadline:
                    raise self._full(e, keep_alive_seconds, fits) from None
            while time.monotonic() < deadline and self.wal.published() == seen:
                time.sleep(_FULL_POLL_SECONDS)

    def _full(self, error: ChannelFullError, waited_seconds: float, fits: bool) -> ChannelFullError:
        elapsed = max(time.monotonic() - self._opened_at, 1e-3)
        with self._mutex:
            rate = (self.state.next_id - self._opened_id) / elapsed
            put_at = self.state.blocks.time_of(self.state.floor)
            groups = ", ".join(f"{n} at {g.position}" for n, g in self.state.groups.items()) or "none"
        age = f"{time.time() - put_at / 1e6:,.0f} s" if put_at else "unknown"
        todo = "take events, or raise overflowCapacity" if fits else "raise overflowCapacity, or put fewer at once"
        return ChannelFullError(
            f"{self.layout.path}: {error}. Waited {waited_seconds:g} s; {rate:,.0f} events/s were put since this "
            f"handle was opened, the oldest event's age is {age}, groups: {groups}. To go on, {todo}"
        )

    def _check_space(self) -> None:
        now = time.monotonic()
        if now - self._space_checked < _SPACE_CHECK_SECONDS:
            return
        required = self.state.options["minimum_required_space"]
        for directory in self.layout.data_dirs:
            free = self.fs.free_bytes(directory)
            if free < required:
                raise DiskSpaceError(
                    f"the file system of {directory} has {free:,} bytes free, minimumRequiredSpace is {required:,}; "
                    "make room, or take events: takes go on"
                )
        self._space_checked = now

    def _commit_group(self, group: list[Ticket]) -> None:
        with self.wal.locked(self.lock_timeout_seconds):
            self._append(group)

    def _append(self, group: list[Ticket]) -> None:
        self.require_open()
        self._catch_up(self.wal.current)
        self.wal.heal(self.state.small)
        self._catch_up(self.wal.current)
        start = self.wal.reserve(sum(t.request.size_bytes() for t in group), self.state.small)
        self._catch_up(self.wal.current)
        plan = Plan(self.state, start.offset, max(time.time_ns() // 1000, self.state.time_us))
        planned = []
        for ticket in group:
            try:
                if isinstance(ticket.request, Put):
                    self._check_staged(ticket.request.segments)
                ticket.result = ticket.request.plan(plan)
                planned.append(ticket)
            except SpillableError as e:
                ticket.fail(e)
        if plan.entries:
            end = self.wal.append(start, plan.entries, plan.next_id - 1, self.state.small)
            self._apply_own(start, end, plan.entries)
        for ticket in planned:
            ticket.done = True

    def _check_staged(self, segments: list[SegmentRef]) -> None:
        """Refuse to adopt a segment that is not there: every event that is acknowledged can be read."""
        for segment in segments:
            path = self.layout.segment_file(segment.name)
            if self.fs.size_bytes(path) < segment.end:
                raise StorageError(f"the staged file {path} is gone or cut; nothing was committed: do the write again")

    def _apply_own(self, start: Position, end: Position, entries: list[Entry]) -> None:
        """Apply what this process appended, unless another of its threads has read it back already."""
        with self._mutex:
            if self.position != start or self._half_applied:
                return
            offset = start.offset
            with self._applying():
                for frame, tx, order, time_us in entries:
                    header = FrameHeader(
                        frame.type,
                        len(frame.payload),
                        tx,
                        order,
                        frame.count,
                        frame.schema_id,
                        time_us,
                        frame.payload_crc,
                    )
                    payload = None if frame.type == FrameType.PUT else bytes(frame.payload)
                    self.state.apply(start.file_id, offset, header, payload)
                    offset += frame_size(header.length)
                self.position = end

    @contextlib.contextmanager
    def _applying(self) -> Iterator[None]:
        """Note when the state was left between two positions of the log, by Ctrl-C or a bad frame."""
        self._half_applied = True
        yield
        self._half_applied = False

    # ── checkpoints and cleaning ────────────────────────────────────────────────────────────

    def checkpoint_if_due(self) -> None:
        """Make a checkpoint if the last one is older than ``checkpointInterval`` and nobody is at it."""
        try:
            if self._checkpoint_is_due():
                with self._alone_at_checkpoint(timeout_seconds=0):
                    if self._checkpoint_is_due():  # nobody made one meanwhile
                        self._checkpoint()
        except (LockTimeoutError, ChannelClosedError):
            return
        except Exception as e:  # what was committed is committed
            self._checkpoint_failed = time.monotonic()
            _log.warning("no checkpoint was made; the next open takes longer: %s", e)

    def _checkpoint_is_due(self) -> bool:
        interval_seconds: float = self.state.options["checkpoint_interval"] / 1000
        if time.monotonic() - self._checkpoint_failed < interval_seconds:
            return False
        age_seconds = time.time() - self.wal.published().checkpoint_time
        return not 0 <= age_seconds < interval_seconds  # before 0 a clock was set back

    def checkpoint(self) -> None:
        """Make the state durable and remove the files that nothing needs any more.

        Commits of other threads and processes go on meanwhile.

        Raises:
            StorageError: the checkpoint could not be written; nothing was removed.
            LockTimeoutError: another process makes one for too long.
        """
        self.require_open()
        with self._alone_at_checkpoint(self.lock_timeout_seconds):
            self._checkpoint()

    @contextlib.contextmanager
    def _alone_at_checkpoint(self, timeout_seconds: float) -> Iterator[None]:
        if not self._checkpointing.acquire(timeout=timeout_seconds):
            raise LockTimeoutError(f"another thread makes a checkpoint for more than {timeout_seconds:g} s")
        try:
            if not self._checkpoint_lock.acquire(timeout_seconds):
                raise LockTimeoutError(
                    f"another process holds {self.layout.checkpoint_lock} for more than {timeout_seconds:g} s; "
                    "see whether it hangs"
                )
            try:
                yield
            finally:
                self._checkpoint_lock.release()
        finally:
            self._checkpointing.release()

    def _checkpoint(self) -> None:
        with self._mutex:
            self.follow()
            image, position = self.state.image(), self.position
        self._checkpoints.write(position, image)
        with self.wal.locked(self.lock_timeout_seconds):
            self.follow()
            self.wal.heal(self.state.small)
            self.wal.note_checkpoint()
            self._clean()

    def _clean(self) -> None:
        """Remove data files and segments that hold nothing which is needed; the lock is held."""
        with self._mutex:
            oldest_block = self.state.blocks.oldest_data_file()
            live, sinks = self.state.blocks.segments(), dict(self.state.sinks)
            current, ttl_seconds = self.position.file_id, self.state.options["staging_ttl"]
        remove_abandoned_segments(self.fs, self.layout, live, sinks, ttl_seconds)
        kept = self._checkpoints.oldest_kept()
        if kept is None:
            return
        # Replay from the older checkpoint must stay possible.
        first_needed = min(current, kept.file_id, current if oldest_block is None else oldest_block)
        unneeded = [self.layout.log_file(i) for i in self.layout.log_files(self.fs) if i < first_needed]
        for path in unneeded:
            self.fs.remove(path)
        for directory in {path.parent for path in unneeded}:
            self.fs.sync_directory(directory)

    def remove_staging(self, query: str) -> None:
        """Remove what a Spark query staged for batches that are over and did not adopt it."""
        if any(name.startswith(f"segment.{query}.") for name in self.layout.segments(self.fs)):
            with self.wal.locked(self.lock_timeout_seconds), self.looking() as state:
                live, sinks = state.blocks.segments(), dict(state.sinks)
                remove_abandoned_segments(self.fs, self.layout, live, sinks, float("inf"), query)

    def discard(self, segments: list[str]) -> None:
        """Remove staged segments that no commit adopted, whatever became of the commit that was to."""
        with self.wal.locked(self.lock_timeout_seconds), self.looking() as state:
            self.wal.heal(state.small)
            for name in set(segments) - state.blocks.segments():
                self.fs.remove(self.layout.segment_file(name))

    def close(self, *, forked: bool = False) -> None:
        """Close every file, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        self._closed = True
        self.wal.close(forked=forked)
        self._checkpoint_lock.close()
        self._open_lock.close()

    def require_open(self) -> None:
        """Refuse to go on after `close` or a failure.

        Raises:
            ChannelClosedError: the channel was closed, or the log failed.
        """
        linked = not self._closed and self.wal.head.is_linked()
        if self._closed:  # asked last: another thread may close it meanwhile
            raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again")
        if not linked:
            raise ChannelClosedError(f"{self.layout.path} was removed, or its head was; open it again")
        if self.wal.failed:
            raise ChannelClosedError(f"{self.layout.path} failed and must be opened again: {self.wal.failed}")

    def wait_for(self, ready: Callable[[ChannelState], bool], timeout_seconds: float) -> bool:
        """Follow until ``ready`` says so, at most ``timeout_seconds``, and tell whether it did."""
        deadline = time.monotonic() + timeout_seconds
        pause = 0.001
        while not ready(self.follow()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, 0.05)
        return True
