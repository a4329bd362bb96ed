"""A task of a sink stages its rows: a small output for the driver, a large one in a staged file of each channel.

A small output travels in the task's commit message. A large output is a synced staged file that the commit adopts, and
one for each stretch of time in which rows are due later: side files to be. What one task may send through the driver is
bounded for all of its channels together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.channel.row_times import UNTIMED, RowTimes
from spillable_stream.engine.port import DelayedChunk, StagedDelayed, StagePlan
from spillable_stream.errors import SpillableError
from spillable_stream.format.batch import accept_batch, decode_schema, encode_batch
from spillable_stream.format.commit_record import DelayedRun, SegmentRef
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.spark.query_task import QueryTask, partition_id
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.sink_times import wall_clock_ms

__all__ = ["Staged", "TaskStage", "staging"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ItemIn = TypeVar("_ItemIn", contravariant=True)
_ResultOut = TypeVar("_ResultOut", covariant=True)


class _Files(Protocol[_ItemIn, _ResultOut]):
    """Staged files: a `StagedFile`, or a `Staging` of rows that are due later."""

    def write(self, items: Sequence[_ItemIn], /) -> None: ...
    def finish(self) -> _ResultOut: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


@dataclass
class Staged(WriterCommitMessage):
    """A task's staged output for one channel.

    Args:
        channel: the UUID of the channel that it was staged for.
        owner: the streaming query's ID, or the ID of a batch write.
        query: the ID of the streaming query that the task belongs to, if any.
        frames: the PUT frames of a small output, with payloads that can be pickled.
        segment: the staged file of a large output.
        delayed: the rows of a small output that are due later, with payloads that can be pickled.
        runs: the staged side files of a large one.
        checkpoints: where the session keeps checkpoints, as the task was told (`QueryTask`).
        run: the run of the streaming query, if any.
    """

    channel: str
    owner: str
    query: str | None
    frames: list[Frame] = field(repr=False)  # keeps payloads out of logs
    segment: SegmentRef | None
    delayed: list[DelayedChunk] = field(default_factory=list, repr=False)
    runs: list[DelayedRun] = field(default_factory=list)
    checkpoints: str = ""
    run: str = ""

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.frames or self.delayed or self.runs or (self.segment and self.segment.count))

    def staged_names(self) -> list[str]:
        """Return the names of what the task staged."""
        return [*([self.segment.name] if self.segment else []), *(run.name for run in self.runs)]


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
            need no directory, so that a job fails with its first rows and not when its output grows.
    """
    task = TaskStage(stages, inline_bytes(partition_id()), owner, batch_id)
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
        self._task = QueryTask.here()
        self._asked = [stage.ask_here() for stage in stages]  # while Spark makes the first rows
        self._outputs = [_Output(stage, owner, batch_id) for stage in stages]
        self._held_bytes = 0

    def add(self, channel: int, batch: pa.RecordBatch, times: RowTimes = UNTIMED) -> None:
        """Encode rows. While all that is held is too large to send, the largest part of it is staged.

        Args:
            channel: the number of the rows' channel.
            batch: the rows.
            times: their times.

        Raises:
            NotAChannelError: this host does not have one of the channels.
            SchemaError: the rows do not fit the channel.
            StorageError: the storage refused.
        """
        self._require_here()
        self._held_bytes += self._outputs[channel].encode(batch, times)
        while self._held_bytes > self._limit_bytes:
            largest = max(self._parts(), key=lambda part: part.held_bytes)
            self._held_bytes -= largest.held_bytes
            largest.spill()

    def finish(self) -> list[Staged]:
        """Make the staged files durable, and return what was staged for each channel, rows or none.

        Raises:
            NotAChannelError: this host does not have one of the channels.
            StorageError: the storage refused.
        """
        self._require_here()
        side_by_side([part.finish for part in self._parts() if part.is_staged])
        return [output.staged(self._owner, self._task) for output in self._outputs]

    def _require_here(self) -> None:
        """Refuse a host that does not have the channels; the answer is waited for once."""
        while self._asked:
            self._asked[0]()
            self._asked.pop(0)

    def discard(self) -> None:
        """Remove the staged files."""
        for part in self._parts():
            with contextlib.suppress(SpillableError):  # they are removed when they are old
                part.discard()

    def _parts(self) -> list[_Part[Any, Any]]:
        return [part for output in self._outputs for part in (output.now, output.later)]


