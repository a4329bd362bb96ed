"""One process's replica of the channel's state: opened, kept up to date, appended to."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.entering import Held, adopted, enter
from spillable_stream.engine.memory_directory import MemoryDirectory, file_size_bytes
from spillable_stream.engine.requests import Request
from spillable_stream.engine.telemetry import Counters, Samples
from spillable_stream.engine.under_way import UnderWay
from spillable_stream.errors import ChannelClosedError, CorruptionError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA, decode_schema
from spillable_stream.format.file_names import Tier, generation_of
from spillable_stream.format.frame import frame_size
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.directories import Directories
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.layout import Layout
from spillable_stream.log.tiers import Positions, Tiers
from spillable_stream.log.wal import Entry, Position
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Replica"]


class _Looking:
    """What `Replica.looking` returns; it may be entered again inside, where the state still stands still.

    Args:
        replica: whose state is held still.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._depth = 0  # of the thread that has the mutex

    def __enter__(self) -> ChannelState:
        replica, had = self._replica, list[bool]()
        try:
            had.extend(map(replica._mutex.acquire, (True,)))  # one call from C: no interrupt comes in between
            state = replica.state if self._depth and not replica.applying else replica.follow()
            replica.looker = threading.get_ident()
            self._depth += 1
        except BaseException:
            if had:
                replica._mutex.release()
            raise
        return state

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._replica.looker = 0
        self._replica._mutex.release()


