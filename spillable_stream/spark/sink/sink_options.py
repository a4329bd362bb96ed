"""The options of a write, typed: what `parse_options` found in Spark's strings, as far as it fits together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from spillable_stream.channel.due_time import due_ms
from spillable_stream.channel.ttl import ttl_us
from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import OptionError
from spillable_stream.options import CHANNEL, CREATION, OPTIONS, SINK, defaults, parse_options
from spillable_stream.shown_value import shown
from spillable_stream.spark.sink.sink_times import SinkTimes

__all__ = ["SinkOptions"]

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
        merge_schema: whether a channel gets the columns of the rows that it does not have.
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
    merge_schema: bool = False
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
        described = sink["shards"] is not None or sink["merge_schema"] or options or times != SinkTimes()
        if flow is not None and (described or not stream):
            raise OptionError(
                "flow is for a stream, and its file describes the channels and the events' times: leave out shards, "
                "shardBy, mergeSchema, ttl and delays, and the options of channels, and use writeStream"
            )
        if sink["shards"] is not None:
            _refuse_directories(options)
        return cls(
            keep_alive_seconds=sink["keep_alive"],
            max_inline_bytes=sink["max_inline_bytes"],
            transaction=None if application is None else SinkBatch(_APPLICATION + application, version),
            of_channel=options,
            merge_schema=sink["merge_schema"],
            shards=sink["shards"],
            shard_by=tuple(sink["shard_by"] or ()),
            flow=flow,
            times=times,
            is_stream=stream,
        )


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


def _refuse_directories(of_channel: Mapping[str, Any]) -> None:
    """Refuse directories that several channels would have to share."""
    for option in OPTIONS:
        if option.keyword in of_channel and option.keyword in _OF_ONE_CHANNEL:
            raise OptionError(
                f"{option.name} is for a single channel, and each shard needs directories of its own: leave it out, or "
                f"create the channels with Channel first, each with its {option.name}"
            )