class _Output:
    """What a task has for one channel.

    Args:
        stage: how rows are staged there.
        owner: as in `TaskStage`.
        batch_id: likewise.

    Attributes:
        now: the rows that are put now.
        later: those that are due later.
    """

    def __init__(self, stage: StagePlan, owner: str, batch_id: int) -> None:
        self.now: _Part[Frame, SegmentRef] = _Part(partial(stage.begin, owner, batch_id), total_size)
        self.later: _Part[DelayedChunk, StagedDelayed] = _Part(
            partial(stage.begin_delayed, owner, batch_id), _size_of_chunks
        )
        self._stage = stage
        self._schema = decode_schema(stage.schema)

    def encode(self, batch: pa.RecordBatch, times: RowTimes) -> int:
        """Encode rows and return the size of their frames, in bytes."""
        stage, held_bytes = self._stage, self.now.held_bytes + self.later.held_bytes
        for rows, ttl_us, dues_ms in times.divide(accept_batch(batch, self._schema)):
            if dues_ms:
                waiting = DelayedEvents(self._schema, stage.schema_id, typed=True)
                waiting.add_batch(rows, dues_ms, ttl_us)
                self.later.add(waiting.chunks(wall_clock_ms(), stage.compression))
            else:
                frames = encode_batch(rows, stage.schema_id, stage.compression, ttl_us, frame_bytes=stage.frame_bytes)
                self.now.add(frames)
        return self.now.held_bytes + self.later.held_bytes - held_bytes

    def staged(self, owner: str, task: QueryTask | None) -> Staged:
        """Return what the task says of this channel: what can be pickled of its rows, or where they are staged."""
        frames = [_portable(frame) for frame in self.now.held]
        delayed = [c._replace(frames=(c.frames[0], _portable(c.frames[1]))) for c in self.later.held]
        runs = list(self.later.result.runs) if self.later.result is not None else []
        staged = Staged(self._stage.channel, owner, None, frames, self.now.result, delayed, runs)
        if task is None:
            return staged
        return replace(staged, query=task.query, checkpoints=task.checkpoints, run=task.run)


class _Part(Generic[_Item, _Result]):
    """The rows of one kind that a task has for a channel: held, or in staged files.

    Args:
        begin: begins to stage them.
        size_of: returns the size of some of them, in bytes.

    Attributes:
        held: those that are in no file.
        held_bytes: their size.
        result: what a commit needs to name the files, once they are durable.
    """

    def __init__(self, begin: Callable[[], _Files[_Item, _Result]], size_of: Callable[[Sequence[_Item]], int]) -> None:
        self.held: list[_Item] = []
        self.held_bytes = 0
        self.result: _Result | None = None
        self._begin = begin
        self._size_of = size_of
        self._files: _Files[_Item, _Result] | None = None

    @property
    def is_staged(self) -> bool:
        return self._files is not None

    def add(self, items: Sequence[_Item]) -> None:
        self.held += items
        self.held_bytes += self._size_of(items)

    def spill(self) -> None:
        """Write all that is held into files, which may be new."""
        self._files = self._files or self._begin()
        self._files.write(self.held)
        self.held, self.held_bytes = [], 0

    def finish(self) -> None:
        """Make the files durable."""
        self.spill()
        assert self._files is not None
        self.result = self._files.finish()
        self._files.close()

    def discard(self) -> None:
        if self._files is not None:
            self._files.discard()


def _size_of_chunks(chunks: Sequence[DelayedChunk]) -> int:
    return sum([chunk.size_bytes for chunk in chunks])


def _portable(frame: Frame) -> Frame:
    """Return a frame with a payload that can be pickled."""
    return frame._replace(payload=bytes(frame.payload))