class Replica:
    """The channel's state as one process has it, fed by the logs of both tiers. Thread-safe.

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.

    Attributes:
        under_way: the calls that a close waits for, and inside of which none is allowed.
        looker: the thread that is inside of `looking`; 0 if none is.
        applying: whether the state is being changed, by the thread that has the mutex.
    """

    checkpoints: Checkpoints
    directories: Directories
    fs: FileSystem
    layout: Layout
    lock: CommitLock
    positions: Positions
    recovered: bool
    state: ChannelState
    tiers: Tiers
    torn_bytes: int

    def __init__(self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0) -> None:
        self.under_way: UnderWay = UnderWay(f"the channel {layout.path}")
        self.looker = 0
        self.applying: bool = False
        self.lock_timeout_seconds = lock_timeout_seconds
        self.counters: Counters = Counters()
        self.samples: Samples = Samples()
        self._closed = False
        self._half_applied = False
        self._applied: CommitPoint | None = None  # the head that the state is at, if that is known
        self._mutex = threading.RLock()
        self._looking = _Looking(self)
        self._schemas: list[pa.Schema] = []
        self._use(self._enter(fs, layout))
        self.samples.note(self.state)

    def _enter(self, fs: FileSystem, layout: Layout) -> Held:
        """Hold the channel."""
        return enter(fs, adopted(fs, layout, self.lock_timeout_seconds), self.lock_timeout_seconds)

    def _use(self, held: Held) -> None:
        """Go on with a channel that was just held: load its state."""
        try:
            self.state, self.positions = held.load()
        except BaseException:
            held.close()
            raise
        self._held, self._loader, self._applied = held, held.loader, None
        self.lock, self.tiers = held.lock, held.tiers
        self.fs, self.layout = held.lock.fs, held.lock.layout
        self.checkpoints, self.directories = held.checkpoints, held.directories
        self.memory_directory: MemoryDirectory = held.memory_directory
        self.torn_bytes, self.recovered = held.torn_bytes, held.recovered
        self._half_applied, self._current = False, self.positions.disk.file_id
        self._obey_options()

    def _obey_options(self) -> None:
        options = self.state.options
        self.tiers.disk.max_file_size_bytes = options.max_file_size
        self.tiers.disk.preallocation.minimum_required_space = options.minimum_required_space
        byte_capacity = self.state.memory_byte_capacity()
        self.tiers.memory.max_file_size_bytes = file_size_bytes(byte_capacity, options)

    # ── following ───────────────────────────────────────────────────────────────────────────

    def follow(self) -> ChannelState:
        """Apply what other processes and threads committed, and return the state."""
        self.require_open()
        self.keep_up()
        return self.state

    def keep_up(self) -> None:
        """Do what `follow` does, without a look at whether the channel is still there: a commit looks."""
        if (self.lock.published() is not self._applied or self._half_applied) and self.looker != threading.get_ident():
            self._catch_up(self.lock.published)

    def catch_up(self) -> None:
        """Apply what was published under the channel's lock, which is held."""
        if self.lock.current() is not self._applied or self._half_applied:
            self._catch_up(self.lock.current)
            self.tiers.disk.leave_written(self.positions.disk.file_id)

    def _catch_up(self, published: Callable[[], CommitPoint]) -> None:
        """Apply everything up to the published ends."""
        with self._mutex:
            if self.applying:
                self.under_way.refuse("a look")
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
                self._load()
            self._applied = head if self.positions == end else None
            self._obey_options()
            if self.positions.disk.file_id != self._current:
                self._current = self.positions.disk.file_id
                self._leave_files()

    def _leave_files(self) -> None:
        """Close what is open of files that the log has left: as long as it is, their disk space is not free."""
        self.tiers.disk.leave_read(self._current)

    def _apply_until(self, end: Positions) -> None:
        self.samples.settle(self.state)
        self._half_applied = True  # and so it stays where Ctrl-C or a bad frame ends this between two positions
        self.applying = True
        try:
            for file_id, found in self.tiers.records(self.positions, end):
                self._loader.apply(self.state, file_id, found)
            self.positions = end
            self._half_applied = False
        finally:
            self.applying = False

    def _load(self) -> None:
        self.applying = True
        try:
            self.state, self.positions = self._loader.load()
            self._half_applied = False
        finally:
            self.applying = False

    def looking(self) -> _Looking:
        """Hold the state still, up to date, while it is looked at more than once: ``with … as state``."""
        return self._looking

    def schemas(self) -> list[pa.Schema]:
        """Return the channel's schemas, oldest first."""
        if len(self._schemas) != len(self.state.schemas):
            with self._mutex:
                self._schemas = [decode_schema(s) for s in self.state.schemas]
        return self._schemas

    def is_typed(self) -> bool:
        """Tell whether this is a typed channel rather than an event channel."""
        return not self.schemas()[0].equals(EVENT_SCHEMA)

    def reader(self) -> EventReader:
        """Return a reader of events."""
        return EventReader(
            self.fs, self.layout, lambda schema_id: self.schemas()[schema_id], lambda f: self.ends().get(f)
        )

    def ends(self) -> dict[int | str, int]:
        """Return up to where the log files are written that still are: file number to offset."""
        return dict(self.positions)

    # ── appending; the channel's lock is held ───────────────────────────────────────────────

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Hold the channel's lock, with the logs healed and the state up to date."""
        with self.lock.locked(self.lock_timeout_seconds):
            self._prepare_to_commit()
            yield

    def _prepare_to_commit(self) -> None:
        """Bring the state up to date, and heal what a holder of the lock that died left; the lock was just had."""
        self.require_not_closed()  # that the channel is where it was, the lock has proven
        self.catch_up()
        if self.lock.current().is_clean():
            return
        self.tiers.disk.heal(self.state.small)
        if self.lock.current().memory.file_id:
            self.tiers.memory.heal(self.memory_image)
        self.catch_up()

    def reserve_room(self, tier: Tier, size_bytes: int) -> Position:
        """Return where the next append of a tier goes, with room for ``size_bytes``; its log may roll."""
        start = self.tiers.of(tier).reserve(size_bytes, self._snapshot(tier))
        self.catch_up()
        return start

    def append(self, plan: AppendPlan, start: Position) -> None:
        """Append what was planned, and apply it.

        Raises:
            StorageError: it could not be written; nothing of it counts.
        """
        if not plan.entries:
            return
        log = self.tiers.of(plan.tier)
        if plan.tier is Tier.MEMORY:  # without the disk tier's log nobody could read what is in memory either
            self.tiers.disk.require_in_place()
        end = log.append(start, plan.entries, plan.next_id - 1, self._snapshot(plan.tier))
        self._apply_own(plan.tier, start, end, plan.entries)
        if plan.tier is Tier.DISK:
            self.counters.disk_syncs += 1
            self.counters.disk_bytes += end.offset - start.offset
        with self._mutex:
            self.samples.note(self.state)

    def append_alone(self, request: Request) -> CommitResult:
        """Append a request to the disk tier at once, inside `committing`; for what no user asked for."""
        start = self.reserve_room(Tier.DISK, request.size_bytes())
        plan = AppendPlan(self.state, Tier.DISK, start=start.offset)
        result = request.plan(plan)
        self.append(plan, start)
        return result

    def _apply_own(self, tier: Tier, start: Position, end: Position, entries: list[Entry]) -> None:
        """Apply what this process appended, unless another of its threads has read it back already."""
        with self._mutex:
            before = self.positions.memory if tier is Tier.MEMORY else self.positions.disk
            if before != start or self._half_applied:
                return
            self.samples.settle(self.state)
            offset = start.offset
            self._half_applied = self.applying = True
            try:
                for entry in entries:
                    header = entry.header()
                    self.state.apply_record(start.file_id, offset, header, entry.record)
                    offset += frame_size(header.length)
                disk, memory = self.positions
                self.positions = Positions(disk, end) if tier is Tier.MEMORY else Positions(end, memory)
                self._applied = self.lock.current()
                self._half_applied = False
            finally:
                self.applying = False

    def _snapshot(self, tier: Tier) -> Callable[[], dict[str, Any]]:
        return self.memory_image if tier is Tier.MEMORY else self.state.small

    def memory_image(self) -> dict[str, Any]:
        """Return the whole state, with which every file of the memory tier begins: what was before is not needed."""
        return {**self.state.image(), "disk": self.positions.disk, "boot": self.lock.head.boot}

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def become_last(self) -> bool:
        """Tell whether no other handle has the channel open, and keep it so; for a handle that is being closed.

        If there is another one, this handle does not count as open any more. So of two that close at once, one is last.
        """
        self._held.open_lock.release()
        return self._held.open_lock.try_acquire()

    def close(self, *, forked: bool = False) -> None:
        """Close every file, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        self._closed = True
        self._held.close(forked=forked)

    def park(self) -> None:
        """Count as closed for everybody else until `resume`, with the state and the files of the disk tier at hand."""
        self.tiers.memory.close()  # its memory is not freed while it is open
        self._held.open_lock.release()

    def resume(self) -> bool:
        """Count as open again, and tell whether that can be; if not, close this handle.

        It can't be when the channel was removed, repaired or moved, is being recovered, or its memory
        tier is another one: what was in the last one can't be followed any more.
        """
        try:
            return (
                not self._closed
                and not self.lock.failed
                and self._held.open_lock.try_acquire(shared=True)
                and self.directories.are_in_place()
                and self.lock.head.is_in_place()
                and self._held.is_current()
                and generation_of(self.lock.published().memory.file_id) == generation_of(self.positions.memory.file_id)
            )
        except (StorageError, CorruptionError):
            return False

    def require_open(self) -> None:
        """Refuse to go on after `close` or a failure.

        Raises:
            ChannelClosedError: the channel was closed, or the log failed.
        """
        linked = not self._closed and self.lock.head.is_linked()
        self.require_not_closed()  # asked last: another thread may close it meanwhile
        if not linked:
            raise ChannelClosedError(f"{self.layout.path} was removed, or its head was; open it again")
        if self.lock.failed:
            raise ChannelClosedError(f"{self.layout.path} failed and must be opened again: {self.lock.failed}")

    def require_not_closed(self) -> None:
        """Refuse to go on after `close`; asks nobody, so that threads that begin transactions do not stop each other.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        if self._closed:
            raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again")

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
