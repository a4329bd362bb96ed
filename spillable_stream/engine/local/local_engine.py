"""The engine of a channel on this host: a directory, a memory tier before the disk, files that are freed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.delayed_puts import DelayedPuts
from spillable_stream.engine.deliveries import Deliveries
from spillable_stream.engine.engine import OPEN_OF_GROUPS, Engine
from spillable_stream.engine.fixed_options import fixed_options, without_fixed
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.disk_room import DiskRoom
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.local.leaving import Leaving
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.local_owners import LocalOwners
from spillable_stream.engine.local.local_worker_statuses import LocalWorkerStatuses
from spillable_stream.engine.local.memory_capacity import byte_capacity
from spillable_stream.engine.local.memory_tier import MemoryTier
from spillable_stream.engine.local.moving import Moving
from spillable_stream.engine.local.retention_files import RetentionFiles
from spillable_stream.engine.local.staged_delays import FileStaging
from spillable_stream.engine.local.staged_puts import StagedPuts
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.engine.options_by_storage import refuse_unfit_options
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.telemetry import FileCounts
from spillable_stream.format.file_names import Tier
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lru import LruCache

__all__ = ["LocalEngine"]


class LocalEngine(Engine):
    """The channel as one process of its host uses it. Thread-safe.

    Each part takes finished parts::

        LocalLog ── Follower ── Appender ── MemoryTier ── Checkpointing ── DiskRoom ── Committer
                                   └─ Retention, Moving, AutomaticGroups ─────┘ └────── Upkeep

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.
        readonly: open for reading only: write nothing and hold no lock.

    Attributes:
        memory: the memory tier.
        moving: moves events from memory to disk.
        retention: lets kept events go.
        drained: the files that nothing needs any more.
        room: frees disk space.
        leaving: does what comes before a handle is closed, or parked.
        position_files: the open position files of the groups that took last.
    """

    appender: Appender
    checkpointing: Checkpointing
    deliveries: Deliveries
    follower: Follower
    log: LocalLog
    make_room: Callable[[], None]
    make_room_if_short: Callable[[], None]
    memory_put_bytes: Callable[[], int]
    owners: LocalOwners
    prepare_put: Callable[[], None]
    upkeep: Upkeep
    wait_for: Callable[[Callable[[ChannelState], bool], float], bool]

    def __init__(self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float, *, readonly: bool = False) -> None:
        super().__init__(layout.path, layout.channel)
        self.position_files: LruCache[File] = LruCache(OPEN_OF_GROUPS)
        self.log = log = LocalLog(fs, layout, lock_timeout_seconds, readonly=readonly)
        try:
            self.follower = follower = Follower(log, self.active_calls, self.readers.clear)
            self.appender = appender = Appender(log, follower, self.counters)
            log.lock.meanwhile = follower.follow
            self.memory: MemoryTier = MemoryTier(log, follower, appender)
            self.moving: Moving = Moving(log, follower, appender, self.memory)
            owners = LocalOwners(log, follower, appender, self.position_files)
            files = RetentionFiles(log, follower, appender)
            self.retention: Retention = Retention(
                log, follower, appender, owners, lambda: log.lock.head.boot.hex(), files.begin_if_old
            )
            self.drained: DrainedFiles = DrainedFiles(log, follower, appender)
            self.checkpointing = Checkpointing(
                log, follower, appender, self.memory, self.drained, self.active_calls, self.counters
            )
            self.active_calls.let_go = self._let_go
        except BaseException:
            log.close()
            raise
        self.room: DiskRoom = DiskRoom(
            log, follower, self.checkpointing, self.drained, self.retention, self.active_calls
        )
        self._wire(owners, self._committer(owners))
        self.worker_statuses: LocalWorkerStatuses = LocalWorkerStatuses(fs, layout)
        self.deliveries = deliveries = self._new_deliveries()
        self.wait_for, self.committer.deliver = deliveries.wait_for, deliveries.deliver
        groups = AutomaticGroups(log, follower, appender, owners)
        self.upkeep = Upkeep(
            log, follower, self.retention, self.moving, groups, self.checkpointing, self.room, self.active_calls
        )
        self.leaving: Leaving = Leaving(
            log, follower, self.memory, self.moving, self.checkpointing, self.drained, self.upkeep, self.active_calls
        )
        self.checkpointing.after_each = self.committer.when_full = self.upkeep.ensure
        self.prepare_put, self.memory_put_bytes = self.memory.create, self.memory.most_put_bytes
        self.make_room, self.make_room_if_short = self.room.make, self.room.make_if_short

    def _let_go(self) -> None:
        self.log.lock.let_go()
        self.checkpointing.let_go()

    def _stage(self) -> StagedFileWriter:
        """Return a new staged file on disk, for delayed events of a large put."""
        state = self.state
        return self.log.stage(
            minimum_required_space=state.options.minimum_required_space, waiting_bytes=state.delays.payload_bytes
        )

    def _new_deliveries(self) -> Deliveries:
        files = DelayedFiles(self.log.fs, self.log.layout)
        stage = partial(FileStaging, self._stage, lambda: self.make_room(), files)
        puts, make_room = partial(DelayedPuts, files), self.room.make_within_a_commit
        return Deliveries(self.log, self.follower, self.appender, make_room, files, puts, stage)

    def _committer(self, owners: LocalOwners) -> Committer:
        return Committer(
            self.log,
            self.follower,
            self.appender,
            self.memory,
            self.moving,
            self.room,
            StagedPuts(self.log.fs, self.log.layout, self.log.tiers.disk),
            owners,
            self.active_calls,
            self.counters,
        )

    # ── views of the parts ──────────────────────────────────────────────────────────────────

    @property
    def fs(self) -> FileSystem:
        """The file system."""
        return self.log.fs

    @property
    def layout(self) -> Layout:
        """The channel's files."""
        return self.log.layout

    def without_fixed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options that can be changed; the directories and the mode are fixed. Raises `OptionError`."""
        refuse_unfit_options(given, in_store=False)
        return without_fixed(self.layout, given)

    def fixed_options(self) -> dict[str, object]:
        """Return the mode and the directories, by keyword name."""
        return fixed_options(self.layout)

    def file_counts(self, state: ChannelState) -> FileCounts:
        """Return how many files there are now, and how much memory the tier has or would get."""
        fs, layout = self.fs, self.layout
        return FileCounts(
            data_files=len(layout.log_files(fs)),
            memory_files=len(layout.log_files(fs, Tier.MEMORY)),
            segments=len(layout.segments(fs)),
            torn_bytes=self.log.torn_bytes,
            memory_payload_bytes=self._memory_payload_bytes(state),
        )

    def _memory_payload_bytes(self, state: ChannelState) -> int:
        if not state.options.memory_capacity:
            return 0
        if state.memory.open:
            return state.memory_limits().payload_bytes
        return state.payloads_within(byte_capacity(self.fs, state.options))

    # ── closing ─────────────────────────────────────────────────────────────────────────────

    def flush(self) -> int:
        """Move every event of the memory tier to disk, and return how many there were; as `Engine` says."""
        return self.leaving.flush()

    def leave(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Let old events go, create a checkpoint; as the last handle, move memory to disk, and reserve no space."""
        self.leaving.leave(checkpoint=checkpoint, flush=flush)

    def park(self) -> None:
        """Count as closed for everybody else until `resume`; as the last handle, move memory to disk."""
        self.leaving.park()

    def resume(self) -> bool:
        """Reopen the handle after `park`, and tell whether that worked; if not, close it."""
        return self.log.resume(self.follower.positions)

    def close(self, *, forked: bool = False) -> None:
        """Close every file after the append under way; write nothing. `Engine` documents it."""
        self.upkeep.close(forked=forked)
        self.log.close(forked=forked)
        self.checkpointing.close()
        self.readers.clear()
        self.position_files.clear()
