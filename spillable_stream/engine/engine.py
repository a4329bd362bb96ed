"""The engine: everything that one process needs to use a channel, wired together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import pyarrow as pa

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.checkpointing import Checkpointing
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.disk_room import DiskRoom
from spillable_stream.engine.drained_files import DrainedFiles
from spillable_stream.engine.follower import Follower, Snapshot
from spillable_stream.engine.local_log import LocalLog
from spillable_stream.engine.memory_tier import MemoryTier
from spillable_stream.engine.moving import Moving
from spillable_stream.engine.ownerless_groups import ownerless_groups
from spillable_stream.engine.requests import Request
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.staged_puts import StagedPuts
from spillable_stream.engine.telemetry import Counters, Samples
from spillable_stream.engine.upkeep import Upkeep
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.layout import Layout
from spillable_stream.log.tier_logs import Positions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lru import LruCache

__all__ = ["Engine"]

_OPEN_OF_GROUPS = 32


class _Commit(Protocol):
    """`Committer.commit`."""

    def __call__(
        self, request: Request, keep_alive_seconds: float = 0.0, waited_seconds: float | None = None
    ) -> CommitResult: ...


class _Follow(Protocol):
    """`Follower.follow`."""

    def __call__(self, *, unchecked: bool = False) -> ChannelState: ...


class Engine:
    """The channel as one process uses it. Thread-safe.

    Each part takes finished parts::

        LocalLog ── Follower ── Appender ── MemoryTier ── Checkpointing ── DiskRoom ── Committer
                                   └─ Retention, Moving, AutomaticGroups ─────┘ └────── Upkeep

    Args:
        fs: the file system.
        layout: the channel's files.
        lock_timeout_seconds: how long to wait for other processes.
        readonly: open for reading only: write nothing and hold no lock.

    Attributes:
        log: the log.
        follower: keeps the state up to date with the log.
        appender: appends to the log.
        memory: the memory tier.
        moving: moves events from memory to disk.
        retention: lets kept events go.
        drained: the files that nothing needs any more.
        checkpointing: makes checkpoints.
        room: frees disk space.
        committer: commits requests.
        upkeep: lets events and groups go in the background.
        active_calls: the calls under way: a close waits for them, and no call may start inside another.
        counters: the counters of this handle.
        readers: the event readers of the groups that took last, by group. There may be thousands of groups.
        position_files: the open position files of these groups.
    """

    appender: Appender
    become_last: Callable[[], bool]
    committing: Callable[[], AbstractContextManager[None]]
    append_alone: Callable[[Request], CommitResult]
    commit: _Commit
    follow: _Follow
    schemas: Callable[[], list[pa.Schema]]
    wait_for: Callable[[Callable[[ChannelState], bool], float], bool]
    ends: Callable[[], dict[int | str, int]]
    follower: Follower
    is_typed: Callable[[], bool]
    log: LocalLog
    make_room: Callable[[], None]
    make_room_if_short: Callable[[], None]
    require_not_closed: Callable[[], None]
    require_open: Callable[[], None]

    def __init__(
        self, fs: FileSystem, layout: Layout, lock_timeout_seconds: float = 30.0, *, readonly: bool = False
    ) -> None:
        self.active_calls: ActiveCalls = ActiveCalls(f"the channel {layout.path}")
        self.counters: Counters = Counters()
        self.readers: LruCache[EventReader] = LruCache(_OPEN_OF_GROUPS)
        self.position_files: LruCache[File] = LruCache(_OPEN_OF_GROUPS)
        self.log = log = LocalLog(fs, layout, lock_timeout_seconds, readonly=readonly)
        try:
            self.follower = follower = Follower(log, self.active_calls, self.readers.clear)
            self.appender = appender = Appender(log, follower, self.counters)
            self.memory: MemoryTier = MemoryTier(log, follower, appender)
            self.moving: Moving = Moving(log, follower, appender, self.memory)
            self.retention: Retention = Retention(log, follower, appender)
            self.drained: DrainedFiles = DrainedFiles(log, follower, appender)
            self.checkpointing: Checkpointing = Checkpointing(
                log, follower, appender, self.memory, self.drained, self.active_calls, self.counters
            )
        except BaseException:
            log.close()
            raise
        self.room: DiskRoom = DiskRoom(log, follower, self.checkpointing, self.retention, self.active_calls)
        staged = StagedPuts(log.fs, log.layout)
        self.committer: Committer = Committer(
            log,
            follower,
            appender,
            self.memory,
            self.moving,
            self.room,
            staged,
            partial(ownerless_groups, log.fs, log.layout),
            self.active_calls,
            self.counters,
        )
        groups = AutomaticGroups(log, follower, appender)
        self.upkeep: Upkeep = Upkeep(
            log, follower, self.retention, self.moving, groups, self.checkpointing, self.room, self.active_calls
        )
        self.checkpointing.after_each = self.committer.when_full = self.upkeep.ensure
        # Bound methods rather than delegating ones: every put and take would pay for the extra call.
        self.commit = self.committer.commit
        self.committing, self.append_alone = appender.committing, appender.append_alone
        self.follow, self.wait_for = follower.follow, follower.wait_for
        self.schemas, self.is_typed, self.ends = follower.schemas, follower.is_typed, follower.ends
        self.require_open, self.require_not_closed = log.require_open, log.require_not_closed
        self.become_last = log.become_last
        self.make_room, self.make_room_if_short = self.room.make, self.room.make_if_short

    # ── views of the parts ──────────────────────────────────────────────────────────────────

    @property
    def state(self) -> ChannelState:
        """The state at the last time that the follower read the log."""
        return self.follower.state

    @property
    def positions(self) -> Positions:
        """The positions in the logs that the state reflects."""
        return self.follower.positions

    @property
    def samples(self) -> Samples:
        """The channel's recent past."""
        return self.follower.samples

    @property
    def fs(self) -> FileSystem:
        """The file system."""
        return self.log.fs

    @property
    def layout(self) -> Layout:
        """The channel's files."""
        return self.log.layout

    @property
    def lock_timeout_seconds(self) -> float:
        """How long to wait for other processes."""
        return self.log.lock_timeout_seconds

    @lock_timeout_seconds.setter
    def lock_timeout_seconds(self, seconds: float) -> None:
        self.log.lock_timeout_seconds = seconds

    def snapshot(self) -> Snapshot:
        """Return an up-to-date state that stays unchanged within the block: ``with … as state``."""
        return self.follower.snapshot

    def reader(self) -> EventReader:
        """Return a new reader of events."""
        return self.log.reader(self.follower.schemas, self.follower.ends)

    # ── closing ─────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.log.closed

    def park(self) -> None:
        """Count as closed for everybody else until `resume`, with the state and the files at hand."""
        self.upkeep.stop()
        self.log.park()

    def resume(self) -> bool:
        """Reopen the handle after `park`, and tell whether that worked; if not, close it."""
        return self.log.resume(self.follower.positions)

    def close(self, *, forked: bool = False) -> None:
        """Close every file after the append under way; write nothing.

        Args:
            forked: the process is a forked child, where the thread that holds the lock may not exist: do not wait.
        """
        self.upkeep.close(forked=forked)
        self.log.close(forked=forked)
        self.checkpointing.close()
        self.readers.clear()
        self.position_files.clear()
