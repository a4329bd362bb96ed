"""The streaming source, called as Spark calls it, without Spark's JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.format.frame import FrameType
from spillable_stream.options import SOURCE, parse_options
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.offset import OffsetJson
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.state.group import GroupState


def put(channel: ss.Channel, *counts: int, body: bytes = b"x") -> None:
    for count in counts:
        with channel.put_transaction() as tx:
            tx.put_many([ss.Event(body)] * count)


def source(channel: ss.Channel, **options: Any) -> SpillableStreamReader:
    parsed = parse_options(options, (SOURCE,), where="a test")
    return SpillableStreamReader(str(channel.path), StreamOptions.of(parsed), struct_type(channel.schema))


def named_source(channel: ss.Channel, **options: Any) -> SpillableStreamReader:
    """Return a source of the group `default`, unless the options name another one."""
    return source(channel, **{"group": "default", **options})


def batches(reader: SpillableStreamReader, begin: int | None = None) -> list[tuple[int, int]]:
    """Run micro-batches until there is no more, and return where each began and ended."""
    start = reader.initialOffset()
    if begin is not None:
        start["writeOrderId"] = begin
    found = []
    while (end := reader.latestOffset(start)) != start:
        reader.partitions(start, end)
        found.append((start["writeOrderId"] + 1, end["writeOrderId"]))
        reader.commit(end)
        start = end
    return found


def batches_of(channel: ss.Channel, **options: Any) -> list[tuple[int, int]]:
    """Return the micro-batches of a query that is stopped then."""
    reader = source(channel, **options)
    try:
        return batches(reader)
    finally:
        reader.stop()


def nine_events(put: Callable[..., Path]) -> Path:
    """Create a channel with the events 1 to 9 in three transactions, and a group that took the first two."""
    for first in (1, 4, 7):
        path = put("a", *(b"%d" % i for i in range(first, first + 3)))
    with ss.Channel(path) as channel:
        channel.consumer("all")
        with channel.take_transaction("some") as tx:
            tx.take_many(2)
    return path


def read(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    """Return what a batch read of a channel gives."""
    return spark.read.format("spillable").options(**{k: str(v) for k, v in options.items()}).load(str(path))


def read_all(reader: SpillableStreamReader, start: OffsetJson | None = None) -> OffsetJson:
    """Run micro-batches until there is no more, and return where the last one ended; the source is stopped then."""
    start = start or reader.initialOffset()
    while (end := reader.latestOffset(start)) != start:
        reader.partitions(start, end)
        reader.commit(end)
        start = end
    reader.stop()
    return start


def refuses(reader: SpillableStreamReader, offset: OffsetJson, match: str, again: str | None = None) -> None:
    """Prove that a checkpoint is refused, whether Spark asks first for its next batch, or plans the last one again.

    Args:
        reader: the source.
        offset: the checkpoint's last one.
        match: what the error says.
        again: what it says of the last batch, of which Spark does not tell before 4.2 whether it was done.
    """
    with pytest.raises(CheckpointMismatchError, match=match):
        reader.latestOffset(offset)
    with pytest.raises(CheckpointMismatchError, match=again or match):
        reader.partitions(offset, offset)


def groups(channel: ss.Channel) -> dict[str, GroupState]:
    """Return the channel's groups, by name."""
    return dict(channel.engine().follow().groups)


def expire(channel: ss.Channel, through: int) -> None:
    """Let the events up to this one leave, whoever needs them."""
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


def planned(reader: SpillableStreamReader) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan the first batch, and return where it begins and ends."""
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end)
    return start, end


def read_ranges(reader: SpillableStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Plan a batch, and return the ranges of its events."""
    parts: list[Any] = list(reader.partitions(start, end))
    return [(e.first_id, e.last_id) for part in parts for e in part.plan.extents]
