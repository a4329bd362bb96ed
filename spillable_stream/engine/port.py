"""The port of an engine: all that Spark's source and sink and the producers may ask of a channel's engine.

It speaks of write-order IDs, ranges, frames and staged files. `LocalPort` answers for a channel on this host; a channel
on another kind of storage implements the same verbs. What a task of another process needs is in a plan that it can be
sent (`spillable_stream.engine.task_plans`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NoReturn, Protocol

import pyarrow as pa

from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.delayed_puts import Delayed, StagedDelayed
from spillable_stream.engine.known_state import KnownState, beginning_with
from spillable_stream.engine.one_look import one_look
from spillable_stream.engine.put_request import NoRoomYetError, Put
from spillable_stream.engine.task_plans import (
    PlanReader,
    ReadBatch,
    ReadPlan,
    StagedFile,
    StagePlan,
    Staging,
    Unreadable,
)
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.format.query_note import FirstBatch, HighWater, QueryNote
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.store import is_refusal
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range

__all__ = [
    "PARALLELISM",
    "ChannelPort",
    "Delayed",
    "DelayedChunk",
    "DiskCache",
    "FirstBatch",
    "GroupOwner",
    "HighWater",
    "KnownState",
    "NoRoomYetError",
    "PlanReader",
    "ProducerClaim",
    "Put",
    "QueryNote",
    "ReadBatch",
    "ReadPlan",
    "SinkBatch",
    "StagePlan",
    "StagedDelayed",
    "StagedFile",
    "Staging",
    "Unreadable",
    "beginning_with",
    "is_refusal",
    "one_look",
]


PARALLELISM = "SPILLABLE_PARALLELISM"
"""The environment variable that says how many tasks of Spark run at once, to the worker that plans a read."""


class SinkBatch(NamedTuple):
    """What identifies a sink's batch, so that it is committed once.

    Args:
        query: a streaming query's ID, or an application's name.
        batch_id: the batch's number, which rises.
    """

    query: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The last owner of a group.

    Args:
        note: what it wrote about itself (`Consumer.owner`); "" if nobody owned the group.
        since: when it took the group; None if the note does not say it.
    """

    note: str
    since: datetime | None


class ProducerClaim(Protocol):
    """A producer's ID that this process has claimed.

    Batches that a producer numbers itself are known by their numbers alone. So a put proves that the ID is still its
    producer's: another one, which got it meanwhile, has used the same numbers for other events.
    """

    def require(self, state: ChannelState) -> None:
        """Prove that nobody else has had the ID since, where a put is planned.

        Args:
            state: the channel's state, on which the put is planned.

        Raises:
            ProducerBusyError: somebody else may have had it.
        """

    def release(self) -> None:
        """Give the ID up."""

    def leave(self) -> None:
        """In a forked child: leave the claim to the parent."""


