"""What Spark calls of a write: its tasks stage their rows, and the driver's commit publishes all of them.

`spillable_stream.spark.sink.writer` says how that is done to one channel, and
`spillable_stream.spark.sink.sharded_writer` to several. Only rows that the commit names count, so retried, speculative
and zombie tasks leave no trace.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import SpillableError
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.sink.spark_checkpoint import NOWHERE, SparkCheckpoint
from spillable_stream.spark.spark_errors import short_traces

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 feeds a stream's rows one by one
    if not TYPE_CHECKING:
        from spillable_stream.spark.sink.compat import DataSourceStreamArrowWriter

__all__ = ["BatchWriter", "SinkWriter", "StreamWriter", "TaskOutput", "WritePlan"]

_ONLY_BATCH = 0  # of a batch write, which has a single one


class WritePlan(Protocol):
    """What every plan of a write says."""

    @property
    def schema(self) -> StructType:
        """The columns of Spark's rows."""

    @property
    def transaction(self) -> SinkBatch | None:
        """The ``txnAppId`` and ``txnVersion`` of a batch write; None without them."""

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of the plan: its commit makes another one."""


class TaskOutput(Protocol):
    """What a task's message says, of however many channels."""

    @property
    def owner(self) -> str:
        """The streaming query's ID, or the ID of a batch write."""

    @property
    def checkpoints(self) -> str:
        """Where the session keeps checkpoints, as the task was told; "" where that is not known."""

    @property
    def run(self) -> str:
        """The run of the streaming query; "" where that is not known."""


P = TypeVar("P", bound=WritePlan)


class SinkWriter(Generic[P]):
    """The base of all writers: how rows are staged and published.

    Args:
        plan: the plan of the write.
    """

    def __init__(self, plan: P) -> None:
        self._plan = plan
        self._schema = plan.schema  # of Spark's rows, which Spark 4.0 sends one by one

    @abstractmethod
    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> WriterCommitMessage:
        """Encode a task's rows, into staged files once they are large.

        Args:
            batches: the rows.
            owner: the streaming query's ID, or the ID of a batch write.
            batch_id: the batch that the rows belong to.
        """

    @abstractmethod
    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit what the tasks staged, to each channel as one put transaction.

        Args:
            messages: the tasks' messages.
            batch_id: the batch that they staged for.
            sink: by what a channel remembers the batch, so that it is not committed twice; None to allow that.
        """

    @abstractmethod
    def _discard(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write's tasks."""

    @abstractmethod
    def _outputs(self, messages: list[WriterCommitMessage | None]) -> Sequence[TaskOutput]:
        """Return the messages of the tasks that say something."""

    @abstractmethod
    def _written(self, messages: list[WriterCommitMessage | None]) -> Mapping[str, str]:
        """Return the UUIDs of the channels that the tasks staged rows for, by path."""

    def _beside(self, messages: list[WriterCommitMessage | None]) -> Mapping[str, str]:
        """Return the UUIDs of the channels that get rows of the tasks and promise nothing, by path."""
        return {}

    @abstractmethod
    def _remembered(
        self, batch: SinkBatch, messages: list[WriterCommitMessage | None], *, is_first: bool
    ) -> tuple[SinkBatch, set[str]]:
        """Return by what a channel remembers a batch, and the UUIDs of the channels that have said that they may.

        Args:
            batch: the query's ID, or the application, and the batch's number.
            messages: the tasks' messages.
            is_first: whether it may be the first batch of a run: only that can be a repetition.

        Raises:
            OptionError: a channel has the batch, or a later one, and its rows were divided otherwise.
        """


@short_traces
class BatchWriter(SinkWriter[P], DataSourceArrowWriter):
    """Appends a DataFrame."""

    def __init__(self, plan: P) -> None:
        super().__init__(plan)
        self._job = f"batch-{uuid.uuid4().hex}"  # which its tasks share: Spark sends them a copy of the writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, self._job, _ONLY_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows or none, unless a write with this ``txnAppId`` and ``txnVersion`` was published before.

        Raises:
            IncompleteWriteError: some shards have their rows, and others failed.
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
        """
        given = self._plan.transaction
        sink = None if given is None else self._remembered(given, messages, is_first=True)[0]
        self._publish(messages, _ONLY_BATCH, sink)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write."""
        self._discard(messages)


@short_traces
class StreamWriter(SinkWriter[P], DataSourceStreamArrowWriter):
    """Appends a query's micro-batches, each once.

    Args:
        plan: the plan of the write.
        checkpoint: the query's checkpoint.
    """

    def __init__(self, plan: P, checkpoint: SparkCheckpoint = NOWHERE) -> None:
        super().__init__(plan)
        self._checkpoint = checkpoint

    def __getstate__(self) -> dict[str, Any]:
        """Return what Spark sends to the tasks."""
        return {**self.__dict__, "_plan": self._plan.for_tasks()}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows.

        Raises:
            SpillableError: Spark does not say which query and batch the task is of.
        """
        task = QueryTask.here()
        if task is None:
            raise SpillableError("Spark does not say which query and batch this is, so it can not be stored just once")
        return self._stage(iterator, task.query, task.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch where it was not published before.

        Raises:
            CheckpointMismatchError: another driver took this one's place (`SparkCheckpoint.require_under_way`).
            NotAChannelError: a channel that has earlier batches of this run was removed or replaced.
            OptionError: a channel has the batch that it got by other options, or at another place.
            IncompleteWriteError: some shards have their rows, and others failed; a repetition completes the batch.
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
            StorageError: the disk failed, that of Spark's checkpoint among them.
        """
        from spillable_stream.spark.sink.written_channels import WrittenChannels  # it opens channels, and no task does

        outputs = self._outputs(messages)
        told = next((output.checkpoints for output in outputs if output.checkpoints), "")
        self._checkpoint.sync_batch(batchId, told)
        queries = {output.owner for output in outputs}
        if queries:
            query = queries.pop()
            self._checkpoint.require_under_way(query, batchId, told)
            run = next((output.run for output in outputs if output.run), "")
            before = WrittenChannels(run, self._checkpoint.directory(told))
            channels = self._written(messages)
            before.require_same(channels, batchId)
            batch, is_first = SinkBatch(query, batchId), before.is_first_batch()
            sink, asked = self._remembered(batch, messages, is_first=is_first)
            if is_first:
                before.refuse_stored_elsewhere(batch, sink, asked)
            before.note(channels, self._beside(messages))
            self._publish(messages, batchId, sink)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files of a failed write."""
        self._discard(messages)
