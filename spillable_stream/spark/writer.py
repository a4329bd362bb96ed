"""The sink: tasks stage their rows, the driver's commit publishes all of them as one transaction.

A small output travels in the task's commit message and becomes frames of the log; a large one is a
synced segment file that the commit adopts. Only what the commit names counts, so retried,
speculative and zombie tasks leave no trace. A streaming batch is remembered by query ID and batch
ID, so that committing it again does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.requests import Put
from spillable_stream.errors import ChannelFullError, NotAChannelError, SpillableError
from spillable_stream.format.batch import accept_batch, decode_schema, encode_batch
from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.record import SegmentRef
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.spark.locality import require_channel
from spillable_stream.spark.self_read_guard import query_of_task, refuse_loop
from spillable_stream.spark.short_trace import short_traces
from spillable_stream.spark.visit import visit
from spillable_stream.storage.filesystem import FileSystem

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 feeds a stream's rows one by one
    from spillable_stream.spark.compat import DataSourceStreamArrowWriter

__all__ = ["TASK_INLINE_BYTES", "SpillableBatchWriter", "SpillableStreamWriter", "Staged", "inline_bytes"]

_log = logging.getLogger(__name__)

TASK_INLINE_BYTES = 256 << 10
"""What a task may send through the driver unless an option says more: Spark bounds the sum of all tasks' results."""

_TASKS_INLINE_BYTES = 128 << 20  # an eighth of what spark.driver.maxResultSize is by default

_WARN_AFTER_SECONDS = 10.0
_BATCH = 0  # the number of a batch write: it has only one
_APPLICATION = "txn:"  # before a txnAppId among the queries' IDs
_SKIPPED = (
    "%s already has, from %s, the batch %d or a later one: this write is skipped, as it should be when a batch is "
    "tried again. If these are other rows, from an old copy of a checkpoint, use a new checkpointLocation, or another "
    "txnAppId"
)


