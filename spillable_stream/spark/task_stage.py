"""A task of a sink stages its rows: a small output for the driver, a large one in a staged file of each channel.

A small output travels in the task's commit message. A large output is a synced staged file that the commit adopts. What
one task may send through the driver is bounded for all of its channels together. Rows that are due later always travel
in the message: the commit writes them into side files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.channel.row_times import UNTIMED, RowTimes
from spillable_stream.engine.port import DelayedChunk, StagedFile, StagePlan
from spillable_stream.errors import SpillableError, TransactionCapacityError
from spillable_stream.format.batch import accept_batch, decode_schema, encode_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink_times import wall_clock_ms
from spillable_stream.spark.task_guards import query_of_task

__all__ = ["MOST_DELAYED_BYTES", "Staged", "TaskStage", "staging"]

MOST_DELAYED_BYTES = 64 << 20
"""What the rows of a task that are due later may have, in all channels together."""


@dataclass
class Staged(WriterCommitMessage):
    """A task's staged output for one channel.

    Args:
        channel: the UUID of the channel that it was staged for.
        owner: the streaming query's ID, or the ID of a batch write.
        query: the ID of the streaming query that the task belongs to, if any.
        frames: the PUT frames of a small output, with payloads that can be pickled.
        segment: the staged file of a large output.
        delayed: the rows that are due later, with payloads that can be pickled.
    """

    channel: str
    owner: str
    query: str | None
    frames: list[Frame] = field(repr=False)  # keeps payloads out of logs
    segment: SegmentRef | None
    delayed: list[DelayedChunk] = field(default_factory=list, repr=False)

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.frames or self.delayed or (self.segment and self.segment.count))


@contextmanager
def staging(
    stages: Sequence[StagePlan], inline_bytes: Callable[[int], int], owner: str, batch_id: int
) -> Iterator[TaskStage]:
    """Stage what this task adds within the block; a block that raises leaves no staged file.

    Args:
        stages: how rows are staged in each channel.
        inline_bytes: returns how much a task may send through the driver, by its number.
        owner: the streaming query's ID, or the ID of a batch write.
        batch_id: the batch that the rows belong to.

    Raises:
        NotAChannelError: this host does not have a channel's directories. It is raised even for few rows, which
            need no directory, so that a job fails at once and not when its output grows.
    """
    side_by_side([stage.require_here for stage in stages])
    context = TaskContext.get()
    task = TaskStage(stages, inline_bytes(context.partitionId() if context else 0), owner, batch_id)
    try:
        yield task
    except BaseException:
        task.discard()
        raise


class TaskStage:
    """The output of one task, for one channel or several, which have numbers from 0.

    Args:
        stages: how rows are staged in each channel.
        limit_bytes: how much the task may send through the driver.
        owner: the streaming query's ID, or the ID of a batch write.
        batch_id: the batch that the rows belong to.
    """

    def __init__(self, stages: Sequence[StagePlan], limit_bytes: int, owner: str, batch_id: int) -> None:
        self._limit_bytes = limit_bytes
        self._owner = owner
        self._batch_id = batch_id
        self._query = query_of_task()
        self._outputs = [_Output(stage) for stage in stages]
        self._held_bytes = 0
        self._delayed_bytes = 0

    def add(self, channel: int, batch: pa.RecordBatch, times: RowTimes = UNTIMED) -> None:
        """Encode rows. While all that is held is too large to send, the largest output goes to its staged file.

        Args:
            channel: the number of the rows' channel.
            batch: the rows.
            times: their times.

        Raises:
            SchemaError: the rows do not fit the channel.
            StorageError: the storage refused.
            TransactionCapacityError: the rows of the task that are due later are too large to send.
        """
        encoded_bytes, delayed_bytes = self._outputs[channel].encode(batch, times)
        self._held_bytes += encoded_bytes
        self._delayed_bytes += delayed_bytes
        if self._delayed_bytes > MOST_DELAYED_BYTES:
            raise TransactionCapacityError(
                f"the delayed rows of this task have more than {MOST_DELAYED_BYTES:,} bytes, and they go through the "
                "driver: divide the rows among more tasks with repartition, or write fewer at once. Nothing was stored"
            )
        while self._held_bytes > self._limit_bytes:
            largest = max(self._outputs, key=lambda output: output.held_bytes)
            self._held_bytes -= largest.spill(self._owner, self._batch_id)

    def finish(self) -> list[Staged]:
        """Make the staged files durable, and return what was staged for each channel, rows or none.

        Raises:
            StorageError: the storage refused.
        """
        with_files = [output for output in self._outputs if output.has_file]
        side_by_side([output.finish for output in with_files])
        return [output.staged(self._owner, self._query) for output in self._outputs]

    def discard(self) -> None:
        """Remove the staged files."""
        for output in self._outputs:
            with contextlib.suppress(SpillableError):  # they are removed when they are old
                output.discard()


class _Output:
    """What a task has for one channel.

    Args:
        stage: how rows are staged there.

    Attributes:
        held_bytes: the size of the frames that are in no file, without the delayed ones.
    """

    def __init__(self, stage: StagePlan) -> None:
        self.stage = stage
        self.held_bytes = 0
        self._schema = decode_schema(stage.schema)
        self._frames: list[Frame] = []
        self._delayed: list[DelayedChunk] = []
        self._segment: StagedFile | None = None
        self._reference: SegmentRef | None = None

    @property
    def has_file(self) -> bool:
        return self._segment is not None

    def encode(self, batch: pa.RecordBatch, times: RowTimes) -> tuple[int, int]:
        """Encode rows and return the size of their frames, in bytes: of those that are put now, and of the others."""
        stage, added, delayed = self.stage, list[Frame](), list[DelayedChunk]()
        for rows, ttl_us, dues_ms in times.divide(accept_batch(batch, self._schema)):
            if dues_ms:
                waiting = DelayedEvents(self._schema, stage.schema_id, typed=True)
                waiting.add_batch(rows, dues_ms, ttl_us)
                delayed += waiting.chunks(wall_clock_ms(), stage.compression)
            else:
                added += encode_batch(rows, stage.schema_id, stage.compression, ttl_us)
        size_bytes = total_size(added)
        self._frames += added
        self._delayed += [c._replace(frames=(c.frames[0], _portable(c.frames[1]))) for c in delayed]
        self.held_bytes += size_bytes
        return size_bytes, sum([total_size(chunk.frames) for chunk in delayed])

    def spill(self, owner: str, batch_id: int) -> int:
        """Write all frames into the staged file, which may be new, and return their size, in bytes."""
        self._segment = self._segment or self.stage.begin(owner, batch_id)
        self._segment.write(self._frames)
        written_bytes, self._frames, self.held_bytes = self.held_bytes, [], 0
        return written_bytes

    def finish(self) -> None:
        """Make the staged file durable."""
        if self._segment is not None:
            self._segment.write(self._frames)
            self._frames = []
            self._reference = self._segment.finish()
            self._segment.close()

    def staged(self, owner: str, query: str | None) -> Staged:
        """Return what the task says of this channel: frames with payloads that can be pickled, or the staged file."""
        frames = [_portable(f) for f in self._frames]
        return Staged(self.stage.channel, owner, query, frames, self._reference, self._delayed)

    def discard(self) -> None:
        if self._segment is not None:
            self._segment.discard()


def _portable(frame: Frame) -> Frame:
    """Return a frame with a payload that can be pickled."""
    return frame._replace(payload=bytes(frame.payload))
