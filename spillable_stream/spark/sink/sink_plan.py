"""What a write is to do: made where Spark asks for a writer, sent to its tasks, and carried out by its commit."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.due_time import due_ms, require_delays, require_orderable
from spillable_stream.channel.several_channels import PlannedChannel, check_channel
from spillable_stream.channel.stored_schema import widened
from spillable_stream.channel.ttl import ttl_us
from spillable_stream.engine.port import KnownState, SinkBatch, StagePlan, one_look
from spillable_stream.errors import NotAChannelError, OptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.options import CHANNEL, CREATION, OPTIONS, SINK, defaults, parse_options
from spillable_stream.shown_value import shown
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.schema import creation_schema
from spillable_stream.spark.sink.channel_commit import ChannelCommit
from spillable_stream.spark.sink.division import StoredBatches, of_query, stored_batches, stored_otherwise, what_to_do
from spillable_stream.spark.sink.sink_times import SinkTimes

__all__ = [
    "TASK_INLINE_BYTES",
    "SinkOptions",
    "SinkPlan",
    "batches_that_matter",
    "check_sink_channel",
    "plan_for",
    "plan_sink",
    "shown_channels",
    "sink_channel",
]

TASK_INLINE_BYTES = 256 << 10
"""What a task may send through the driver unless an option says more: Spark bounds the sum of all tasks' results."""

