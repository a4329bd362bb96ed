"""The channels of a sharded write: opened or created for its rows, or refused; and how to write them into all."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.known_uuid import uuid_at
from spillable_stream.channel.several_channels import PlannedChannel, enter_together
from spillable_stream.engine.port import one_look
from spillable_stream.errors import NotAChannelError
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.local_path import absolute
from spillable_stream.spark.schema import arrow_schema
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.division import StoredBatches, latest
from spillable_stream.spark.sink.sharded_plan import ShardedPlan
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

__all__ = ["plan_sharded_sink", "shard_path"]


@one_look()
def plan_sharded_sink(path: str, options: SinkOptions, schema: StructType) -> ShardedPlan:
    """Open or create the channels for rows, and return how to write them.

    None is created, or gets columns, before the rows are known to fit those that are there. None is created before
    these are open, and all of the others can be created. Options are stored in all of them, or in none.

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
        return sink_channel(shard_path(base, number), options, schema, create=create)

    def check(number: int) -> PlannedChannel:
        return check_sink_channel(shard_path(base, number), options, schema)

    def plan(number: int, channel: Channel) -> SinkPlan:
        return plan_for(channel, shard_path(base, number), options, schema)

    side_by_side([partial(require_fit, shard_path(base, n), options, schema) for n in range(shards.count)])
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
