"""The sink of one channel: a small output travels in the task's commit message and becomes frames of the log.

A large output is a synced staged file that the commit adopts. The channel remembers a streaming batch by query ID and
batch ID, so committing it again does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.spark.local_path import absolute
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_writers import BatchWriter, SinkWriter, StreamWriter
from spillable_stream.spark.sink.task_stage import Staged, staging

__all__ = ["SpillableBatchWriter", "SpillableStreamWriter"]


class _ChannelWriter(SinkWriter[SinkPlan]):
    """Writes to one channel."""

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> Staged:
        with staging([self._plan.stage], self._plan.inline_bytes, owner, batch_id) as task:
            for batch in batches:
                task.add(0, *self._plan.times.divide(batch, wall_clock_ms()))
            (staged,) = task.finish()
        return staged

    @one_look()
    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        staged = [m for m in self._outputs(messages) if m.has_rows]
        if staged:
            with self._plan.commit.opened(staged, batch_id) as commit:
                commit.publish(sink)

    def _discard(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.commit.discard(self._outputs(messages))

    def _outputs(self, messages: list[WriterCommitMessage | None]) -> list[Staged]:
        return [m for m in messages if isinstance(m, Staged)]

    def _written(self, messages: list[WriterCommitMessage | None]) -> dict[str, str]:
        return dict([(absolute(self._plan.path), m.channel) for m in self._outputs(messages) if m.has_rows])

    def _remembered(
        self, batch: SinkBatch, messages: list[WriterCommitMessage | None], *, is_first: bool
    ) -> tuple[SinkBatch, set[str]]:
        return self._plan.remembered(batch), {self._plan.stage.channel}


class SpillableBatchWriter(BatchWriter[SinkPlan], _ChannelWriter):
    """Appends a DataFrame to a channel as one put transaction."""


class SpillableStreamWriter(StreamWriter[SinkPlan], _ChannelWriter):
    """Appends a query's micro-batches to a channel, each as one put transaction, each once."""