_TASKS_INLINE_BYTES = 128 << 20  # an eighth of what spark.driver.maxResultSize is by default
_APPLICATION = "txn:"  # before a txnAppId among the queries' IDs
_OF_ONE_CHANNEL = {"data_dirs", "checkpoint_dir", "backup_checkpoint_dir"}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, as far as they fit together.

    Args:
        keep_alive_seconds: how long the commit waits for room.
        max_inline_bytes: what one task may send through the driver; None if the channel says it.
        transaction: by what a batch write is remembered (``txnAppId`` and ``txnVersion``); None if they were not given.
        of_channel: the options of the channel, by keyword name.
        shards: how many channels share the rows; None if a single one has them.
        shard_by: the columns whose values choose a row's channel.
        flow: the configuration file, the agent and the source through which a stream goes; None for none.
        times: for how long the rows count, and when they are due.
        is_stream: whether a streaming query writes, whose commits find the channel open from the last one.
    """

    keep_alive_seconds: float
    max_inline_bytes: int | None
    transaction: SinkBatch | None
    of_channel: Mapping[str, Any]
    shards: int | None = None
    shard_by: tuple[str, ...] = ()
    flow: tuple[str, str, str] | None = None
    times: SinkTimes = field(default_factory=SinkTimes)
    is_stream: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool) -> Self:
        """Return the options of a write.

        Args:
            given: Spark's options, but those that are Spark's own.
            stream: whether a streaming query writes.

        Raises:
            OptionError: an option is unknown, out of range, or not for such a write.
        """
        options = parse_options(given, (SINK, CHANNEL, CREATION), where="a Spark sink")
        sink = {name: options.pop(name, default) for name, default in defaults(SINK).items()}
        application, version = sink["txn_app_id"], sink["txn_version"]
        if (application is None) != (version is None):
            raise OptionError("txnAppId and txnVersion belong together; give both")
        if stream and application is not None:
            raise OptionError(
                "txnAppId and txnVersion are for batch writes, as in foreachBatch: a stream's batches are known by its "
                "query and their numbers; leave them out"
            )
        if (sink["shards"] is None) != (sink["shard_by"] is None):
            raise OptionError("shards and shardBy belong together; give both, or neither for a single channel")
        flow, times = _flow(sink["flow"], sink["agent"], sink["source"]), _times(sink)
        if flow is not None and (sink["shards"] is not None or options or not stream or times != SinkTimes()):
            raise OptionError(
                "flow is for a stream, and its file describes the channels and the events' times: leave out shards, "
                "shardBy, ttl and delays, and the options of channels, and use writeStream"
            )
        if sink["shards"] is not None:
            _refuse_directories(options)
        return cls(
            keep_alive_seconds=sink["keep_alive"],
            max_inline_bytes=sink["max_inline_bytes"],
            transaction=None if application is None else SinkBatch(_APPLICATION + application, version),
            of_channel=options,
            shards=sink["shards"],
            shard_by=tuple(sink["shard_by"] or ()),
            flow=flow,
            times=times,
            is_stream=stream,
        )


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


@one_look()
def plan_sink(path: str, options: SinkOptions, schema: StructType) -> SinkPlan:
    """Create or widen a channel for rows, and return how to write them.

    Args:
        path: the channel's directory.
        options: the write's options.
        schema: the schema of the rows; it has columns.

    Raises:
        OptionError: the channel, or the columns, do not allow the rows' times.
        SchemaError: the columns do not fit the channel's.
    """
    with sink_channel(path, options, schema) as channel:
        plan = plan_for(channel, path, options, schema)
        return plan if options.is_stream else replace(plan, known=channel.port().known_state())


def sink_channel(
    path: str, options: SinkOptions, schema: StructType, *, create: bool = True
) -> AbstractContextManager[Channel]:
    """Open the channel of a write, which may get new columns.

    Args:
        path: the channel's directory.
        options: the write's options.
        schema: the schema of the rows; it has columns.
        create: whether to create it if it is missing.
    """
    if options.times.may_delay:
        _require_delays(path, options.of_channel)
    return visit(path, create=create, schema=_stored(options, schema), **options.of_channel)


def check_sink_channel(path: str, options: SinkOptions, schema: StructType) -> PlannedChannel:
    """Refuse the channel of a write that can be seen to be impossible, or return its directories; nothing is created.

    The arguments are those of `plan_sink`; there is no such channel.
    """
    return check_channel(path, schema=_stored(options, schema), **options.of_channel)


def require_fit(path: str, options: SinkOptions, schema: StructType) -> None:
    """Refuse a write that does not fit the columns of its channel, if there is one; nothing is changed.

    The arguments are those of `plan_sink`, and it raises what that raises.
    """
    try:
        with visit(path, create=False) as channel:
            widened(channel.path, channel.port().schemas(), _stored(options, schema), typed=channel.typed)
    except NotAChannelError as e:
        if not e.is_missing:
            raise


def _stored(options: SinkOptions, schema: StructType) -> pa.Schema:
    return creation_schema(options.times.stored(schema)) or EVENT_SCHEMA


def _require_delays(path: str, of_channel: Mapping[str, Any]) -> None:
    """Refuse to delay rows where none can wait, before a channel is created or changed."""
    disk_events = of_channel.get("overflow_capacity")
    require_delays(path, None, has_disk=disk_events != 0)
    with contextlib.suppress(NotAChannelError), visit(path, create=False) as channel:  # a new one has a disk tier
        require_orderable(channel.schema, path)
        if disk_events is None:
            channel.put_transaction().require_delays()


def plan_for(channel: Channel, path: str, options: SinkOptions, schema: StructType) -> SinkPlan:
    """Return how to write rows into a channel that is open.

    Args:
        channel: the channel.
        path: its directory.
        options: the write's options.
        schema: the schema of the rows.
    """
    most_bytes = options.max_inline_bytes
    return SinkPlan(
        path=path,
        stage=channel.port().plan_stage(),
        schema=schema,
        times=options.times,
        keep_alive_seconds=options.keep_alive_seconds,
        max_inline_bytes=_task_inline_bytes(channel) if most_bytes is None else most_bytes,
        transaction=options.transaction,
        stored=batches_that_matter(channel, options),
    )


def batches_that_matter(channel: Channel, options: SinkOptions) -> StoredBatches:
    """Return the last batches of a channel, as far as the write may repeat one of them: which query, no plan knows."""
    if options.is_stream:
        return stored_batches(channel)
    return {} if options.transaction is None else of_query(stored_batches(channel), options.transaction.query)


def _flow(path: str | None, agent: str | None, source: str | None) -> tuple[str, str, str] | None:
    if path is None and agent is None and source is None:
        return None
    if path is None or agent is None or source is None:
        raise OptionError("flow, agent and source belong together; give all three, or none")
    return path, agent, source


def _times(sink: Mapping[str, Any]) -> SinkTimes:
    """Return what the options say of the rows' times.

    Raises:
        OptionError: one is too long, or two do not go together.
    """
    after, at_column, ttl_column = sink["deliver_after"], sink["deliver_at_column"], sink["ttl_column"]
    if after and at_column is not None:
        raise OptionError("deliverAfter and deliverAtColumn are both given; give one of them")
    if ttl_column is not None and ttl_column == at_column:
        raise OptionError(f"ttlColumn and deliverAtColumn both name the column {shown(ttl_column)}; give each its own")
    return SinkTimes(ttl_us(sink["ttl"]), ttl_column, due_ms(after, None, 0), at_column)


def shown_channels(kind: str, names: Sequence[str]) -> str:
    """Return what messages call channels that share a write, such as ``the shards 0, 2``."""
    return f"the {kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def _refuse_directories(of_channel: Mapping[str, Any]) -> None:
    """Refuse directories that several channels would have to share."""
    for option in OPTIONS:
        if option.keyword in of_channel and option.keyword in _OF_ONE_CHANNEL:
            raise OptionError(
                f"{option.name} is for a single channel, and each shard needs directories of its own: leave it out, or "
                f"create the channels with Channel first, each with its {option.name}"
            )


def _task_inline_bytes(channel: Channel) -> int:
    """Return what a task may send where no option of the sink says it."""
    of_channel: int = channel.options["max_inline_bytes"]
    return min(of_channel, TASK_INLINE_BYTES)