class ChannelPort(Protocol):
    """What the users of a channel's engine may ask. Thread-safe.

    What looks at the log, or adds to it, raises what `snapshot` raises, and besides that what it says itself.
    """

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def place(self) -> str:
        """Return which channel it is, by whatever path it was opened; a copy, which has its UUID, is another one."""

    def schemas(self) -> list[pa.Schema]:
        """Return the schemas that the channel has had, oldest first, as far as this handle has followed."""

    def snapshot(self) -> AbstractContextManager[ChannelState]:
        """Hold the state still, up to date, while it is looked at: ``with port.snapshot() as state``.

        Raises:
            ChannelBusyError: others change the channel too fast to be followed, or recover or repair it.
            ChannelClosedError: the channel was closed, removed, or failed.
            CorruptionError: the log, or the head, is damaged; a `DataLossError` if events are missing.
            NotAChannelError: a channel in a store is no longer there.
            StorageError: the storage refused.
            UnsafeStoreError: a store has lost acknowledged events; it is raised once.
        """

    def position(self) -> Hashable:
        """Return what is committed last, as a value that every commit changes; cheap to ask.

        Raises what `snapshot` raises.
        """

    def latest_position(self) -> Hashable:
        """Return what `position` returned last, or a later value, without a look where a look costs much."""

    def put_time_us(self, event_id: int) -> int:
        """Return when an event was put, which tells it from others that had its ID, in microseconds since 1970.

        Returns:
            0 where that is not known to the microsecond, or the channel has other means to tell events apart.
        """

    def least_pause_seconds(self) -> float:
        """Return the least time between two looks at a channel to which nothing comes."""

    def commit_delay_seconds(self) -> float:
        """Return how long a commit of takes may wait for another append to be in; 0 where an append costs little."""

    def require_open(self) -> None:
        """Refuse a channel that was closed.

        Raises:
            ChannelClosedError: the channel was closed, removed, or failed.
        """

    def first_id_since(self, time_us: int) -> int:
        """Return the first event committed at a time or later; the next event's ID if there is none.

        Args:
            time_us: the time, in microseconds since 1970.

        Raises:
            CorruptionError: the log can't be read there.
        """

    def known_state(self) -> KnownState | None:
        """Return what another process may begin with (`beginning_with`); None: it opens the channel as usual."""

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def plan_read(self, parts: Iterable[Iterable[Range]], cache: DiskCache | None = None) -> list[ReadPlan]:
        """Return for each part of a read what a task needs to read it, by the snapshot that the caller is in, if any.

        Args:
            parts: the events of each part, in order.
            cache: where each host keeps what it reads of a channel in a store; None: nowhere.
        """

    def expired(self, ranges: Iterable[Range]) -> list[Range]:
        """Return those of some events that have expired by now.

        Args:
            ranges: the events, in order.

        Raises:
            StorageError: the storage refused.
        """

    def tasks_at_once(self) -> int:
        """Return how many tasks a read is split into, if it is large enough: about as many as can run at once."""

    def least_task_bytes(self) -> int:
        """Return the least number of bytes that are worth a task: one that reads less costs more than it does."""

    def tasks_end_with_blocks(self) -> bool:
        """Tell whether tasks should get whole blocks rather than the same number of bytes each."""

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        """Return ranges of lost events, without those that a read put into quarantine (`PlanReader.keep_damaged`)."""

    def report_lost(self, file: int | str, first_id: int, last_id: int) -> None:
        """Record that events of a file can't be read, for every group and `Channel.stats`; their bytes were kept.

        Raises:
            DataLossError: the channel has them there no more; nothing was recorded.
            StorageError: the storage refused; nothing was recorded.
        """

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def group(self, name: str) -> GroupState:
        """Return a group that the channel has.

        Raises:
            OptionError: it has none of this name; names those that it has.
        """

    def starting_position(self, starting: str) -> int:
        """Return the position of a group that starts now, at any event that the channel keeps.

        Args:
            starting: "earliest" for the first event that is kept, "latest", or the ID of its first event; with a "+"
                after the ID, it is that event or, if that has left, the first that is kept.

        Raises:
            DataLossError: that event has left the channel; names the first that is kept.
            OptionError: the ID is beyond the next event's.
        """

    def create_group(self, name: str, starting: str, *, automatic: bool = False, since: int | None = None) -> int:
        """Create a group unless it exists, and return its position; nobody needs to own it.

        Args:
            name: the group's name.
            starting: as in `starting_position`.
            automatic: whether a stream creates it for itself.
            since: for a stream that had a group before: the last event that it had read when that was dropped. The new
                group continues there, whatever ``starting`` says; what has left meanwhile is in `GroupState.removed`.

        Raises:
            DataLossError: the event with which it should begin has left the channel.
            OptionError: no group can have this name, or that event's ID is beyond the next one's.
            StorageError: the disk refused.
        """

    def record_plan(self, group: str) -> None:
        """Record that a stream has planned a batch without events as a group that it created for itself.

        Args:
            group: the group, which the caller owns. Nothing is recorded of one with a batch, or that no stream created.

        Raises:
            StorageError: the disk refused.
        """

    def owner_of(self, group: str) -> GroupOwner:
        """Return a group's last owner."""

    def let_owner_go_first(self, group: str, owner: str, timeout_seconds: float) -> None:
        """Wait until an owner has given its group up, if it could keep this handle from being the last one closed.

        The last handle moves what is in memory to disk. Where nothing is in memory, there is nothing to wait for.

        Args:
            group: the group.
            owner: what its owner wrote (`GroupOwner.note`).
            timeout_seconds: how long to wait at most.
        """

    def commit_through(self, group: str, through_id: int, owner: str | None) -> int:
        """Commit the prepared takes of a group that end at an event or before it, on behalf of its owner.

        Args:
            group: the group.
            through_id: everything up to this event is done.
            owner: whose takes they must be (`GroupOwner.note`); None: whoever's.

        Returns:
            How many takes were committed; 0 if others had done it, or somebody else owns the group by now.

        Raises:
            StorageError: the disk refused; the takes are as they were.
        """

    def query_note(self, group: str) -> QueryNote | None:
        """Return what is noted of the Spark query whose tasks read as a group last; None if none did.

        Raises:
            StorageError: the storage failed.
        """

    # ── staging and publishing ──────────────────────────────────────────────────────────────

    def plan_stage(self) -> StagePlan:
        """Make room for staged files, and return what a task needs to stage rows of the newest schema."""

    def delay(self, chunks: Sequence[DelayedChunk]) -> Delayed | None:
        """Return delayed events on their way into a put, which stores them with the rest; None for none.

        Args:
            chunks: the events.

        Raises:
            StorageError: the storage refused.
        """

    def adopt(self, runs: Sequence[DelayedRun]) -> StagedDelayed | None:
        """Return delayed events that tasks staged (`StagePlan.begin_delayed`) on their way into a put; None for none.

        Args:
            runs: what the tasks say of them (`StagedDelayed.runs`).
        """

    def publish(self, put: Put, keep_alive_seconds: float) -> bool:
        """Commit a put transaction: frames, and staged files that it adopts. Tell whether there was anything to do.

        Args:
            put: what to commit; a sink's batch that was committed before is not again. May be tried again if it raised.
            keep_alive_seconds: how long to wait for room.

        Raises:
            ChannelFullError: no room within ``keep_alive_seconds``.
            StorageError: the disk refused; nothing was committed.
            CommitOutcomeUnknownError: a sync failed; whether it was committed shows when the channel is opened again.
        """

    def discard(self, names: Iterable[str]) -> None:
        """Remove staged files, unless a commit has adopted them.

        Args:
            names: the files' names (`SegmentRef.name`).
        """

    def end_staging(self, owner: str, batch_id: int) -> None:
        """Remove what an owner staged up to and including a batch, as far as no commit has adopted it."""

    # ── housekeeping ────────────────────────────────────────────────────────────────────────

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for work that no call asked for: a loss of slots waits for the next put, take or commit."""

    def deliver(self) -> None:
        """Deliver delayed events that are due; a failure is logged. Costs a look at the log where none wait."""

    def checkpoint_if_due(self) -> None:
        """Create a checkpoint if the last one is older than ``checkpointInterval``; a failure is logged."""

    def give_back_when_idle(self) -> None:
        """Give back the disk space of taken events if nothing was committed for a second; a failure is logged."""

    def refuse_to_write(self, what: str) -> NoReturn:
        """Refuse a call that would write to a channel that is only looked at.

        Args:
            what: the call, with its article.

        Raises:
            ReadonlyChannelError: always.
        """

    # ── producers ───────────────────────────────────────────────────────────────────────────

    def claim_producer(self, producer_id: str) -> ProducerClaim:
        """Keep out other live producers of an ID.

        Raises:
            ProducerBusyError: another live producer has it.
        """
