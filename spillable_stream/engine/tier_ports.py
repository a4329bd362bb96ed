"""What the shared parts of an engine ask of those that know tiers, files and free space.

`Committer` asks the first four, and all who use an `Engine` the last two. On this host they are `MemoryTier`,
`Moving`, `DiskRoom`, `StagedPuts`, `Upkeep` and `Checkpointing`. An engine whose log has no such matter passes parts
that do nothing.
"""

from __future__ import annotations

from typing import Protocol

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import StorageError
from spillable_stream.format.commit_record import SegmentRef

__all__ = ["IDLE_SECONDS", "CheckpointingPort", "MemoryPort", "MovingPort", "RoomPort", "StagedPort", "UpkeepPort"]

IDLE_SECONDS = 1.0
"""After so long without a commit, a take that finds nothing has the space of taken events given back."""


class MemoryPort(Protocol):
    """The memory tier; the commit lock is held. Where `open` and `is_ready` say that there is none, little is asked."""

    def open(self) -> bool:
        """Create the tier if it is wanted and missing, and tell whether puts can go to it.

        A lack of memory raises nothing: the engine does without the tier.
        """

    def is_ready(self) -> bool:
        """Tell whether puts can go to it."""

    def has_pages_for(self, size_bytes: int) -> bool:
        """Tell whether it has room for a put of so many bytes of payloads."""

    def reserve_ids(self, last_id: int) -> None:
        """Reserve write-order IDs up to ``last_id``, so that none is used twice after the tier is lost."""

    def free_taken(self) -> None:
        """Free what every group has taken; called after an append that has emptied files of the tier."""

    def refuse(self, cause: StorageError) -> None:
        """Do without it for a while, because it could not be written, and warn."""

    def why_not(self) -> StorageError | None:
        """Return why a tier that the options want is not there, or None. The lock need not be held."""


class MovingPort(Protocol):
    """The way from memory to disk."""

    def make_room(self, size_bytes: int) -> None:
        """Move taken events out of the way of a put to memory, of so many bytes; the commit lock is held.

        Raises:
            StorageError: the disk refused them.
        """


class RoomPort(Protocol):
    """Free space; nothing here raises where it fails."""

    def make_within_a_commit(self) -> None:
        """Give back the space of taken events, for a commit that failed for want of space and will be tried again."""

    def after_a_commit(self) -> None:
        """Give back what a commit has freed; called after each one, so it must cost nothing where nothing is."""


class StagedPort(Protocol):
    """What a put was staged in."""

    def found(self, segment: SegmentRef) -> SegmentRef:
        """Return where a staged file is: it may have been moved since it was staged."""

    def prepare(self, request: Put, plan: AppendPlan, file_id: int, end: int) -> None:
        """Refuse a put that finds no space, or whose staged files are not there.

        Args:
            request: the put, about to be planned.
            plan: where to; the commit lock is held.
            file_id: the file of the append.
            end: where that ends with it, at most.

        Raises:
            DiskSpaceError: too little space would be free.
            StorageError: a staged file is gone.
        """


class CheckpointingPort(Protocol):
    """Checkpoints, and the space of what nothing needs any more."""

    def create(self) -> None:
        """Create a checkpoint, and remove what is no longer needed.

        Raises:
            CorruptionError: the log in a store is damaged; a `DataLossError` if slots are missing.
            NotAChannelError: the channel is no longer there.
            StorageError: it could not be written; nothing was removed.
            UnsafeStoreError: the store has lost slots that were known; the next call continues with what is there.
            LockTimeoutError: somebody else took too long creating one.
            TransactionStateError: this thread is inside another call to the channel.
        """

    def create_if_due(self) -> None:
        """Create one if the last is older than ``checkpointInterval``; after each transaction. A failure is logged."""

    def give_back_when_idle(self) -> None:
        """Free the space of taken events if nothing was committed for `IDLE_SECONDS`; for takes that find no events.

        A failure is logged.
        """


class UpkeepPort(Protocol):
    """Does in time what must be done whether anybody commits or not."""

    def ensure(self) -> None:
        """Have somebody do it, if the channel needs it: after it was opened, and whenever the need may be new."""
