"""The sink: tasks stage their rows, and the driver's commit publishes all of them as one transaction.

A small output travels in the task's commit message and becomes frames of the log. A large output is
a synced staged file that the commit adopts. Only rows that the commit names count, so retried,
speculative and zombie tasks leave no trace. The channel remembers a streaming batch by query ID and
batch ID, so committing it again does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ChannelPort, Put, SinkBatch, StagedFile
from spillable_stream.errors import ChannelFullError, NotAChannelError, SpillableError
from spillable_stream.format.batch import accept_batch, decode_schema, encode_batch
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.format.record import SegmentRef
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.sink_plan import SinkPlan
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.spark.task_guards import query_of_task, refuse_self_read

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 feeds a stream's rows one by one
    if not TYPE_CHECKING:
        from spillable_stream.spark.compat import DataSourceStreamArrowWriter

__all__ = ["SpillableBatchWriter", "SpillableStreamWriter", "Staged"]

_log = logging.getLogger(__name__)

_WARN_AFTER_SECONDS = 10.0
_BATCH = 0  # the batch ID of a batch write, which has a single batch
_SKIPPED = (
    "%s already has, from %s, the batch %d or a later one: this write is skipped, as it should be when a batch is "
    "tried again. If these are other rows, from an old copy of a checkpoint, use a new checkpointLocation, or another "
    "txnAppId"
)


@dataclass
class Staged(WriterCommitMessage):
    """A task's staged output.

    Args:
        channel: the UUID of the channel that it was staged for.
        owner: the streaming query's ID, or the ID of a batch write.
        query: the ID of the streaming query that the task belongs to, if any.
        frames: the PUT frames of a small output, with payloads that can be pickled.
        segment: the staged file of a large output.
    """

    channel: str
    owner: str
    query: str | None
    frames: list[Frame] = field(repr=False)  # keeps payloads out of logs
    segment: SegmentRef | None


class _Stager:
    """The common base of the batch and the streaming writer.

    Args:
        plan: the plan of the write.
    """

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._path = plan.path
        self._schema = plan.schema  # of Spark's rows, which Spark 4.0 sends one by one

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> Staged:
        """Encode a task's rows, into a staged file once they are large.

        Args:
            batches: the rows.
            owner: the streaming query's ID, or the ID of a batch write.
            batch_id: the batch that the rows belong to.

        Raises:
            NotAChannelError: this host does not have the channel's directories. It is raised even for few rows, which
                need no directory, so that a job fails at once and not when its output grows.
        """
        stage = self._plan.stage
        stage.require_here()
        schema, query = decode_schema(stage.schema), query_of_task()
        frames: list[Frame] = []
        size_bytes = 0
        context = TaskContext.get()
        limit_bytes = self._plan.inline_bytes(context.partitionId() if context else 0)
        segment: StagedFile | None = None
        try:
            for batch in batches:
                added = encode_batch(accept_batch(batch, schema), stage.schema_id, stage.compression)
                frames += added
                size_bytes += total_size(added)
                if size_bytes > limit_bytes:
                    segment = segment or stage.begin(owner, batch_id)
                    segment.write(frames)
                    frames, size_bytes = [], 0
            if segment is None:
                small = [f._replace(payload=bytes(f.payload)) for f in frames]
                return Staged(stage.channel, owner, query, small, None)
            segment.write(frames)
            reference = segment.finish()
        except BaseException:
            if segment is not None:
                segment.discard()
            raise
        segment.close()
        return Staged(stage.channel, owner, query, [], reference)

    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit what the tasks staged as one put transaction.

        Args:
            messages: the tasks' messages.
            batch_id: the batch that they staged for.
            sink: the key by which the channel remembers the batch, so that it is not committed twice; None to allow
                that.
        """
        staged = [m for m in messages if isinstance(m, Staged)]
        if not any(m.frames or (m.segment and m.segment.count) for m in staged):
            return
        owner = staged[0].owner
        made: list[str] = []
        try:
            frames, segments = self._in_order(staged, batch_id, made)
            with visit(self._path, create=False) as channel:
                _require_same(channel, staged[0])
                refuse_self_read(channel, staged[0].query)
                port = channel.port()
                if not self._commit(port, Put(frames, segments, sink)):
                    _log.warning(_SKIPPED, self._path, *(sink or ("", 0)))
                    port.discard(segment.name for segment in segments)
                port.end_staging(owner, batch_id)
                port.checkpoint_if_due()
        except BaseException:  # Spark's abort knows only the tasks' staged files
            with contextlib.suppress(SpillableError):
                self._discard(made)
            raise

    def _commit(self, port: ChannelPort, put: Put) -> bool:
        """Commit, waiting for room if necessary; False if the batch was committed before."""
        keep_alive_seconds = self._plan.keep_alive_seconds
        try:
            return port.publish(put, min(keep_alive_seconds, _WARN_AFTER_SECONDS))
        except ChannelFullError as e:
            left = keep_alive_seconds - _WARN_AFTER_SECONDS
            if left <= 0:
                raise
            _log.warning("the sink waits up to %g s more for room: %s", left, e)
            return port.publish(put, left)

    def _in_order(self, staged: list[Staged], batch_id: int, made: list[str]) -> tuple[list[Frame], list[SegmentRef]]:
        """Return all output as frames; or only as staged files if any task has one, to keep the tasks' order.

        Args:
            staged: the tasks' messages.
            batch_id: the batch that they staged for.
            made: receives the names of the staged files that are created here.
        """
        if not any(m.segment for m in staged):
            return [frame for m in staged for frame in m.frames], []
        segments = []
        for m in staged:
            if m.segment is not None and m.segment.count:
                segments.append(m.segment)
            elif m.frames:
                segments.append(self._segment_of(m, batch_id))
                made.append(segments[-1].name)
        return [], segments

    def _segment_of(self, staged: Staged, batch_id: int) -> SegmentRef:
        """Write a task's frames into a staged file."""
        writer = self._plan.stage.begin(staged.owner, batch_id)
        try:
            writer.write(staged.frames)
            reference = writer.finish()
        except BaseException:
            writer.discard()
            raise
        writer.close()
        return reference

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write's tasks."""
        self._discard([m.segment.name for m in messages if isinstance(m, Staged) and m.segment is not None])

    def _discard(self, names: list[str]) -> None:
        """Remove staged files that the channel has not adopted, even if it is unknown how the commit ended."""
        if names:
            with visit(self._path, create=False) as channel:
                channel.port().discard(names)


