"""The sharded sink: a task divides its rows among several channels, and the commit publishes to each.

Each channel gets a put transaction of its own, and remembers the batch. So a micro-batch is visible channel by channel;
and if the driver dies between two of them, Spark's repetition of the batch completes it: the channels that have it skip
it. A batch write is safe to repeat likewise if it has a ``txnAppId``. Without one, nobody can tell a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.errors import IncompleteWriteError
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.side_by_side import settled, side_by_side
from spillable_stream.spark.sink.channel_commit import ChannelCommit, OpenCommit
from spillable_stream.spark.sink.sharded_plan import ShardedPlan
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_writers import BatchWriter, SinkWriter, StreamWriter, WritePlan
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged, staging

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

    @property
    def checkpoints(self) -> str:
        """Where the session keeps checkpoints, as the task was told; "" where it has no rows."""
        return next((staged.checkpoints for staged in self._with_rows()), "")

    @property
    def run(self) -> str:
        """The run of the streaming query; "" where it has no rows."""
        return next((staged.run for staged in self._with_rows()), "")

    def _with_rows(self) -> Iterable[Staged]:
        """Return what the task staged, for each channel that has rows."""
        return self.of_shards.values()


class DividedPlan(WritePlan, Protocol):
    """A plan of a write into several channels, however rows are divided; `ShardedPlan` says what is in it."""

    @property
    def base(self) -> str: ...  # noqa: D102

    @property
    def channels(self) -> tuple[SinkPlan, ...]: ...  # noqa: D102

    def shown(self, channels: Sequence[int]) -> str: ...  # noqa: D102


class _ShardedWriter(SinkWriter[DividedPlan]):
    """Divides rows among several channels."""

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> ShardedStaged:
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
        staged = _by_shard(self._outputs(messages))
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

    def _discard(self, messages: list[WriterCommitMessage | None]) -> None:
        channels, staged = self._plan.channels, _by_shard(self._outputs(messages))
        side_by_side([partial(channels[shard].commit.discard, found) for shard, found in staged.items()])

    def _outputs(self, messages: list[WriterCommitMessage | None]) -> list[ShardedStaged]:
        return [m for m in messages if isinstance(m, ShardedStaged)]

    def _written(self, messages: list[WriterCommitMessage | None]) -> dict[str, str]:
        channels, staged = self._plan.channels, _by_shard(self._outputs(messages))
        return {channels[shard].path: found[0].channel for shard, found in staged.items()}

    def _remembered(
        self, batch: SinkBatch, messages: list[WriterCommitMessage | None], *, is_first: bool
    ) -> tuple[SinkBatch, set[str]]:
        assert isinstance(self._plan, ShardedPlan)
        return self._plan.remembered(batch), {channel.stage.channel for channel in self._plan.channels}


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


def _by_shard(outputs: Sequence[ShardedStaged]) -> dict[int, list[Staged]]:
    """Return the tasks' messages of each shard that has rows, in the tasks' order."""
    found: dict[int, list[Staged]] = {}
    for output in outputs:
        for shard, staged in output.of_shards.items():
            found.setdefault(shard, []).append(staged)
    return dict(sorted(found.items()))


class ShardedBatchWriter(BatchWriter[DividedPlan], _ShardedWriter):
    """Appends a DataFrame to several channels, to each as one put transaction."""


class ShardedStreamWriter(StreamWriter[DividedPlan], _ShardedWriter):
    """Appends a query's micro-batches to several channels, each batch once, as one put transaction of each channel."""
