"""The engine: everything that one process needs to use a channel, wired together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.follower import Follower, Snapshot
from spillable_stream.engine.group_owners import GroupOwners
from spillable_stream.engine.log_port import ChannelPath, Log, Reader, refuse_to_write
from spillable_stream.engine.requests import Request
from spillable_stream.engine.telemetry import Counters, FileCounts, Samples
from spillable_stream.engine.tier_ports import CheckpointingPort, UpkeepPort
from spillable_stream.log.tier_logs import Positions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.lru import LruCache

if TYPE_CHECKING:
    from spillable_stream.engine.deliveries import Deliveries
    from spillable_stream.engine.worker_statuses import WorkerStatuses
    from spillable_stream.objects.metered_store import StoreUsage

__all__ = ["OPEN_OF_GROUPS", "Engine"]

OPEN_OF_GROUPS = 32
"""Of so many groups, those that took last, what they read with stays open."""


class _Commit(Protocol):
    """`Committer.commit`."""

    def __call__(
        self, request: Request, keep_alive_seconds: float = 0.0, waited_seconds: float | None = None
    ) -> CommitResult: ...


class _Follow(Protocol):
    """`Follower.follow`."""

    def __call__(self, *, unchecked: bool = False) -> ChannelState: ...


class Engine(ABC):
    """The channel as one process uses it, wherever its log is. Thread-safe.

    Each kind of log has an engine of its own, which makes the parts and hands them to `_wire`, each part of whole
    parts::

        Log ── Follower ── Appender ── Committer

    Args:
        path: what users call the channel.
        channel: its UUID.

    Attributes:
        path: what users call the channel.
        channel: its UUID.
        log: the log.
        follower: keeps the state up to date with the log.
        appender: appends to the log.
        committer: commits requests.
        owners: the owners of the groups.
        deliveries: delivers delayed events that are due.
        checkpointing: creates checkpoints.
        upkeep: does in the background what is due.
        active_calls: the calls under way: a close waits for them, and no call may start inside another.
        counters: the counters of this handle.
        readers: the event readers of the groups that took last, by group. There may be thousands of groups.
        prepare_put: called before a put transaction begins: makes what puts need, such as a memory tier.
        memory_put_bytes: returns the most payload bytes of a put transaction that can go to memory; 0 without a memory
            tier.
        store_usage: returns what this handle has asked of an object store; None on a disk.
        worker_statuses: what workers say of themselves to other processes.
        make_room: gives back the space of taken events, for what is staged and finds none.
    """

    appender: Appender
    checkpointing: CheckpointingPort
    commit: _Commit
    committer: Committer
    committing: Callable[[], AbstractContextManager[None]]
    deliveries: Deliveries
    follow: _Follow
    follower: Follower
    is_typed: Callable[[], bool]
    log: Log
    make_room: Callable[[], None]
    memory_put_bytes: Callable[[], int]
    owners: GroupOwners
    prepare_put: Callable[[], None]
    require_not_closed: Callable[[], None]
    require_open: Callable[[], None]
    schemas: Callable[[], list[pa.Schema]]
    upkeep: UpkeepPort
    wait_for: Callable[[Callable[[ChannelState], bool], float], bool]
    worker_statuses: WorkerStatuses

    def __init__(self, path: ChannelPath, channel: str) -> None:
        self.path: ChannelPath = path
        self.channel: str = channel
        self.active_calls: ActiveCalls = ActiveCalls(f"the channel {path}")
        self.counters: Counters = Counters()
        self.readers: LruCache[Reader] = LruCache(OPEN_OF_GROUPS)
        self.store_usage: Callable[[], StoreUsage | None] = lambda: None

    def _wire(self, owners: GroupOwners, committer: Committer) -> None:
        """Bind the verbs to the parts; `log`, `follower` and `appender` are set."""
        log, follower = self.log, self.follower
        self.owners = owners
        self.committer = committer
        # Bound methods rather than delegating ones: every put and take would pay for the extra call.
        self.commit = committer.commit
        self.committing = self.appender.committing
        self.follow, self.wait_for = follower.follow, follower.wait_for
        self.schemas, self.is_typed = follower.schemas, follower.is_typed
        self.require_open, self.require_not_closed = log.require_open, log.require_not_closed

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
    def lock_timeout_seconds(self) -> float:
        """How long to wait for other processes."""
        return self.log.lock_timeout_seconds

    @lock_timeout_seconds.setter
    def lock_timeout_seconds(self, seconds: float) -> None:
        self.log.lock_timeout_seconds = seconds

    def snapshot(self) -> Snapshot:
        """Return an up-to-date state that stays unchanged within the block: ``with … as state``."""
        return self.follower.snapshot

    def reader(self) -> Reader:
        """Return a new reader of events."""
        return self.log.reader(self.follower.schema_of, self.follower.end_of)

    def refuse_to_write(self, what: str) -> NoReturn:
        """Refuse a call that would write to a channel that is only looked at.

        Args:
            what: the call, with its article.

        Raises:
            ReadonlyChannelError: always.
        """
        refuse_to_write(self.path, what)

    # ── what each kind of log has in its own way ────────────────────────────────────────────

    @abstractmethod
    def without_fixed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options that can be changed, after a check that the others are as the channel has them.

        Args:
            given: options by keyword name, with values as `parse_options` returns them.

        Raises:
            OptionError: one is fixed when a channel is created, and differs.
        """

    @abstractmethod
    def fixed_options(self) -> dict[str, object]:
        """Return the options that were fixed when the channel was created, by keyword name."""

    @abstractmethod
    def file_counts(self, state: ChannelState) -> FileCounts:
        """Return what the channel's files are like, by a state that is held still."""

    @abstractmethod
    def flush(self) -> int:
        """Move every event of the memory tier to disk, and return how many there were.

        Raises:
            StorageError: the disk refused; what was not moved is still in memory.
            TransactionStateError: this thread is inside of another call to the channel.
        """

    # ── closing ─────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.log.closed

    @abstractmethod
    def leave(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Do what a close must do first; a handle that only looks, or whose log failed, does nothing.

        Args:
            checkpoint: whether to create a checkpoint; None: as ``checkpointOnClose`` says.
            flush: whether the last handle moves to disk what is in memory; None: as ``flushOnClose`` says.

        Raises:
            StorageError: the storage refused; what was in memory still is.
        """

    @abstractmethod
    def park(self) -> None:
        """Count as closed for everybody else until `resume`, with the state and the files at hand.

        Raises:
            StorageError: the storage refused what a close must do, too.
        """

    @abstractmethod
    def resume(self) -> bool:
        """Reopen the handle after `park`, and tell whether that worked; if not, close it."""

    @abstractmethod
    def close(self, *, forked: bool = False) -> None:
        """Close everything after the append under way; write nothing.

        Args:
            forked: the process is a forked child, where the thread that holds the lock may not exist: do not wait.
        """
