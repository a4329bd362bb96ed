"""The channel of a write: created for its rows, widened if they may add columns, or refused; and how to write them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.due_time import require_delays, require_orderable
from spillable_stream.channel.several_channels import PlannedChannel, check_channel
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.channel.stored_schema import widened
from spillable_stream.engine.port import one_look
from spillable_stream.errors import NotAChannelError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA, mismatch
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.schema import creation_schema
from spillable_stream.spark.sink.division import StoredBatches, of_query, stored_batches
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.sink_plan import SinkPlan

__all__ = [
    "TASK_INLINE_BYTES",
    "batches_that_matter",
    "check_sink_channel",
    "plan_for",
    "plan_sink",
    "require_fit",
    "sink_channel",
]

TASK_INLINE_BYTES = 256 << 10
"""What a task may send through the driver unless an option says more: Spark bounds the sum of all tasks' results."""


@one_look()
def plan_sink(path: str, options: SinkOptions, schema: StructType) -> SinkPlan:
    """Open or create a channel for rows, and return how to write them.

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


@contextlib.contextmanager
def sink_channel(path: str, options: SinkOptions, schema: StructType, *, create: bool = True) -> Iterator[Channel]:
    """Open the channel of a write, which gets new columns if it may.

    Args:
        path: the channel's directory.
        options: the write's options.
        schema: the schema of the rows; it has columns.
        create: whether to create it if it is missing.

    Raises:
        OptionError: the channel does not allow the rows' times.
        SchemaError: the columns do not fit the channel's; the message names it.
    """
    if options.times.may_delay:
        _require_delays(path, options.of_channel)
    stored = _stored(options, schema)
    with contextlib.ExitStack() as stack:
        try:
            channel = stack.enter_context(_open(path, options, stored))
        except NotAChannelError:
            if not create:
                raise
            channel = stack.enter_context(visit(path, schema=stored, **options.of_channel))
        yield channel


@contextlib.contextmanager
def _open(path: str, options: SinkOptions, stored: pa.Schema) -> Iterator[Channel]:
    """Open the channel that is there."""
    added = stored if options.merge_schema else None
    with contextlib.ExitStack() as stack:
        try:
            with stored_together():  # a write that is refused leaves the options as they were
                channel = stack.enter_context(visit(path, create=False, schema=added, **options.of_channel))
                if added is None:
                    _require_columns(channel, path, options, stored)
        except SchemaError as e:
            raise _naming(path, e) from e
        yield channel


def _require_columns(channel: Channel, path: str, options: SinkOptions, stored: pa.Schema) -> None:
    """Refuse rows whose columns do not fit the channel's, or are new to it, unless the write may add them."""
    schemas = channel.port().schemas()
    merged = widened(path, schemas, stored, typed=channel.typed)
    new = merged.names[len(schemas[-1]) :]
    if new and not options.merge_schema:
        columns, names, them = ("column", "name", "it") if len(new) == 1 else ("columns", "names", "them")
        why = (
            f"it has no {columns} {', '.join(map(repr, new))}: check the {names}, leave {them} out, or set the option "
            f"mergeSchema to true, which adds {them} for good"
        )
        raise mismatch(why, schemas[-1], stored)


def _naming(path: str, error: SchemaError) -> SchemaError:
    """Return an error that shows schemas as one that says whose."""
    return error if str(error).startswith(path) else SchemaError(f"{path} does not fit the rows: {error}")


def check_sink_channel(path: str, options: SinkOptions, schema: StructType) -> PlannedChannel:
    """Refuse the channel of a write that can be seen to be impossible, or return its directories; nothing is created.

    The arguments are those of `plan_sink`; there is no such channel.
    """
    return check_channel(path, schema=_stored(options, schema), **options.of_channel)


def require_fit(path: str, options: SinkOptions, schema: StructType) -> None:
    """Refuse a write that does not fit the columns of its channel, if there is one; nothing is changed.

    The arguments are those of `plan_sink`, and it raises what that raises.
    """
    stored = _stored(options, schema)
    try:
        with visit(path, create=False) as channel:
            _require_columns(channel, path, options, stored)
    except SchemaError as e:
        raise _naming(path, e) from e
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


def _task_inline_bytes(channel: Channel) -> int:
    """Return what a task may send where no option of the sink says it."""
    of_channel: int = channel.options["max_inline_bytes"]
    return min(of_channel, TASK_INLINE_BYTES)
