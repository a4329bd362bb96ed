"""The sink: tasks stage their rows, and the driver's commit publishes all of them as one transaction.

A small output travels in the task's commit message and becomes frames of the log. A large output is
a synced staged file that the commit adopts. Only rows that the commit names count, so retried,
speculative and zombie tasks leave no trace. The channel remembers a streaming batch by query ID and
batch ID, so committing it again does nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.errors import SpillableError
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_checkpoint import NOWHERE, SparkCheckpoint
from spillable_stream.spark.sink.task_stage import Staged, staging
from spillable_stream.spark.spark_errors import short_traces

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 feeds a stream's rows one by one
    if not TYPE_CHECKING:
        from spillable_stream.spark.sink.compat import DataSourceStreamArrowWriter

__all__ = ["ONLY_BATCH", "SpillableBatchWriter", "SpillableStreamWriter", "batch_of_task", "new_job"]

ONLY_BATCH = 0
"""The batch ID of a batch write, which has a single batch."""


def new_job() -> str:
    """Return an ID for a batch write; its tasks share it, since Spark sends them a copy of the writer."""
    return f"batch-{uuid.uuid4().hex}"


def batch_of_task() -> tuple[str, int]:
    """Return the streaming query's ID and the batch ID of this task.

    Raises:
        SpillableError: Spark does not say them.
    """
    task = QueryTask.here()
    if task is None:
        raise SpillableError("Spark does not say which query and batch this is, so it can not be stored just once")
    return task.query, task.batch_id


class _Stager:
    """The common base of the batch and the streaming writer.

    Args:
        plan: the plan of the write.
    """

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._schema = plan.schema  # of Spark's rows, which Spark 4.0 sends one by one

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> Staged:
        """Encode a task's rows, into a staged file once they are large.

        Args:
            batches: the rows.
            owner: the streaming query's ID, or the ID of a batch write.
            batch_id: the batch that the rows belong to.
        """
        with staging([self._plan.stage], self._plan.inline_bytes, owner, batch_id) as task:
            for batch in batches:
                task.add(0, *self._plan.times.divide(batch, wall_clock_ms()))
            (staged,) = task.finish()
        return staged

    @one_look()
    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit what the tasks staged as one put transaction.

        Args:
            messages: the tasks' messages.
            batch_id: the batch that they staged for.
            sink: the key by which the channel remembers the batch, so that it is not committed twice; None to allow
                that.
        """
        staged = [m for m in messages if isinstance(m, Staged) and m.has_rows]
        if staged:
            with self._plan.commit.opened(staged, batch_id) as commit:
                commit.publish(sink)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write's tasks."""
        self._plan.commit.discard(m for m in messages if isinstance(m, Staged))


@short_traces
class SpillableBatchWriter(_Stager, DataSourceArrowWriter):
    """Appends a DataFrame to a channel as one put transaction."""

    def __init__(self, plan: SinkPlan) -> None:
        super().__init__(plan)
        self._job = new_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, self._job, ONLY_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows or none, unless a write with this ``txnAppId`` and ``txnVersion`` was published before.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
        """
        self._publish(messages, ONLY_BATCH, self._plan.transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)


@short_traces
class SpillableStreamWriter(_Stager, DataSourceStreamArrowWriter):
    """Appends a query's micro-batches to a channel, each as one put transaction, each once.

    Args:
        plan: the plan of the write.
        checkpoint: the query's checkpoint.
    """

    def __init__(self, plan: SinkPlan, checkpoint: SparkCheckpoint = NOWHERE) -> None:
        super().__init__(plan)
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, *batch_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch, unless it was published before.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
            StorageError: the disk failed, that of Spark's checkpoint among them.
        """
        staged = [m for m in messages if isinstance(m, Staged)]
        self._checkpoint.sync_batch(batchId, staged)
        queries = {m.owner for m in staged}
        self._publish(messages, batchId, SinkBatch(queries.pop(), batchId) if queries else None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)
