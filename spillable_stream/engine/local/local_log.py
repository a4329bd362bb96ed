"""The log on this host: one commit lock and head, and the files of two tiers. It implements `Log`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.engine.local.memory_capacity import file_size_bytes
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.opening import adopted, enter
from spillable_stream.engine.log_port import Followed, refuse_to_write
from spillable_stream.errors import ChannelBusyError, ChannelClosedError, CorruptionError, StorageError
from spillable_stream.format.file_names import GENERATION_BITS, MEMORY, Tier, generation_of
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.directories import Directories
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.identity_file import extend_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.log.tier_logs import Positions, Tiers
from spillable_stream.log.wal import Position
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import MemoryImage
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.engine.local.readonly_view import ReadonlyView

__all__ = ["FILES_OF_A_LIMIT", "LocalLog"]

FILES_OF_A_LIMIT = 8
"""The log begins a new file at this part of a limit of retention."""

_MOST_RENEWALS = 4


class _Hold(Protocol):
    """`CommitLock.locked`."""

    def __call__(self, timeout_seconds: float, prepare: Callable[[], None] = ...) -> AbstractContextManager[None]: ...


class LocalLog:
    """The log of a channel in a directory, as one handle has it open.

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.
        readonly: whether the channel is only looked at: the handle holds nothing and refuses to append.

    Attributes:
        position: returns what the head publishes: where the log ends for everybody.
        latest_position: the same: a look at the head costs little.
        held_position: returns the same while the commit lock is held, without a look at the head.
        hold: holds the commit lock (`CommitLock.locked`).
        view: how a channel that is only looked at is found; None for a handle that holds it.
        closed: whether `close` was called.
        is_far: False: a look costs a system call.
        poll_seconds: how long to wait before another look at first, and at most.
        torn_bytes: how many bytes a recovery cut when the channel was opened.
        recovered: whether this handle came first, and recovered the channel.
        recovery: the token of the channel's last recovery; "" if it is not known.
    """

    position: Callable[[], CommitPoint]
    latest_position: Callable[[], CommitPoint]
    held_position: Callable[[], CommitPoint]
    hold: _Hold
    fs: FileSystem
    layout: Layout
    lock: CommitLock
    tiers: Tiers
    checkpoints: Checkpoints
    directories: Directories
    memory_directory: MemoryDirectory
    torn_bytes: int
    recovered: bool
    recovery: str

    def __init__(
        self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0, *, readonly: bool = False
    ) -> None:
        self.lock_timeout_seconds = lock_timeout_seconds
        self.closed: bool = False
        self.is_far: bool = False
        self._is_extended = False
        self.poll_seconds: tuple[float, float] = (0.001, 0.05)
        self._obeyed: tuple[ChannelOptions, int, Tiers] | None = None  # what `obey` was told last
        self.view: ReadonlyView | None = None
        if readonly:
            from spillable_stream.engine.local.readonly_view import ReadonlyView

            self.view = ReadonlyView(fs, layout)
            found = self.view.find(lock_timeout_seconds)
            self._use(found.held)
            self.view.adopt(found)
        else:
            self._use(enter(fs, adopted(fs, layout, lock_timeout_seconds), lock_timeout_seconds))

    def _use(self, held: HeldChannel) -> None:
        self._held = held
        self.lock, self.tiers, self.checkpoints = held.lock, held.tiers, held.checkpoints
        self.directories, self.memory_directory = held.directories, held.memory_directory
        self.fs, self.layout = held.lock.fs, held.lock.layout
        self.torn_bytes, self.recovered = held.torn_bytes, held.recovered
        self.recovery = held.recovery
        # No methods of this class: a transaction calls them many times, and each call in between counts.
        self.position = self.latest_position = held.lock.published
        self.held_position = held.lock.current
        self.hold = held.lock.locked if self.view is None else self._refuse

    def _refuse(self, timeout_seconds: float, prepare: Callable[[], None] = lambda: None) -> NoReturn:
        refuse_to_write(self.layout.path, "a commit")

    @property
    def path(self) -> Path:
        """The channel's directory."""
        return self.layout.path

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for work that no call asked for: a log on a disk meets no loss that waits."""
        return nullcontext()

    @property
    def is_view(self) -> bool:
        """Whether the channel is only looked at."""
        return self.view is not None

    @property
    def failed(self) -> str | None:
        """Why nothing can be committed through this handle any more, or None."""
        return self.lock.failed

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def load(self) -> tuple[ChannelState, Positions]:
        """Return the state at the published end, and where that is.

        Raises:
            ChannelBusyError: the channel changes faster than it can be read.
            CorruptionError: the log is damaged.
            DataLossError: events are missing.
        """
        for _ in range(_MOST_RENEWALS):
            try:
                return self._held.load()
            except (ChannelBusyError, CorruptionError):
                if self.is_current():
                    raise
                self.renew()  # a view's head is its own: it does not tell what a writer does that has come meanwhile
        return self._held.load()

    def follow(self, state: ChannelState, start: Positions, end: Positions) -> int:
        """Apply to a state what lies between two published positions, and return how many appends to disk it was.

        Raises:
            FileNotFoundError: a file at ``start`` was removed since: load the state.
            CorruptionError: a frame that must be whole is not; or it is invalid.
        """
        apply = self._held.loader.apply
        appends = last_us = 0
        for file_id, found in self.tiers.records(start, end):
            apply(state, file_id, found)
            if found.header.time_us != last_us:  # no two appends have the same time
                last_us = found.header.time_us
                appends += file_id >> GENERATION_BITS == 0  # `in_memory` without its calls: this is a hot path
        return appends

    def is_current(self) -> bool:
        """Tell whether what this handle reads is still the channel: of a view, whether no writer came or left."""
        return self.view is None or (self.lock.head.is_linked() and self.view.is_current())

    def renew(self) -> None:
        """Find a channel that is only looked at anew, since a writer came or left; the caller loads its state."""
        assert self.view is not None
        left, found = self._held, self.view.find(self.lock_timeout_seconds)
        self._use(found.held)
        left.close()
        self.view.adopt(found)  # last: after an interrupt the next look finds it anew

    def look_closely(self) -> None:
        """Do nothing: an open has read the head, and all files behind the newest checkpoint."""

    def reader(self, schema_of: Callable[[int], pa.Schema], end_of: Callable[[int | str], int | None]) -> EventReader:
        """Return a reader of events; `Log.reader` explains the arguments."""
        return EventReader(self.fs, self.layout, schema_of, end_of)

    # ── appending; the commit lock is held ──────────────────────────────────────────────────

    def obey(self, state: ChannelState) -> None:
        """Write as the channel's options say."""
        said = options, byte_capacity, tiers = state.options, state.memory_byte_capacity(), self.tiers
        if said == self._obeyed:  # mostly: others have only put and taken
            return
        disk, memory = tiers.disk, tiers.memory
        disk.max_file_size_bytes = options.max_file_size
        if options.retention_bytes:  # so that there is always a file that can go
            disk.max_file_size_bytes = min(options.max_file_size, options.retention_bytes // FILES_OF_A_LIMIT)
        disk.preallocation.minimum_required_space = options.minimum_required_space
        memory.max_file_size_bytes = file_size_bytes(byte_capacity, options)
        self._obeyed = said

    def heal(self, at: Followed) -> None:
        """Cut what a holder of the lock that died or failed left behind the published ends.

        Args:
            at: the state at these ends.
        """
        self.tiers.disk.heal(at.state.small)
        if self.lock.current().memory.file_id:
            self.tiers.memory.heal(partial(self.memory_image, at))

    def memory_image(self, at: Followed) -> MemoryImage:
        """Return the whole state, with which every file of the memory tier begins: what was before is not needed."""
        return {**at.state.image(), "disk": at.positions.disk, "boot": self.lock.head.boot}

    def reserve(self, tier: Tier, size_bytes: int, at: Followed) -> Position:
        """Return where the next append of a tier goes; its log may roll to a new file.

        Args:
            tier: the tier.
            size_bytes: the size of the append, at most.
            at: the state with which a new file begins.
        """
        if tier is MEMORY:
            return self.tiers.memory.reserve(size_bytes, partial(self.memory_image, at))
        return self.tiers.disk.reserve(size_bytes, at.state.small)

    def append(self, plan: AppendPlan, start: Position, at: Followed) -> Position | None:
        """Append what was planned, and publish it.

        Args:
            plan: the entries.
            start: what `reserve` returned.
            at: the state that it was planned on, with which a new file begins after a sync that failed.

        Returns:
            Where it ends. Never None here: with the commit lock held, no append is lost to another one.

        Raises:
            StorageError: it could not be written; nothing of it counts.
            CommitOutcomeUnknownError: a sync failed, and so did recording that it had.
        """
        tiers = self.tiers
        if plan.tier is MEMORY:  # without the disk tier's log nobody could read what is in memory either
            tiers.disk.require_in_place()
            return tiers.memory.append(start, plan.entries, plan.next_id - 1, partial(self.memory_image, at))
        return tiers.disk.append(start, plan.entries, plan.next_id - 1, at.state.small)

    def extend_format(self) -> None:
        """Record durably that the log has records from now on that earlier versions of this package can't read.

        Raises:
            StorageError: the file system refused; the next call does it again.
        """
        if not self._is_extended:
            extend_identity(self.fs, self.layout)
            self._is_extended = True

    def leave_written(self, file_id: int) -> None:
        """Close the data file that was written if the log continued in another one."""
        self.tiers.disk.leave_written(file_id)

    def leave_read(self, file_id: int) -> None:
        """Close the data file that was followed if the log continued in another one."""
        self.tiers.disk.leave_read(file_id)

    # ── staging and checkpoints ─────────────────────────────────────────────────────────────

    def stage(
        self, *, memory_bytes: int = 0, minimum_required_space: int | None = 0, waiting_bytes: int = 0
    ) -> StagedFileWriter:
        """Return a new file for events that a later append adopts; the arguments are `StagedFileWriter`'s.

        Raises:
            ChannelClosedError: a directory is not where it was.
            StorageError: the file system refused.
        """
        self.directories.require_in_place()
        return StagedFileWriter(
            self.fs,
            self.layout,
            memory_bytes=memory_bytes,
            minimum_required_space=minimum_required_space,
            waiting_bytes=waiting_bytes,
        )

    @property
    def checkpoint_ms(self) -> int:
        """When the last checkpoint was created, in milliseconds since 1970; 0 if none is known."""
        return self.position().checkpoint_ms

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def become_last(self) -> bool:
        """Tell whether no other handle has the channel open, and keep it so; for a handle that is being closed.

        If there is another one, this handle does not count as open any more. So of two that close at once, one is last.
        A handle that only looks is never last: it does not count.
        """
        if self.view is not None:
            return False
        self._held.open_lock.release()
        return self._held.open_lock.try_acquire()

    def close(self, *, forked: bool = False) -> None:
        """Close every file, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where the lock's holder may not exist: wait for nobody.
        """
        self.closed = True
        self._held.close(forked=forked)

    def park(self) -> None:
        """Count as closed for everybody else until `resume`, with the files of the disk tier at hand."""
        if self.view is None:
            self.tiers.memory.close()  # its memory is not freed while it is open
            self._held.open_lock.release()

    def resume(self, positions: Positions) -> bool:
        """Count as open again, and tell whether that can be; if not, close this handle.

        It can't be when the channel was removed, repaired or moved, was recovered or is being recovered, or its memory
        tier is another one: what was in the last one can't be followed any more.

        Args:
            positions: where the state of the handle is.
        """
        if self.view is not None:
            return not self.closed and self.view.exists()
        try:
            return (
                not self.closed
                and not self.lock.failed
                and self._held.open_lock.try_acquire(shared=True)
                and self.directories.are_in_place()
                and self.lock.head.is_in_place()
                and self._held.is_current()
                and self._held.noted_recovery() == self.recovery
                and generation_of(self.position().memory.file_id) == generation_of(positions.memory.file_id)
            )
        except (StorageError, CorruptionError):
            return False

    def require_in_place(self) -> None:
        """Prove that the channel's directories are where they were.

        Raises:
            ChannelClosedError: one was moved, removed or replaced.
        """
        self.directories.require_in_place()

    def require_open(self) -> None:
        """Refuse any use after `close` or a failure.

        Raises:
            ChannelClosedError: the channel was closed, or the log failed.
        """
        linked = not self.closed and self.lock.head.file.is_linked()
        if self.closed:  # asked last: another thread may close it meanwhile
            self.require_not_closed()
        if not linked:
            raise ChannelClosedError(f"{self.layout.path} or its head was removed; open it again")
        if self.lock.failed:
            raise ChannelClosedError(f"{self.layout.path} failed and must be opened again: {self.lock.failed}")

    def require_not_closed(self) -> None:
        """Refuse any use after `close`; asks nobody, so that threads that begin transactions do not stop each other.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        if self.closed:
            raise ChannelClosedError(f"the channel {self.layout.path} is closed; open it again")
