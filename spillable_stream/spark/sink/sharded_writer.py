"""The sharded sink: a task divides its rows among several channels, and the commit publishes to each.

Each channel gets a put transaction of its own, and remembers the batch, so that a repetition completes one that only
some of the channels have (`sharded_commit`). A batch write is safe to repeat likewise if it has a ``txnAppId``. Without
one, nobody can tell a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.sharded_plan import DividedPlan, ShardedPlan
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_writers import BatchWriter, SinkWriter, StreamWriter
from spillable_stream.spark.sink.task_stage import Staged, staging

__all__ = ["ShardedBatchWriter", "ShardedStaged", "ShardedStreamWriter"]


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
        from spillable_stream.spark.sink.sharded_commit import publish  # it opens channels, and no task does

        publish(self._plan, _by_shard(self._outputs(messages)), batch_id, sink)

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
