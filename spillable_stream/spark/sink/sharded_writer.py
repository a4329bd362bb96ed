"""The sharded sink: a task divides its rows among several channels, and the commit publishes to each.

Each channel gets a put transaction of its own, and remembers the batch. So a micro-batch is visible channel by channel;
and if the driver dies between two of them, Spark's repetition of the batch completes it: the channels that have it skip
it. A batch write is safe to repeat likewise if it has a ``txnAppId``. Without one, nobody can tell a repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.errors import IncompleteWriteError
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.side_by_side import settled, side_by_side
from spillable_stream.spark.sink.channel_commit import ChannelCommit, OpenCommit
from spillable_stream.spark.sink.sharded_plan import ShardedPlan
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_checkpoint import NOWHERE, SparkCheckpoint
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged, staging
from spillable_stream.spark.sink.writer import ONLY_BATCH, batch_of_task, new_job
from spillable_stream.spark.spark_errors import short_traces

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 feeds a stream's rows one by one
    if not TYPE_CHECKING:
        from spillable_stream.spark.sink.compat import DataSourceStreamArrowWriter

__all__ = ["DividedPlan", "ShardedBatchWriter", "ShardedStaged", "ShardedStreamWriter"]


@dataclass
class ShardedStaged(WriterCommitMessage):
    """A task's staged output.

    Args:
        owner: the streaming query's ID, or the ID of a batch write.
        of_shards: what it staged for each shard that has rows, by the shard's number.
    """

    owner: str
    of_shards: dict[int, Staged]


class DividedPlan(Protocol):
    """A plan of a write into several channels, however rows are divided; `ShardedPlan` says what is in it."""

    @property
    def base(self) -> str: ...  # noqa: D102

    @property
    def channels(self) -> tuple[SinkPlan, ...]: ...  # noqa: D102

    @property
    def schema(self) -> StructType: ...  # noqa: D102

    @property
    def transaction(self) -> SinkBatch | None: ...  # noqa: D102

    def shown(self, channels: Sequence[int]) -> str: ...  # noqa: D102

    def remembered(self, batch: SinkBatch) -> SinkBatch: ...  # noqa: D102


class _ShardedStager:
    """The common base of the batch and the streaming writer.

    Args:
        plan: the plan of the write.
    """

    def __init__(self, plan: DividedPlan) -> None:
        self._plan = plan
        self._schema = plan.schema  # of Spark's rows, which Spark 4.0 sends one by one

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> ShardedStaged:
        """Divide a task's rows among the shards, and encode them, into staged files once they are large.

        Args:
            batches: the rows.
            owner: the streaming query's ID, or the ID of a batch write.
            batch_id: the batch that the rows belong to.
        """
        plan = self._plan
        assert isinstance(plan, ShardedPlan)
        stages = [channel.stage for channel in plan.channels]
        with staging(stages, plan.inline_bytes, owner, batch_id) as task:
            for batch in batches:
                for shard, rows in plan.shards.split(batch):
                    task.add(shard, *plan.times.divide(rows, wall_clock_ms()))
            staged = task.finish()
        return ShardedStaged(owner, {shard: found for shard, found in enumerate(staged) if found.has_rows})

    @one_look()
    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit what the tasks staged, each shard's rows as one put transaction of its channel.

        Args:
            messages: the tasks' messages.
            batch_id: the batch that they staged for.
            sink: by what the channels remember the batch, so that it is not committed twice; None to allow that.
        """
        staged = _by_shard(messages)
        self._refuse_self_read(staged)
        commits = [_ShardCommit(self._plan.channels[shard].commit, staged[shard], batch_id) for shard in staged]
        try:
            side_by_side([commit.open for commit in commits])  # what must be refused is refused before a commit
        except BaseException:
            side_by_side([commit.leave for commit in commits])
            raise
        done = settled([partial(commit.publish, sink) for commit in commits])
        failures = {shard: e for shard, future in zip(staged, done, strict=True) if (e := future.exception())}
        if failures:
            raise self._failure(failures, [shard for shard in staged if shard not in failures], sink)

    def _refuse_self_read(self, staged: dict[int, list[Staged]]) -> None:
        """Refuse rows of a query that reads one of the shards that get none; the commits of the others refuse it."""
        query = next((found.query for of_shard in staged.values() for found in of_shard), None)
        if query is None:
            return

        def refuse(path: str) -> None:
            with visit(path, create=False) as channel:
                refuse_self_read(channel, query)

        channels = self._plan.channels
        side_by_side([partial(refuse, channels[i].commit.path) for i in range(len(channels)) if i not in staged])

    def _failure(
        self, failures: dict[int, BaseException], stored: Sequence[int], sink: SinkBatch | None
    ) -> BaseException:
        """Return what to raise of a write that failed in some shards."""
        first = next(iter(failures.values()))
        if not stored or not isinstance(first, Exception):
            return first
        if sink is not None:
            advice = (
                f"A repetition of the batch {sink.batch_id} with the same rows completes it, and stores nothing twice"
            )
        else:
            advice = (
                "To write all rows again would store those twice. Give such writes a txnAppId and a txnVersion, with "
                "which a repetition is safe"
            )
        return IncompleteWriteError(
            f"the write to {self._plan.base} is incomplete: {self._plan.shown(stored)} "
            f"{'has' if len(stored) == 1 else 'have'} its rows, and it failed in {self._plan.shown(list(failures))}: "
            f"{first}. {advice}"
        )

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write's tasks, in every shard."""
        channels = self._plan.channels
        side_by_side([partial(channels[shard].commit.discard, found) for shard, found in _by_shard(messages).items()])


