"""What a task of another process needs of a channel: a plan that it is sent, and what it opens by it.

The plans are frozen and picklable. A task opens files by them, and not the channel. `engine/local/local_plans.py` has
those of a channel on this host, `engine/store/object_plans.py` those of a channel in an object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from spillable_stream.engine.delayed_puts import Staging
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import Frame
from spillable_stream.format.query_note import QueryNote
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.salvage import Unreadable
from spillable_stream.state.ranges import Range

__all__ = ["PlanReader", "ReadBatch", "ReadPlan", "StagePlan", "StagedFile", "Staging", "Unreadable"]


class ReadPlan(Protocol):
    """Where some events were when the read of them was planned."""

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Where the events are, in order."""

    @property
    def ends(self) -> Mapping[int | str, int]:
        """Up to where the files that still grow were written: file number to offset in bytes."""

    def open(self) -> PlanReader:
        """Return a reader of the events, if this host can read them.

        Raises:
            NotAChannelError: this host does not have the channel, or another one in its place.
            OtherHostError: some of the events are in memory, and not in this host's.
        """


class PlanReader(Protocol):
    """Reads events that were planned a while ago, where they were then or are now."""

    @property
    def path(self) -> str:
        """The path with which the channel is opened."""

    @property
    def channel(self) -> str:
        """The channel's UUID."""

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of an extent, in order.

        Raises:
            DataLossError: they are no longer there.
            CorruptionError: a frame is damaged; names the first event that can't be read.
        """

    def read_past_damage(self, extent: Extent) -> Iterator[ReadBatch | Unreadable]:
        """Yield the events of an extent that can be read, and what can't, in order and without gaps.

        It ends before the extent does if the file is removed meanwhile: what was not yielded is no longer there.

        Raises:
            StorageError: the storage refused.
        """

    def may_move(self, extent: Extent) -> bool:
        """Tell whether the channel may have moved the events of an extent since the plan was made."""

    def catch_up(self, plan: ReadPlan) -> None:
        """Take over from a later plan up to where the files are written, to read its extents too."""

    def keep_damaged(self, damage: Unreadable) -> None:
        """Put the bytes of events that can't be read into quarantine; `not_quarantined` knows these events then.

        Raises:
            FileNotFoundError: they are no longer there.
            StorageError: the storage refused.
        """

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        """Return ranges of lost events, without those that `keep_damaged` put into quarantine."""

    def query_note(self, group: str) -> QueryNote | None:
        """Return what is noted of the Spark query that reads as a group; None if nothing is.

        Raises:
            StorageError: the storage failed.
        """

    def note_query(self, group: str, note: QueryNote) -> bool:
        """Record durably, beside a group, which Spark query reads as it.

        Args:
            group: the group.
            note: what to note, in place of what was noted before.

        Returns:
            False if this host has no right to write there; nothing is noted then.

        Raises:
            StorageError: the storage failed.
        """

    def close(self) -> None:
        """Close what was opened."""


class StagedFile(Protocol):
    """A file of events that a commit may adopt; nobody reads it before that."""

    @property
    def name(self) -> str:
        """The file's name (`SegmentRef.name`)."""

    def write(self, frames: Iterable[Frame]) -> None:
        """Append frames.

        Raises:
            StorageError: the storage refused; nothing was appended to a file, and an object can only be discarded.
        """

    def finish(self) -> SegmentRef:
        """Make the file durable, and return what a commit needs to adopt it.

        Raises:
            StorageError: the storage refused; the file can only be discarded.
        """

    def close(self) -> None:
        """Give the file up; it stays until a commit adopts it or it is discarded."""

    def discard(self) -> None:
        """Remove the file."""


class StagePlan(Protocol):
    """How rows are staged for a put that the channel commits later."""

    @property
    def channel(self) -> str:
        """The channel's UUID."""

    @property
    def schema(self) -> bytes:
        """The channel's newest schema, as an Arrow IPC message."""

    @property
    def schema_id(self) -> int:
        """Its number."""

    @property
    def compression(self) -> str:
        """The channel's option: how batches are compressed."""

    @property
    def frame_bytes(self) -> int:
        """About how large a frame gets."""

    def ask_here(self) -> Callable[[], None]:
        """Begin to ask whether this host has the channel, and return what waits for the answer.

        Raises:
            NotAChannelError: this host has no channel there, or another one; here, or where the answer is waited for.
        """

    def begin(self, owner: str, batch_id: int) -> StagedFile:
        """Begin a staged file.

        Args:
            owner: whose it is: a streaming query's ID, or a batch write's own.
            batch_id: the owner's number for the batch.

        Raises:
            StorageError: no file could be created.
        """

    def begin_delayed(self, owner: str, batch_id: int) -> Staging:
        """Begin to stage rows that are due later, in side files to be; nothing is created before the first of them.

        Args:
            owner: as in `begin`.
            batch_id: likewise.
        """
