"""What a sharded write is to do: a plan for each of its channels, and how rows are divided among them.

The channels of ``orders`` are ``orders-0``, ``orders-1`` and so on. Each remembers a batch with the division of its
rows (`division`, `Shards.name`). A write that would complete a batch of another division is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.known_uuid import uuid_at
from spillable_stream.channel.several_channels import PlannedChannel, enter_together
from spillable_stream.engine.port import SinkBatch, one_look
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.local_path import absolute
from spillable_stream.spark.schema import arrow_schema
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.division import (
    StoredBatches,
    batch_of,
    latest,
    shown_channels,
    stored_otherwise,
    what_to_do,
)
from spillable_stream.spark.sink.shards import Shards
from spillable_stream.spark.sink.sink_channel import (
    batches_that_matter,
    check_sink_channel,
    plan_for,
    require_fit,
    sink_channel,
)
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import SinkTimes

__all__ = ["ShardedPlan", "plan_sharded_sink", "shard_path"]


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


@one_look()
def plan_sharded_sink(path: str, options: SinkOptions, schema: StructType) -> ShardedPlan:
    """Create or widen the channels for rows, and return how to write them.

    None is created or widened before the rows are known to fit those that are there. None is created before these are
    open, and all of the others can be created. Options are stored in all of them, or in none.

    Args:
        path: the path that the channels' paths begin with.
        options: the write's options, with `SinkOptions.shards`.
        schema: the schema of the rows; it has columns.

    Raises:
        OptionError: the rows can't be divided by these columns.
        SchemaError: the columns do not fit a channel's; the message names it.
    """
    base = absolute(path)
    shards = Shards.of(options.shards or 1, options.shard_by, arrow_schema(schema))

    def open_one(number: int, create: bool) -> AbstractContextManager[Channel | StoredBatches]:
        if number == shards.count:  # beside them, what is beyond them
            return nullcontext(_look_beyond(base, shards.count, options))
        return _shard(shard_path(base, number), options, schema, create=create)

    def check(number: int) -> PlannedChannel:
        return check_sink_channel(shard_path(base, number), options, schema)

    def plan(number: int, channel: Channel) -> SinkPlan:
        return plan_for(channel, shard_path(base, number), options, schema)

    side_by_side([partial(_require_fit, shard_path(base, n), options, schema) for n in range(shards.count)])
    with ExitStack() as stack:
        opened: list[Any] = enter_together(stack, range(shards.count + 1), open_one, check, side_by_side)
        *channels, beyond = opened
        planned = side_by_side([partial(plan, number, channel) for number, channel in enumerate(channels)])
    return ShardedPlan(
        base=base,
        shards=shards,
        channels=tuple(planned),
        schema=schema,
        times=options.times,
        transaction=options.transaction,
        beyond=beyond,
    )


def shard_path(base: str, shard: int) -> str:
    """Return the path of a shard's channel.

    Args:
        base: the path that the channels' paths begin with.
        shard: the shard's number, from 0.
    """
    return f"{base}-{shard}"


@contextmanager
def _shard(path: str, options: SinkOptions, schema: StructType, *, create: bool) -> Iterator[Channel]:
    with ExitStack() as stack:
        try:
            channel = stack.enter_context(sink_channel(path, options, schema, create=create))
        except SchemaError as e:
            raise _names(path, e) from e
        yield channel


def _require_fit(path: str, options: SinkOptions, schema: StructType) -> None:
    try:
        require_fit(path, options, schema)
    except SchemaError as e:
        raise _names(path, e) from e


def _names(path: str, error: SchemaError) -> SchemaError:
    """Return an error that shows schemas as one that says whose."""
    return SchemaError(f"{path} does not fit the rows: {error}")


def _look_beyond(base: str, count: int, options: SinkOptions) -> StoredBatches:
    """Return what the channels say that a division into more of them had."""
    found: list[StoredBatches] = []
    try:
        while True:
            path = shard_path(base, count + len(found))
            uuid_at(path)  # an open would find out for people what is there instead
            with visit(path, create=False) as channel:
                found.append(batches_that_matter(channel, options))
    except NotAChannelError:
        return latest(*found)