class _ShardCommit:
    """The commit of one shard, in two steps that may run in different threads.

    Args:
        commit: how the shard's channel gets rows.
        staged: the tasks' messages of this shard.
        batch_id: the batch that they staged for.
    """

    def __init__(self, commit: ChannelCommit, staged: Sequence[Staged], batch_id: int) -> None:
        self._opened = commit.opened(staged, batch_id)
        self._commit: OpenCommit | None = None
        self._stack = ExitStack()

    def open(self) -> None:
        """Open the channel, unless the rows do not belong there."""
        self._commit = self._stack.enter_context(self._opened)

    def publish(self, sink: SinkBatch | None) -> None:
        """Commit the rows, and leave the channel."""
        with self._stack:
            assert self._commit is not None, "open() was first"
            self._commit.publish(sink)

    def leave(self) -> None:
        """Leave the channel without a commit."""
        self._stack.close()


def _by_shard(messages: list[WriterCommitMessage | None]) -> dict[int, list[Staged]]:
    """Return the tasks' messages of each shard that has rows, in the tasks' order."""
    found: dict[int, list[Staged]] = {}
    for message in messages:
        if isinstance(message, ShardedStaged):
            for shard, staged in message.of_shards.items():
                found.setdefault(shard, []).append(staged)
    return dict(sorted(found.items()))


@short_traces
class ShardedBatchWriter(_ShardedStager, DataSourceArrowWriter):
    """Appends a DataFrame to several channels, to each as one put transaction."""

    def __init__(self, plan: DividedPlan) -> None:
        super().__init__(plan)
        self._job = new_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, self._job, ONLY_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows, unless a write with this ``txnAppId`` and ``txnVersion`` was published before.

        Raises:
            IncompleteWriteError: some shards have their rows, and others failed.
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
        """
        given = self._plan.transaction
        self._publish(messages, ONLY_BATCH, None if given is None else self._plan.remembered(given))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)


@short_traces
class ShardedStreamWriter(_ShardedStager, DataSourceStreamArrowWriter):
    """Appends a query's micro-batches to several channels, each batch once, as one put transaction of each channel.

    Args:
        plan: the plan of the write.
        checkpoint: the query's checkpoint.
    """

    def __init__(self, plan: DividedPlan, checkpoint: SparkCheckpoint = NOWHERE) -> None:
        super().__init__(plan)
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        return self._stage(iterator, *batch_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch where it was not published before.

        Raises:
            IncompleteWriteError: some shards have their rows, and others failed; a repetition completes the batch.
            ChannelFullError: there was no room within ``keepAlive``; nothing was published.
            StorageError: the disk failed, that of Spark's checkpoint among them.
        """
        self._checkpoint.sync_batch(batchId, chain.from_iterable(_by_shard(messages).values()))
        queries = {m.owner for m in messages if isinstance(m, ShardedStaged)}
        if queries:
            self._publish(messages, batchId, self._plan.remembered(SinkBatch(queries.pop(), batchId)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files of a failed write."""
        self._abort(messages)