def _require_same(channel: Channel, staged: Staged) -> None:
    """Refuse rows that were staged for another channel, whose columns may have another order or other types."""
    if channel.uuid != staged.channel:
        raise NotAChannelError(
            f"the rows were staged for the channel {staged.channel}, and {channel.path} is the channel {channel.uuid} "
            "now: it was removed and made again. None of them was stored; write them again"
        )


@short_traces
class SpillableBatchWriter(_Stager, DataSourceArrowWriter):
    """Appends a DataFrame to a channel as one put transaction."""

    def __init__(self, plan: SinkPlan) -> None:
        super().__init__(plan)
        self._job = f"batch-{uuid.uuid4().hex}"  # tasks share it: Spark sends them a copy of this writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, self._job, _BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows or none, unless a write with this ``txnAppId`` and ``txnVersion`` was published before.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
        """
        self._publish(messages, _BATCH, self._plan.transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)


@short_traces
class SpillableStreamWriter(_Stager, DataSourceStreamArrowWriter):
    """Appends a query's micro-batches to a channel, each as one put transaction, each once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        context = TaskContext.get()
        query = query_of_task()
        batch_id = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch_id is None:
            raise SpillableError("Spark does not say which query and batch this is, so it can not be stored just once")
        return self._stage(iterator, query, int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch, unless it was published before.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
        """
        queries = {m.owner for m in messages if isinstance(m, Staged)}
        self._publish(messages, batchId, SinkBatch(queries.pop(), batchId) if queries else None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)
