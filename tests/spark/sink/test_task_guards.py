"""A task on another host touches nothing, and a query that reads what it writes is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spillable_stream as ss
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.source.partition import plan_partitions, read_partition
from spillable_stream.spark.source.read_options import BatchOptions
from tests.support.damage import memory_of
from tests.support.events import numbered, put

Put = Callable[..., Path]


def test_a_task_without_the_memory_tier_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "channel", memory_capacity=100, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 50))
        options = BatchOptions.of()
        with channel.port().snapshot() as state:
            (part,) = plan_partitions(channel.port(), state, [(1, 50)], options)
        memory = memory_of(tmp_path / "channel")
        hidden = memory.rename(memory.with_name(f"{memory.name}-hidden"))
        try:
            with pytest.raises(ss.OtherHostError, match=r"the events 1 to 50 of .*run Spark there"):
                list(read_partition(part, EVENT_SCHEMA, options))
        finally:
            hidden.rename(memory)
        assert [
            b for batch in read_partition(part, EVENT_SCHEMA, options) for b in batch["body"].to_pylist()
        ] == numbered(0, 50)
        assert channel.stats().drain_order == [50]


# ── a query that reads and writes the same channel ──────────────────────────────────────────────


def stored(path: Path) -> int:
    with ss.Channel(path, create=False) as channel:
        return channel.engine().follow().last_id


@pytest.mark.spark
def test_stream_into_its_own_channel_is_refused_before_anything_is_written(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    path = put("a", b"1", b"2")
    stream = spark.readStream.format("spillable").load(str(path))
    writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(path))
    with pytest.raises(PySparkException, match=r"reads .*/a \(as the group 'auto-[0-9a-f]{32}'\) and writes to it"):
        query.awaitTermination()
    assert stored(path) == 2


@pytest.mark.spark
def test_batch_write_in_foreach_batch_into_its_own_channel_is_refused(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    path = put("a", b"1", b"2")

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.format("spillable").mode("append").save(str(path))

    stream = spark.readStream.format("spillable").load(str(path))
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match="and writes to it, so it would never end"):
        query.trigger(availableNow=True).start().awaitTermination()
    assert stored(path) == 2


@pytest.mark.spark
def test_another_query_may_write_to_the_channel_that_a_query_reads(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    source, middle = put("a", b"1", b"2"), put("b", b"0")

    def start(path: Path, target: Path, name: str) -> object:
        stream = spark.readStream.format("spillable").load(str(path))
        writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / name))
        return writer.option("minimumRequiredSpace", 0).start(str(target))

    first = start(middle, tmp_path / "c", "first")
    second = start(source, middle, "second")
    try:
        for query in (second, first):
            query.processAllAvailable()
        assert stored(tmp_path / "c") == 3
    finally:
        first.stop()
        second.stop()
