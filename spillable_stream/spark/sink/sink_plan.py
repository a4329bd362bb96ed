"""What a write is to do: made where Spark asks for a writer, sent to its tasks, and carried out by its commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from pyspark.sql.types import StructType

from spillable_stream.engine.port import KnownState, SinkBatch, StagePlan
from spillable_stream.errors import OptionError
from spillable_stream.spark.sink.division import StoredBatches, stored_otherwise, what_to_do
from spillable_stream.spark.sink.sink_times import SinkTimes

if TYPE_CHECKING:
    from spillable_stream.spark.sink.channel_commit import ChannelCommit

__all__ = ["SinkPlan"]

_TASKS_INLINE_BYTES = 128 << 20  # an eighth of what spark.driver.maxResultSize is by default


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A write into a channel. Picklable.

    Args:
        path: the channel's directory.
        stage: how its tasks stage their rows.
        schema: the schema of the rows that Spark sends.
        times: for how long the rows count, and when they are due.
        keep_alive_seconds: how long the commit waits for room.
        max_inline_bytes: what one task may send through the driver (`inline_bytes`).
        transaction: by what a batch write is remembered (``txnAppId`` and ``txnVersion``); None if they were not given.
        known: what the process that plans knows of the channel, for the one that commits.
        stored: the last batches that the channel has, of the query or application that writes as far as that is known.
    """

    path: str
    stage: StagePlan
    schema: StructType
    times: SinkTimes
    keep_alive_seconds: float
    max_inline_bytes: int
    transaction: SinkBatch | None
    known: KnownState | None = None
    stored: StoredBatches = field(default_factory=dict)

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of the plan: its commit makes another one."""
        return replace(self, stored={})

    def remembered(self, batch: SinkBatch) -> SinkBatch:
        """Return by what the channel remembers a batch.

        Args:
            batch: the query's ID, or the application, and the batch's number.

        Raises:
            OptionError: the channel has the batch, or a later one, from a write to several channels.
        """
        found = stored_otherwise(self.stored, batch, "")
        if found is not None:
            raise OptionError(
                f"{self.path} has, from {batch.query}, the batch {found.batch_id} of a write to several channels (by "
                f"shards or a flow). {what_to_do(batch, found.batch_id, 'the shards or the flow')}"
            )
        return batch

    @property
    def commit(self) -> ChannelCommit:
        """How the channel gets what the tasks stage."""
        from spillable_stream.spark.sink.channel_commit import ChannelCommit  # tasks have the plan, too, and open none

        return ChannelCommit(self.path, self.stage, self.keep_alive_seconds, self.known)

    def inline_bytes(self, partition_id: int) -> int:
        """Return how much a task may send through the driver.

        Spark tells a task its own number, and not how many there are. So the first tasks may send as much as one may,
        up to 128 MiB together, and the others less with the square of their number: all of them together, however
        many there are, send no more than twice as much.

        Args:
            partition_id: the task's number among those of its write, from 0.
        """
        most_bytes = self.max_inline_bytes
        first = max(1, _TASKS_INLINE_BYTES // max(1, most_bytes))
        return most_bytes if partition_id < first else most_bytes * first**2 // (partition_id + 1) ** 2
