"""What a sharded write is to do: a plan for each of its channels, and how rows are divided among them.

The channels of ``orders`` are ``orders-0``, ``orders-1`` and so on. Each remembers a batch with the division of its
rows (`division`, `Shards.name`). A write that would complete a batch of another division is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from pyspark.sql.types import StructType

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import OptionError
from spillable_stream.spark.sink.division import (
    StoredBatches,
    batch_of,
    latest,
    shown_channels,
    stored_otherwise,
    what_to_do,
)
from spillable_stream.spark.sink.shards import Shards
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import SinkTimes
from spillable_stream.spark.sink.spark_writers import WritePlan

__all__ = ["DividedPlan", "ShardedPlan"]


class DividedPlan(WritePlan, Protocol):
    """A plan of a write into several channels, however rows are divided; `ShardedPlan` says what is in it."""

    @property
    def base(self) -> str: ...  # noqa: D102

    @property
    def channels(self) -> tuple[SinkPlan, ...]: ...  # noqa: D102

    def shown(self, channels: Sequence[int]) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class ShardedPlan:
    """A write into several channels. Picklable.

    Args:
        base: the path that the channels' paths begin with.
        shards: how rows are divided among the channels.
        channels: the plan of each channel.
        schema: the schema of the rows that Spark sends.
        times: for how long the rows count, and when they are due.
        transaction: by what a batch write is remembered; None if ``txnAppId`` and ``txnVersion`` were not given.
        beyond: the last batches of the channels that a division into more of them had.
    """

    base: str
    shards: Shards
    channels: tuple[SinkPlan, ...]
    schema: StructType
    times: SinkTimes
    transaction: SinkBatch | None
    beyond: StoredBatches

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of the plan: its commit makes another one."""
        return replace(self, channels=tuple([channel.for_tasks() for channel in self.channels]), beyond={})

    def inline_bytes(self, partition_id: int) -> int:
        """Return how much a task may send through the driver, for all channels: the least that a channel says.

        Args:
            partition_id: the task's number among those of its write, from 0.
        """
        return min(channel.inline_bytes(partition_id) for channel in self.channels)

    def shown(self, channels: Sequence[int]) -> str:
        """Return what messages call some of the channels, by their numbers."""
        return shown_channels("shard", [str(channel) for channel in channels])

    def remembered(self, batch: SinkBatch) -> SinkBatch:
        """Return by what the channels remember a batch.

        Args:
            batch: the query's ID, or the application, and the batch's number.

        Raises:
            OptionError: the batch, or a later one, was stored by another division.
        """
        stored = latest(self.beyond, *(channel.stored for channel in self.channels))
        found = stored_otherwise(stored, batch, self.shards.name)
        if found is not None:
            count = found.query.removeprefix(batch.query).strip("/").partition("-")[0]
            how = f"{count} shards" if count.isdigit() else "without shards"
            raise OptionError(
                f"{self.base} has, from {batch.query}, the batch {found.batch_id} with other shards or shardBy "
                f"({how}), in all of them or in some. {what_to_do(batch, found.batch_id, 'the shards')}"
            )
        return batch_of(batch, self.shards.name)
