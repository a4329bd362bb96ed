"""The port below the engine: what a channel asks of its log, wherever that is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn, Protocol

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.task_plans import StagedFile
from spillable_stream.errors import ReadonlyChannelError
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameHeader
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Position
from spillable_stream.objects.location import Location
from spillable_stream.state.channel_state import ChannelState

__all__ = ["ChannelPath", "Followed", "Log", "Reader", "refuse_to_write"]

ChannelPath = Path | Location
"""What users call a channel: its directory, or where its objects are. `str` says it."""


def refuse_to_write(path: ChannelPath, what: str) -> NoReturn:
    """Refuse a call that would write to a channel that is only looked at.

    Args:
        path: the channel.
        what: the call, with its article.

    Raises:
        ReadonlyChannelError: always.
    """
    raise ReadonlyChannelError(
        f"{path} is open read-only, but {what} would change the channel: open it without readonly for that"
    )


class Followed(Protocol):
    """A state that follows a log."""

    @property
    def state(self) -> ChannelState:
        """The state."""

    @property
    def positions(self) -> Positions:
        """Where in the log it is."""


class Reader(Protocol):
    """Reads the events of extents. For one thread at a time."""

    def expect(self, extents: Sequence[Extent]) -> None:
        """Learn which extents will be read next, in this order; a reader from afar may fetch them ahead.

        Nothing has to be read that was expected, and what was not expected may be.
        """

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of an extent, in order.

        Raises:
            DataLossError: they are no longer there.
            CorruptionError: a frame is damaged or missing; names the events.
        """

    def frames(self, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the undecoded payload of each frame that an extent covers; raises what `read` raises."""

    def close(self) -> None:
        """Close what is open; another `read` opens it again."""


class Log(Protocol):
    """One order of appends, to which many handles add. Thread-safe.

    An append is planned on the state at the log's end, so it is won or lost: it is lost if another one came first. A
    log with a lock never loses one: `hold` keeps all others out.

    Attributes:
        lock_timeout_seconds: how long to wait for other processes.
        closed: whether `close` was called.
        is_far: whether a look is a request to another host, and each append begins a file of its own.
        poll_seconds: how long to wait before another look at first, and at most.
        recovery: the token of the channel's last recovery; "" if it is not known, or there are none.
    """

    lock_timeout_seconds: float
    closed: bool
    is_far: bool
    recovery: str
    poll_seconds: tuple[float, float]

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for work that no call asked for, or whose caller has succeeded.

        Of a log far away a loss that it meets waits for the next call that `require_not_closed` begins.
        """

    @property
    def path(self) -> ChannelPath:
        """What users call the channel."""

    @property
    def failed(self) -> str | None:
        """Why nothing can be committed through this handle any more, or None."""

    # ── position ────────────────────────────────────────────────────────────────────────────

    def position(self) -> CommitPoint:
        """Return where the log ends; the same object as before if it is known that nobody has appended since.

        Raises:
            ChannelClosedError: another thread closed the channel meanwhile.
            CorruptionError: that is damaged, and opening the channel again rebuilds it; or a slot of a store is.
            NotAChannelError: a channel in a store is no longer there.
            StorageError: the storage refused.
            UnsafeStoreError: a store has overwritten a slot, or lost it.
        """

    def latest_position(self) -> CommitPoint:
        """Return what `position` returned last, or a later one; without a look at storage where a look costs much."""

    def held_position(self) -> CommitPoint:
        """Return the same inside of `hold`, where nobody else appends."""

    # ── follow ──────────────────────────────────────────────────────────────────────────────

    def load(self) -> tuple[ChannelState, Positions]:
        """Return the state at the log's end, and where that is.

        Raises:
            ChannelBusyError: others change the log too fast to be read.
            CorruptionError: the log is damaged.
            DataLossError: events are missing.
            NotAChannelError: a channel in a store is no longer there, or another one is in its place.
            StorageError: the storage refused.
            UnsafeStoreError: a store has lost slots that were known. The next call continues with what is there.
        """

    def follow(self, state: ChannelState, start: Positions, end: Positions) -> int:
        """Apply to a state what lies between two positions, and return how many appends to the disk tier it was.

        Raises:
            FileNotFoundError: what is at ``start`` was removed since: load the state.
            CorruptionError: a frame that must be whole is not; or it is invalid.
            StorageError: the storage refused.
        """

    @property
    def is_view(self) -> bool:
        """Whether the channel is only looked at, so that it may have to be found anew."""

    def is_current(self) -> bool:
        """Tell whether what this handle follows is still the channel's log."""

    def renew(self) -> None:
        """Find the log of a view anew; the caller loads its state."""

    def look_closely(self) -> None:
        """Look at what an open takes on trust, for a copy that stands for the channel; the next look says what is lost.

        Raises:
            StorageError: the store refused or failed.
        """

    # ── read ────────────────────────────────────────────────────────────────────────────────

    def reader(self, schema_of: Callable[[int], pa.Schema], end_of: Callable[[int | str], int | None]) -> Reader:
        """Return a reader of events, which opens the files that it is asked to read.

        Args:
            schema_of: returns a schema of the channel by its number, or raises an IndexError.
            end_of: returns up to where a file is written that still is; None for any other.
        """

    def leave_read(self, file_id: int) -> None:
        """Close what is followed before a file."""

    # ── append ──────────────────────────────────────────────────────────────────────────────

    def hold(self, timeout_seconds: float, prepare: Callable[[], None] = ...) -> AbstractContextManager[None]:
        """Keep others from appending, if the log can, within the block.

        Args:
            timeout_seconds: how long to wait for others.
            prepare: called first, inside.

        Raises:
            LockTimeoutError: others kept it for too long.
            ReadonlyChannelError: the channel is only looked at.
        """

    def heal(self, at: Followed) -> None:
        """Settle what a holder left that died or failed; ``at`` is the state at the log's end.

        Raises:
            CorruptionError: what it left contradicts what was published.
            StorageError: the storage refused.
        """

    def reserve(self, tier: Tier, size_bytes: int, at: Followed) -> Position:
        """Return where the next append of a tier goes.

        Args:
            tier: the tier.
            size_bytes: the size of the append, at most.
            at: the state at the log's end, with which a new file begins.

        Raises:
            DiskSpaceError: there is no room for it.
            StorageError: the storage refused.
        """

    def append(self, plan: AppendPlan, start: Position, at: Followed) -> Position | None:
        """Append what was planned, durably.

        Args:
            plan: the entries.
            start: what `reserve` returned.
            at: the state that it was planned on.

        Returns:
            Where it ends; None if it is lost: another append took its place, and it must be planned again.

        Raises:
            StorageError: it could not be written; nothing of it counts.
            CommitOutcomeUnknownError: it may be in the log or not.
        """

    def extend_format(self) -> None:
        """Record durably that the log has records from now on that earlier versions of this package can't read.

        Inside of `hold`, and before the first such record. Cheap, once this handle has done it.

        Raises:
            StorageError: the storage refused; nothing was changed.
        """

    def leave_written(self, file_id: int) -> None:
        """Close what was written before a file."""

    def obey(self, state: ChannelState) -> None:
        """Write as the channel's options say."""

    # ── stage ───────────────────────────────────────────────────────────────────────────────

    def stage(
        self, *, memory_bytes: int = ..., minimum_required_space: int | None = ..., waiting_bytes: int = ...
    ) -> StagedFile:
        """Return a new file for events of a transaction of this handle, which a later append adopts.

        Args:
            memory_bytes: how large it may get in memory; 0 stages it durably at once.
            minimum_required_space: the option's value.
            waiting_bytes: the size of the delayed events that wait.

        Raises:
            StorageError: the storage refused.
        """

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def require_in_place(self) -> None:
        """Prove that what this handle reads is the channel's, where something else can take its place.

        Raises:
            ChannelClosedError: a part of the channel was moved, removed or replaced.
        """

    def require_open(self) -> None:
        """Refuse any use after `close` or a failure.

        Raises:
            ChannelClosedError: the channel was closed or removed, or its log failed.
        """

    def require_not_closed(self) -> None:
        """Begin a call that stores or takes something: refuse it after `close`, without a look at the log.

        It raises what `require_open` does.

        Raises:
            UnsafeStoreError: events are lost, as work that no call asked for has found. It is raised once.
        """

    def close(self, *, forked: bool = False) -> None:
        """Close everything; nothing is written.

        Args:
            forked: in a forked child, where other threads do not exist: wait for nobody.
        """
