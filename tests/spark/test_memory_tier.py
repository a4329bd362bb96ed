"""Spark on a channel with a memory tier."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.engine.put_request import Put
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.spark.source.partition import plan_partitions, read_partition
from spillable_stream.spark.source.read_options import BatchOptions
from spillable_stream.state.ranges import Range
from spillable_stream.storage.filesystem import FileSystem
from tests.spark.test_stream import bodies, run, stream
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, put

pytestmark = pytest.mark.spark
MIB = 1 << 20


def opened(path: Path, **options: object) -> ss.Channel:
    return ss.Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options)


def disk_end(channel: ss.Channel) -> int:
    """Return how far the log of the disk tier is, in its one file."""
    channel.stats()
    return channel.engine().positions.disk.offset


def lose_host(channel: ss.Channel) -> None:
    """Kill a handle and take the memory tier away; nothing else has the channel open."""
    kill(channel)
    lose_memory(channel.path)


def write(spark: SparkSession, path: Path, rows: int, size: int) -> None:
    """Append rows with bodies of a size, from two tasks."""
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(map() as map<string,string>) as headers",
        f"cast(repeat(cast(id % 10 as string), {size}) as binary) as body",
    )
    frame.write.format("spillable").option("minimumRequiredSpace", "0").mode("append").save(str(path))


@pytest.mark.slow
def test_a_pipeline_whose_consumer_keeps_up_writes_no_event_to_disk(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path / "in") as source, opened(tmp_path / "between", memory_capacity=100_000) as between:
        between.engine().memory.create()
        for i in range(4):
            put(source, *[b"%06d" % j + bytes(1000) for j in range(500 * i, 500 * i + 500)])
            run(stream(spark, tmp_path / "in"), tmp_path / "ck1", tmp_path / "between")
            run(stream(spark, tmp_path / "between"), tmp_path / "ck2", tmp_path / "out")
            assert between.stats().drain_order == []
        assert disk_end(between) < 8_000  # of 2,000,000 bytes of events
        assert not list((tmp_path / "between" / "data").glob("segment.*"))
    assert [b[:6] for b in bodies(tmp_path / "out")] == [b"%06d" % i for i in range(2000)]


def test_large_tasks_stage_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with opened(path, memory_capacity=100_000, byte_capacity=64 * MIB) as channel:
        write(spark, path, 200, 10_000)
        assert channel.stats().drain_order == [200]
        assert len(list((path / "memory").glob("memory-segment.*"))) == 2
        assert not list((path / "data").glob("segment.*"))
        assert disk_end(channel) < 8_000
        assert spark.read.format("spillable").load(str(path)).count() == 200
    with opened(path) as channel:
        assert channel.stats().drain_order == [-200]
    found = [r.body for r in spark.read.format("spillable").load(str(path)).collect()]
    assert found == [b"%d" % (i % 10) * 10_000 for i in range(200)]


def test_staged_tasks_for_which_memory_has_no_room_spill(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with opened(path, memory_capacity=300, byte_capacity=64 * MIB, overflow_timeout=0) as channel:
        write(spark, path, 200, 10_000)
        write(spark, path, 200, 10_000)
        assert channel.stats().drain_order == [200, -200]
        assert len(list((path / "memory").glob("memory-segment.*"))) == 2
        assert len(list((path / "data").glob("segment.*"))) == 2
        assert spark.read.format("spillable").load(str(path)).count() == 400


def test_a_task_larger_than_memory_continues_on_disk(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with opened(path, memory_capacity=100_000, byte_capacity=MIB) as channel:
        write(spark, path, 400, 10_000)
        assert channel.stats().drain_order == [-400]
        assert not list((path / "memory").glob("memory-segment.*"))
    found = [r.body for r in spark.read.format("spillable").load(str(path)).collect()]
    assert found == [b"%d" % (i % 10) * 10_000 for i in range(400)]


def test_a_staged_task_outlives_a_memory_tier_that_is_closed_before_its_commit(tmp_path: Path) -> None:
    """Between a task and the commit of its batch, the last other handle may move memory to disk."""
    path = tmp_path / "c"
    with opened(path, memory_capacity=100) as channel:
        channel.engine().memory.create()
        writer = StagedFileWriter(FileSystem(), channel.engine().layout, "query", 7, memory_bytes=MIB)
        put(channel, b"x")
        with channel.take_transaction() as tx:
            frames = encode_batch(tx.take_batch(1).drop_columns("write_order_id").to_batches()[0])  # type: ignore[union-attr]
            writer.write(frames)
            staged = writer.finish()
            writer.close()
    assert not os.path.lexists(path / "memory")
    with opened(path) as channel:
        channel.engine().commit(Put([], [staged], ("query", 7)))
        assert channel.stats().drain_order == [-1]
        with channel.take_transaction() as tx:
            assert [e.body for e in tx.take_many(2)] == [b"x"]


@pytest.mark.slow
def test_a_reader_fails_on_lost_events_or_continues_without_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    channel = opened(path, memory_capacity=10, overflow_timeout=0)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 5))
    channel.consumer("default").close()
    lose_host(channel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ss.errors.MemoryLossWarning)
        opened(path).close()
    with pytest.raises(PySparkException, match=r"the events 1 to 10 are lost.*Set failOnDataLoss to false"):
        run(stream(spark, path), tmp_path / "ck", tmp_path / "out")
    with pytest.raises(PySparkException, match="the events 1 to 10 are lost"):
        spark.read.format("spillable").option("group", "default").load(str(path)).collect()
    run(stream(spark, path, failOnDataLoss=False), tmp_path / "ck", tmp_path / "out")
    assert bodies(tmp_path / "out") == numbered(10, 5)


@pytest.mark.slow
def test_a_query_that_was_under_way_meets_the_loss_too(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    channel = opened(path, memory_capacity=10, overflow_timeout=0)
    put(channel, *numbered(0, 5))
    run(stream(spark, path), tmp_path / "ck", tmp_path / "out")
    put(channel, *numbered(5, 5))
    put(channel, *numbered(10, 20))
    lose_host(channel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ss.errors.MemoryLossWarning)
        opened(path).close()
    with pytest.raises(PySparkException, match="to 10 are lost"):
        run(stream(spark, path), tmp_path / "ck", tmp_path / "out")
    run(stream(spark, path, failOnDataLoss=False), tmp_path / "ck", tmp_path / "out")
    assert bodies(tmp_path / "out") == [*numbered(0, 5), *numbered(10, 20)]


@pytest.mark.parametrize("flushed", ["before the read", "never"])
def test_a_planned_partition_finds_events_that_were_moved(spark: SparkSession, tmp_path: Path, flushed: str) -> None:
    path = tmp_path / "c"
    with opened(path, memory_capacity=100) as channel:
        put(channel, *numbered(0, 50))
        ranges: list[Range] = [(1, 50)]
        options = BatchOptions.of({"min_partitions": 3})
        with channel.port().snapshot() as state:
            parts = plan_partitions(channel.port(), state, ranges, options)
        if flushed == "before the read":
            channel.close()
        batches = [batch for part in parts for batch in read_partition(part, EVENT_SCHEMA, options)]
        found = [body for batch in batches for body in batch["body"].to_pylist()]
    assert found == numbered(0, 50)
