"""One process's view of a channel: open, follow, commit."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from spillable_stream.channel.checkpointing import Checkpointing
from spillable_stream.channel.counters import Counters
from spillable_stream.channel.group_commit import GroupCommit, Ticket
from spillable_stream.channel.memory_tier import MemoryDirectory, file_size_bytes
from spillable_stream.channel.opening import Opening
from spillable_stream.channel.requests import Committed, Control, MemoryFullError, Plan, PrepareOnDisk, Put, Request
from spillable_stream.channel.samples import Samples
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    CorruptionError,
    DiskSpaceError,
    SpillableError,
    StorageError,
)
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.frame import FrameHeader, FrameType, frame_size
from spillable_stream.format.record import SegmentRef
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.head import NO_TIER, Published
from spillable_stream.log.layout import Layout, Tier, disk_segment, in_memory, memory_file_id
from spillable_stream.log.reader import EventReader
from spillable_stream.log.segment import is_being_written
from spillable_stream.log.tiers import Positions, Tiers
from spillable_stream.log.wal import Entry, Position
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Engine"]

_log = logging.getLogger(__name__)

_SPACE_CHECK_SECONDS = 1.0
_MEMORY_RETRY_SECONDS = 60.0
_FULL_POLL_SECONDS = 0.01
_RESERVED_IDS = 1 << 20  # one sync for so many events that stay in memory


class Engine:
    """The channel as one process sees it. Thread-safe.

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.
    """

    def __init__(self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0) -> None:
        self.fs = fs
        self.layout = layout
        self.lock_timeout_seconds = lock_timeout_seconds
        self.torn_bytes = 0
        self.counters = Counters()
        self.samples = Samples()
        self._closed = False
        self._half_applied = False
        self._applied: Published | None = None  # the head that the state is at, if that is known
        self._mutex = threading.RLock()
        self._group_commit = GroupCommit(self._commit_group)
        self._space_checked = self._memory_refused = float("-inf")
        self._schemas: list[pa.Schema] = []
        self._first_in_memory: int | str = 0
        self._memory_segments: set[str] = set()
        self._open_lock = FileLock.open(fs, layout.open_lock)
        self.lock = CommitLock(fs, layout)
        self.tiers = Tiers(self.lock)
        self.memory_directory = MemoryDirectory(fs, layout)
        checkpoints = Checkpoints(fs, layout)
        self._opening = Opening(self.lock, self.tiers, checkpoints, self.memory_directory)
        self.checkpointing = Checkpointing(self, checkpoints)
        try:
            self._enter()
            self.state, self.positions = self._opening.load()
        except BaseException:
            self.close()
            raise
        self._obey_options()
        self.samples.note(self.state)

    def _enter(self) -> None:
        """Share the open lock with this host's other handles; recover what is of no use as it is."""
        deadline = time.monotonic() + self.lock_timeout_seconds
        while True:
            if self._open_lock.try_acquire(shared=True) and self._opening.is_current():
                return
            self._open_lock.release()
            if self._open_lock.try_acquire():  # nobody else has it open: after a reboot, or a damaged head
                if not self._opening.is_current():
                    with self.lock.locked(self.lock_timeout_seconds):
                        self.torn_bytes = self._opening.recover()
                self._open_lock.release()
            elif time.monotonic() > deadline:
                raise ChannelBusyError(
                    f"{self.layout.path} is open on the host {self.lock.head.host() or '?'}; "
                    "one host at a time can have it open, and one process recovers it"
                )
            else:
                time.sleep(0.01)

    def _obey_options(self) -> None:
        options = self.state.options
        self.tiers.disk.max_file_size_bytes = options["max_file_size"]
        byte_capacity = self.state.memory_byte_capacity()
        self.tiers.memory.max_file_size_bytes = file_size_bytes(byte_capacity, options)

    # ── following ───────────────────────────────────────────────────────────────────────────

    def follow(self) -> ChannelState:
        """Apply what other processes and threads committed, and return the state."""
        self.require_open()
        if self.lock.published() is not self._applied or self._half_applied:
            self._catch_up(self.lock.published)
        return self.state

    def _catch_up(self, published: Callable[[], Published]) -> None:
        """Apply everything up to the published ends."""
        with self._mutex:
            head = published()
            if head is self._applied and not self._half_applied:
                return
            end = Positions.of(head)
            if end == self.positions and not self._half_applied:
                self._applied = head
                return
            if not self._half_applied:
                if end.is_before(self.positions):  # read while it was written twice
                    return
                # So far behind that files are gone, or used again; what is damaged shows when it is loaded.
                with contextlib.suppress(FileNotFoundError, CorruptionError):
                    self._apply_until(end)
            if self._half_applied:
                self.state, self.positions = self._opening.load()
                self._half_applied = False
            self._applied = head if self.positions == end else None
            self._obey_options()

    def _apply_until(self, end: Positions) -> None:
        with self._applying():
            for file_id, found in self.tiers.records(self.positions, end):
                self.state.apply(file_id, found.offset, found.header, found.payload)
            self.positions = end

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
        """Commit a request, in the tier that it belongs to, and return what it got.

        Args:
            request: what to do.
            keep_alive_seconds: how long to wait for room.

        Raises:
            ChannelFullError: no room within ``keep_alive_seconds``.
            DiskSpaceError: ``minimumRequiredSpace`` is reached.
            StorageError: the disk refused; nothing was committed.
        """
        began = time.monotonic()
        if isinstance(request, Put):
            request.segments = [self._found(s) for s in request.segments]
        while True:
            seen = self.lock.published()
            try:
                return self._group_commit.submit(request)
            except MemoryFullError:
                assert isinstance(request, Put)
                deadline = began + self.state.options["overflow_timeout"]
                request.may_spill = time.monotonic() >= deadline
            except ChannelFullError as e:
                deadline = began + keep_alive_seconds
                fits = isinstance(request, Put) and request.fits_empty(self.state)
                if not fits or time.monotonic() >= deadline:
                    raise self._full(e, time.monotonic() - began, fits) from None
            while time.monotonic() < deadline and self.lock.published() == seen:
                time.sleep(_FULL_POLL_SECONDS)

    def _full(self, error: ChannelFullError, waited_seconds: float, fits: bool) -> ChannelFullError:
        with self.looking() as state:
            rates = self.samples.rates(state)
            put_at = state.blocks.time_of(state.floor)
            memory, disk, limits = state.use(in_memory=True), state.use(in_memory=False), state.memory_limits()
            lags = ", ".join(f"{n} has {state.lag(n):,} to take" for n in state.groups) or "there is no group"
            capacity = state.options["overflow_capacity"]
        option = "overflowCapacity" if capacity else "memoryCapacity or byteCapacity"
        age = f"{time.time() - put_at / 1e6:,.0f} s" if put_at else "unknown"
        return ChannelFullError(
            f"{self.layout.path}: {error}. Memory holds {memory.events:,} of {limits.events:,} events and "
            f"{memory.payload_bytes:,} of {limits.payload_bytes:,} bytes, disk {disk.events:,} of overflowCapacity "
            f"{capacity:,} events. Waited {waited_seconds:.2f} s; in the last minute {rates.put:,.0f} events/s were "
            f"put and {rates.taken:,.0f} taken; the oldest event's age is {age}; {lags}. To go on, "
            + (f"take events, or raise {option}" if fits else f"raise {option}, or put fewer at once")
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
        with self.committing():
            waiting = deque(group)
            while waiting:
                self._append_run(waiting)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Hold the channel's lock, with the logs healed and the state up to date."""
        with self.lock.locked(self.lock_timeout_seconds):
            self.require_open()
            self._catch_up(self.lock.current)
            self.tiers.disk.heal(self.state.small)
            if self.lock.current().memory.file_id:
                self.tiers.memory.heal(self._memory_image)
            self._catch_up(self.lock.current)
            yield

    def _append_run(self, waiting: deque[Ticket]) -> None:
        """Append the requests at the head of a group that go to the same tier, as far as there is room for them."""
        try:
            tier = self._tier_of_next(waiting)
        except SpillableError as e:
            waiting.popleft().fail(e)
            return
        try:
            start = self._reserve_room(tier, sum(t.request.size_bytes() for t in waiting))
        except StorageError as e:
            if tier is Tier.DISK:
                raise
            return self._refuse_memory(e)
        plan = Plan(self.state, tier, self._memory_is_ready(), start.offset)
        planned: list[Ticket] = []
        first = waiting[0]
        while waiting:
            ticket = waiting[0]
            try:
                if ticket is not first and ticket.request.tier(plan) is not tier:
                    break
                self._prepare(ticket.request, tier)
                ticket.result = ticket.request.plan(plan)
                planned.append(ticket)
            except SpillableError as e:
                ticket.fail(e)
            waiting.popleft()
        try:
            self._append(plan, start)
        except StorageError as e:
            if tier is Tier.DISK:
                raise
            self._refuse_memory(e)
            waiting.extendleft(reversed(planned))
            return
        self.counters.group_commits += 1
        self.counters.grouped_commits += len(planned)
        for ticket in planned:
            ticket.done = True
            if isinstance(ticket.request, Put) and tier is Tier.MEMORY:
                self._memory_segments.update(s.name for s in ticket.request.segments)

    def _reserve_room(self, tier: Tier, size_bytes: int) -> Position:
        start = self.tiers.of(tier).reserve(size_bytes, self._snapshot(tier))
        self._catch_up(self.lock.current)
        return start

    def _tier_of_next(self, waiting: deque[Ticket]) -> Tier:
        """Return the tier of the next request; a put in memory finds the tier made, and IDs reserved."""
        puts = [t.request for t in waiting if isinstance(t.request, Put)]
        if puts and self._memory_is_wanted() and not self._memory_is_ready():
            self._open_memory()
        tier = waiting[0].request.tier(Plan(self.state, Tier.DISK, self._memory_is_ready()))
        if tier is Tier.MEMORY:
            last_id = self.state.last_id + sum(put.use().events for put in puts)
            if last_id > self.state.memory.reserved_id:
                memory = self.state.memory
                self._reserve(memory.generation, memory.byte_capacity, last_id + _RESERVED_IDS)
        return tier

    def _prepare(self, request: Request, tier: Tier) -> None:
        """Refuse a put for which there is no disk space, or whose staged files are not there."""
        if not isinstance(request, Put):
            return
        if tier is Tier.DISK:
            self._check_space()
            request.segments = [self._on_disk(s) for s in request.segments]
        for segment in request.segments:  # every event that is acknowledged can be read
            path = self.layout.segment_file(segment.name)
            if self.fs.size_bytes(path) < segment.end:
                raise StorageError(f"the staged file {path} is gone or cut; nothing was committed: do the write again")

    def _found(self, segment: SegmentRef) -> SegmentRef:
        """Return where a staged segment is: the memory tier may have been closed since, which moved it to disk."""
        on_disk = replace(segment, name=disk_segment(segment.name))
        return on_disk if self.fs.exists(self.layout.segment_file(on_disk.name)) else segment

    def _on_disk(self, segment: SegmentRef) -> SegmentRef:
        """Move a segment that was staged in memory to disk."""
        if not in_memory(segment.name):
            return segment
        moved = replace(segment, name=disk_segment(segment.name))
        source = self.layout.segment_file(segment.name)
        if self.fs.size_bytes(source) >= segment.end:
            self.fs.copy_durably(source, self.layout.segment_file(moved.name))
            self.fs.remove(source)
        return moved

    def _append(self, plan: Plan, start: Position) -> None:
        if not plan.entries:
            return
        log = self.tiers.of(plan.tier)
        end = log.append(start, plan.entries, plan.next_id - 1, self._snapshot(plan.tier))
        self._apply_own(plan.tier, start, end, plan.entries)
        if plan.tier is Tier.DISK:
            self.counters.disk_syncs += 1
            self.counters.disk_bytes += end.offset - start.offset
        with self._mutex:
            self.samples.note(self.state)
            self._remove_taken_memory()

    def append_alone(self, request: Request) -> Committed:
        """Append a request to the disk tier at once, inside `committing`; for what no user asked for."""
        start = self._reserve_room(Tier.DISK, request.size_bytes())
        plan = Plan(self.state, Tier.DISK, start=start.offset)
        result = request.plan(plan)
        self._append(plan, start)
        return result

    def _apply_own(self, tier: Tier, start: Position, end: Position, entries: list[Entry]) -> None:
        """Apply what this process appended, unless another of its threads has read it back already."""
        with self._mutex:
            before = self.positions.memory if tier is Tier.MEMORY else self.positions.disk
            if before != start or self._half_applied:
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
                self.positions = (
                    Positions(self.positions.disk, end)
                    if tier is Tier.MEMORY
                    else Positions(end, self.positions.memory)
                )
                self._applied = self.lock.current()

    @contextlib.contextmanager
    def _applying(self) -> Iterator[None]:
        """Note when the state was left between two positions of the log, by Ctrl-C or a bad frame."""
        self._half_applied = True
        yield
        self._half_applied = False

    # ── the memory tier; the channel's lock is held ─────────────────────────────────────────

    def _snapshot(self, tier: Tier) -> Callable[[], dict[str, object]]:
        return self._memory_image if tier is Tier.MEMORY else self.state.small

    def _memory_image(self) -> dict[str, object]:
        """Return the whole state, with which every file of the memory tier begins: what was before is not needed."""
        return {**self.state.image(), "disk": self.positions.disk}

    def _memory_is_wanted(self) -> bool:
        return bool(
            self.state.options["memory_capacity"] and time.monotonic() - self._memory_refused > _MEMORY_RETRY_SECONDS
        )

    def _memory_is_ready(self) -> bool:
        return self._memory_is_wanted() and self.lock.current().memory.file_id != 0

    def memory_bytes(self) -> int:
        """Return how many bytes of payloads a put transaction may have to go to memory, 0 without a memory tier."""
        if not self._memory_is_wanted() or not self.positions.memory.file_id:
            return 0
        return self.state.memory_limits().payload_bytes

    def make_memory(self) -> None:
        """Make the memory tier, if the channel is to have one and has none yet."""
        self.follow()
        if self._memory_is_wanted() and not self.positions.memory.file_id:
            with self.committing():
                if not self._memory_is_ready():
                    self._open_memory()

    def _refuse_memory(self, cause: StorageError) -> None:
        self._memory_refused = time.monotonic()
        self.memory_directory.give_up(cause)

    def _open_memory(self) -> None:
        """Make the memory tier, or go on without it for a while."""
        byte_capacity = self.memory_directory.choose(self.state.options)
        if not byte_capacity:
            self._memory_refused = time.monotonic()
            return
        generation = self.state.memory.generation + 1
        self._reserve(generation, byte_capacity, self.state.last_id + _RESERVED_IDS)
        try:
            self.memory_directory.make(self.state.options)
            self.tiers.memory.create_first_file(self._memory_image, memory_file_id(generation, 1))
        except StorageError as e:
            self._refuse_memory(e)
        self._catch_up(self.lock.current)

    def _reserve(self, generation: int, byte_capacity: int, through_id: int, *, open: bool = True) -> None:
        value = {"through": through_id, "generation": generation, "bytes": byte_capacity, "open": open}
        self.append_alone(Control(FrameType.RESERVE, value))

    def renew_memory_file(self) -> None:
        """Begin a new file of the memory tier, so that no older data file is needed to read it."""
        if self.lock.current().memory.file_id:
            self.tiers.memory.roll(self._memory_image)
            self._catch_up(self.lock.current)
            self._remove_taken_memory()

    def _remove_taken_memory(self) -> None:
        """Free the memory of events that every group has taken."""
        first = self.state.blocks.memory.first()
        begin = first.file if first else self.positions.memory.file_id
        if begin == self._first_in_memory or not self.positions.memory.file_id:
            return
        self._first_in_memory = begin
        self.checkpointing.remove_taken_memory()
        live = {b.file for b in self.state.blocks.memory if isinstance(b.file, str)}
        for name in self._memory_segments - live:
            self.fs.remove(self.layout.segment_file(name))
        self._memory_segments = live

    def has_memory(self) -> bool:
        """Tell whether there is anything of a memory tier, even one whose making or removal was cut short."""
        return self.state.memory.open or self.fs.link_target(self.layout.memory) is not None

    def close_memory(self) -> None:
        """Let go of a memory tier that holds nothing; nobody else has the channel open."""
        with self.committing():
            memory, pending = self.state.memory, self.state.pending
            self.append_alone(PrepareOnDisk({tx: list(p.takes) for tx, p in pending.items() if p.in_memory}))
            self._reserve(memory.generation, memory.byte_capacity, self.state.last_id, open=False)
            self.lock.publish(self.lock.current()._replace(memory=NO_TIER))
            self.tiers.memory.close()
            self._catch_up(self.lock.current)
            for name in self._segments_in_memory():  # of a Spark batch that is still to be committed
                self.fs.copy_durably(self.layout.segment_file(name), self.layout.segment_file(disk_segment(name)))
            self.memory_directory.remove()

    def _segments_in_memory(self) -> list[str]:
        return [name for name in self.layout.segments(self.fs) if in_memory(name)]

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def become_last(self) -> bool:
        """Tell whether no other handle has the channel open, and keep it so; for a handle that is being closed.

        A Spark task that stages its rows in memory counts as one.
        """
        return self._open_lock.try_acquire() and not any(
            is_being_written(self.fs, self.layout.segment_file(name)) for name in self._segments_in_memory()
        )

    def close(self, *, forked: bool = False) -> None:
        """Close every file, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        self._closed = True
        self.lock.close(forked=forked)
        self.tiers.close()
        self.checkpointing.close()
        self._open_lock.close()

    def require_open(self) -> None:
        """Refuse to go on after `close` or a failure.

        Raises:
            ChannelClosedError: the channel was closed, or the log failed.
        """
        linked = not self._closed and self.lock.head.is_linked()
        if self._closed:  # asked last: another thread may close it meanwhile
            raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again")
        if not linked:
            raise ChannelClosedError(f"{self.layout.path} was removed, or its head was; open it again")
        if self.lock.failed:
            raise ChannelClosedError(f"{self.layout.path} failed and must be opened again: {self.lock.failed}")

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