def inline_bytes(most_bytes: int, partition_id: int) -> int:
    """Return how much a task may send through the driver.

    Spark tells a task its own number, and not how many there are. So the first tasks may send as much as one may, up
    to 128 MiB together, and the others less with the square of their number: all of them together, however many there
    are, send no more than twice as much.

    Args:
        most_bytes: what one task may send.
        partition_id: the task's number among those of its write, from 0.
    """
    first = max(1, _TASKS_INLINE_BYTES // max(1, most_bytes))
    return most_bytes if partition_id < first else most_bytes * first**2 // (partition_id + 1) ** 2


class Staged(WriterCommitMessage):
    """What a task has staged.

    Args:
        channel: the UUID of the channel that it was staged for.
        owner: the streaming query's ID, or a batch write's own.
        query: the streaming query that the task belongs to, if any.
        frames: payload, checksum, count and schema number of small outputs.
        segment: the segment of a large one.
    """

    def __init__(
        self,
        channel: str,
        owner: str,
        query: str | None,
        frames: list[tuple[bytes, int, int, int]],
        segment: SegmentRef | None,
    ) -> None:
        self.channel = channel
        self.owner = owner
        self.query = query
        self.frames = frames
        self.segment = segment


class _Stager:
    """What the batch and the streaming writer share.

    Args:
        path: the channel's directory.
        layout: the channel's files.
        schema: the channel's schema, as an Arrow IPC message.
        schema_id: its number.
        options: the channel's options and the sink's ``keep_alive``.
        spark_schema: the schema of the rows that Spark sends.
    """

    def __init__(
        self,
        path: str,
        layout: Layout,
        schema: bytes,
        schema_id: int,
        options: dict[str, Any],
        spark_schema: Any,
    ) -> None:
        self._path = path
        self._layout = layout
        self._channel_schema = schema
        self._schema_id = schema_id
        self._options = options
        self._schema = spark_schema

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> Staged:
        """Encode a task's rows, in a segment file once they are large.

        Raises:
            NotAChannelError: this host does not have the channel's directories; also for rows that are few enough to
                need none, so that a job which runs goes on to run when it has more of them.
        """
        require_channel(FileSystem(), self._layout)
        schema, query = decode_schema(self._channel_schema), query_of_task()
        frames: list[Frame] = []
        size = 0
        context = TaskContext.get()
        limit = inline_bytes(self._options["max_inline_bytes"], context.partitionId() if context else 0)
        segment: StagedFileWriter | None = None
        try:
            for batch in batches:
                added = encode_batch(accept_batch(batch, schema), self._schema_id, self._options["compression"])
                frames += added
                size += total_size(added)
                if size > limit:
                    segment = segment or self._segment(owner, batch_id)
                    segment.write(frames)
                    frames, size = [], 0
            if segment is None:
                small = [(bytes(f.payload), f.payload_crc, f.count, f.schema_id) for f in frames]
                return Staged(self._layout.channel, owner, query, small, None)
            segment.write(frames)
            reference = segment.finish()
        except BaseException:
            if segment is not None:
                segment.discard()
            raise
        segment.close()
        return Staged(self._layout.channel, owner, query, [], reference)

    def _segment(self, owner: str, batch_id: int) -> StagedFileWriter:
        """Begin a segment, in the channel's memory tier where this host has it."""
        fs, options = FileSystem(), self._options
        self._layout.grant(fs)
        return StagedFileWriter(
            fs, self._layout, owner, batch_id, options["memory_bytes"], options["minimum_required_space"]
        )

    def _publish(self, messages: list[Any], batch_id: int, sink: tuple[str, int] | None) -> None:
        """Commit what the tasks staged as one put transaction.

        Args:
            messages: the tasks' messages.
            batch_id: the batch that they staged it for.
            sink: by what it is remembered, so that it is not committed twice; None for not at all.
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
                refuse_loop(channel, staged[0].query)
                if not self._commit(channel, Put(frames, segments, sink)):
                    _log.warning(_SKIPPED, self._path, *(sink or ("", 0)))
                    channel.engine().checkpointing.discard([segment.name for segment in segments])
                channel.engine().checkpointing.remove_staging(owner, batch_id)
                channel.engine().checkpointing.make_if_due()
        except BaseException:  # Spark's abort knows of the tasks' segments only
            with contextlib.suppress(SpillableError):
                self._discard(made)
            raise

    def _commit(self, channel: Channel, request: Put) -> bool:
        """Commit, after a wait for room if need be, and tell whether anything was to do."""
        keep_alive_seconds = self._options["keep_alive"]
        try:
            done = channel.engine().commit(request, min(keep_alive_seconds, _WARN_AFTER_SECONDS))
        except ChannelFullError as e:
            left = keep_alive_seconds - _WARN_AFTER_SECONDS
            if left <= 0:
                raise
            _log.warning("the sink waits up to %g s more for room: %s", left, e)
            done = channel.engine().commit(request, left)
        return done.transaction_id != 0

    def _in_order(self, staged: list[Staged], batch_id: int, made: list[str]) -> tuple[list[Frame], list[SegmentRef]]:
        """Return frames, or, when a task made a segment, segments only: so rows stay in the tasks' order.

        Args:
            staged: the tasks' messages.
            batch_id: the batch that they staged it for.
            made: gets the names of the segments that are made here.
        """
        if not any(m.segment for m in staged):
            return [Frame(FrameType.PUT, *f) for m in staged for f in m.frames], []
        segments = []
        for m in staged:
            if m.segment is not None and m.segment.count:
                segments.append(m.segment)
            elif m.frames:
                segments.append(self._segment_of(m, batch_id))
                made.append(segments[-1].name)
        return [], segments

    def _segment_of(self, staged: Staged, batch_id: int) -> SegmentRef:
        """Write a task's frames into a segment."""
        writer = self._segment(staged.owner, batch_id)
        try:
            writer.write(Frame(FrameType.PUT, *f) for f in staged.frames)
            reference = writer.finish()
        except BaseException:
            writer.discard()
            raise
        writer.close()
        return reference

    def _abort(self, messages: list[Any]) -> None:
        """Remove the segments that tasks of a failed write staged."""
        self._discard([m.segment.name for m in messages if isinstance(m, Staged) and m.segment is not None])

    def _discard(self, names: list[str]) -> None:
        """Remove segments unless the channel has adopted them, whatever became of the commit that was to."""
        if names:
            with visit(self._path, create=False) as channel:
                channel.engine().checkpointing.discard(names)


def _require_same(channel: Channel, staged: Staged) -> None:
    """Refuse rows that were staged for another channel: its columns may have another order, and other types."""
    if channel.uuid != staged.channel:
        raise NotAChannelError(
            f"the rows were staged for the channel {staged.channel}, and {channel.path} is the channel {channel.uuid} "
            "now: it was removed and made again. None of them was stored; write them again"
        )


@short_traces
class SpillableBatchWriter(_Stager, DataSourceArrowWriter):
    """Appends a DataFrame to a channel as one put transaction."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._job = f"batch-{uuid.uuid4().hex}"  # tasks have the same: they are sent a copy of this writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, self._job, _BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows, unless a write of this ``txnAppId`` and ``txnVersion`` did; or raise and publish none.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``.
        """
        application, version = self._options["txn_app_id"], self._options["txn_version"]
        self._publish(messages, _BATCH, None if application is None else (_APPLICATION + application, version))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged."""
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
        """Publish the micro-batch unless it was published before.

        Raises:
            ChannelFullError: there was no room within ``keepAlive``; nothing is lost.
        """
        queries = {m.owner for m in messages if isinstance(m, Staged)}
        self._publish(messages, batchId, (queries.pop(), batchId) if queries else None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged."""
        self._abort(messages)
