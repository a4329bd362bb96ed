"""The sharded sink: where rows are, that they are there once, and what a write leaves that fails in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import spillable_stream as ss
from spillable_stream.options import BUCKETS
from spillable_stream.sharding import shard_of_key
from spillable_stream.spark import explain
from spillable_stream.spark.sink import sharded_writer as module
from spillable_stream.spark.sink.compat import DataSourceStreamArrowWriter
from spillable_stream.spark.sink.sharded_writer import ShardedBatchWriter, ShardedStaged, ShardedStreamWriter
from tests.spark.sink.test_sharded_channels import sharded_plan
from tests.support.spark.versions import drain

ARROW = pa.schema([("customer", pa.string()), ("n", pa.int64())])
SHARDS = 3
STORES = pytest.mark.parametrize("store", ["", "object+file://"])


def customer(n: int) -> str:
    return f"customer {n % 17}"


def shard_of(n: int) -> int:
    return shard_of_key(customer(n), BUCKETS, SHARDS)


def rows(numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield rows in two batches."""
    half = len(numbers) // 2
    for part in (numbers[:half], numbers[half:]):
        yield pa.record_batch([pa.array(list(map(customer, part)), pa.string()), pa.array(part, pa.int64())], ARROW)


def stored(base: object, shards: int = SHARDS) -> list[list[int]]:
    """Return the numbers in each shard, in order; and that each key is where it belongs."""
    found = []
    for shard in range(shards):
        with ss.Channel(f"{base}-{shard}", create=False) as channel:
            events = [row for batch in channel.read() for row in batch.to_pylist()]
        assert all(shard_of_key(row["customer"], BUCKETS, shards) == shard for row in events)
        found.append([row["n"] for row in events])
    return found


def expected(*batches: Sequence[int]) -> list[list[int]]:
    return [[n for numbers in batches for n in numbers if shard_of(n) == shard] for shard in range(SHARDS)]


def staged_for_stream(base: object, *tasks: Sequence[int], batch_id: int = 7, **options: Any) -> tuple[Any, list[Any]]:
    """Return a query's writer and what its tasks staged."""
    writer = ShardedStreamWriter(sharded_plan(base, SHARDS, **{"keepAlive": 0, **options}))
    return writer, [writer._stage(rows(numbers), "query", batch_id) for numbers in tasks]


def staged_for_batch(base: object, *tasks: Sequence[int], **options: Any) -> tuple[Any, list[Any]]:
    writer = ShardedBatchWriter(sharded_plan(base, SHARDS, **{"keepAlive": 0, **options}))
    return writer, [writer.write(rows(numbers)) for numbers in tasks]


def segments(base: object) -> list[tuple[int, int]]:
    """Return of each shard how many segments there are, and how many of them it holds."""
    found = []
    for shard in range(SHARDS):
        with ss.Channel(f"{base}-{shard}", create=False) as channel:
            engine = channel.engine()
            found.append((len(engine.layout.segments(engine.fs)), len(engine.follow().blocks.segments())))
    return found


# ── where rows are ──────────────────────────────────────────────────────────────────────────


@STORES
@pytest.mark.parametrize(("inline", "files"), [(1 << 20, 0), (9000, 1), (0, 6)])
def test_rows_are_in_the_shards_of_their_keys_in_the_order_of_the_tasks(
    tmp_path: Path, store: str, inline: int, files: int
) -> None:
    base = f"{store}{tmp_path}/orders"
    writer, messages = staged_for_stream(base, range(500), range(500, 600), maxInlineBytes=inline)
    found = [s.segment is not None for m in messages for s in m.of_shards.values()]
    assert (len(found), sum(found)) == (2 * SHARDS, files)
    writer.commit(messages, 7)
    assert stored(base) == expected(range(600))


def test_rows_of_every_shard_wait_until_they_are_due(tmp_path: Path) -> None:
    writer, messages = staged_for_stream(
        tmp_path / "orders", range(1, 60), deliverAfter="1h", ttlColumn="n", maxInlineBytes=0
    )
    for _ in range(2):  # a repetition stores nothing
        writer.commit(messages, 7)
    waiting = []
    for shard in range(SHARDS):
        with ss.Channel(f"{tmp_path}/orders-{shard}", create=False) as channel:
            assert channel.schema.names == ["customer"]
            waiting.append(channel.stats().delayed.events)
    assert waiting == [len(numbers) for numbers in expected(range(1, 60))]


def test_shard_without_rows_gets_no_transaction(tmp_path: Path) -> None:
    numbers = [n for n in range(100) if shard_of(n) != 1]
    writer, messages = staged_for_batch(tmp_path / "orders", numbers)
    assert sorted(messages[0].of_shards) == [0, 2]
    writer.commit([*messages, None])
    with ss.Channel(tmp_path / "orders-1", create=False) as channel:
        assert channel.stats().channel_size == 0 and channel.engine().follow().last_id == 0
    assert stored(tmp_path / "orders") == expected(numbers)


@pytest.mark.parametrize("tasks", [[], [None], [range(0)]])
def test_write_without_rows_stores_nothing(tmp_path: Path, tasks: list[Any]) -> None:
    writer, messages = staged_for_batch(tmp_path / "orders", *[t for t in tasks if t is not None])
    writer.commit([*messages, *[None for t in tasks if t is None]])
    assert stored(tmp_path / "orders") == [[], [], []]


@pytest.mark.parametrize("shards", [SHARDS, 70])
def test_producer_of_the_same_channels_puts_a_key_where_the_sink_puts_it(tmp_path: Path, shards: int) -> None:
    plan = sharded_plan(tmp_path / "orders", shards)
    writer = ShardedBatchWriter(plan)
    writer.commit([writer.write(rows(range(17)))])
    more = {} if shards <= 64 else {"buckets": 512}
    with ss.Producer([channel.path for channel in plan.channels], **more) as producer:
        for n in range(17):
            producer.send({"customer": customer(n), "n": n}, key=customer(n))
    found = {}
    for i, channel_plan in enumerate(plan.channels):
        with ss.Channel(channel_plan.path, create=False) as channel:
            found[i] = [row["n"] for batch in channel.read() for row in batch.to_pylist()]
    assert sorted(n for numbers in found.values() for n in numbers) == sorted([*range(17), *range(17)])
    assert all(sorted(set(numbers) & set(range(17))) * 2 == numbers for numbers in found.values())


def test_rows_that_come_one_by_one_are_divided_too(tmp_path: Path) -> None:
    """As Spark 4.0 sends a stream's rows."""

    class Writer(module._ShardedWriter, DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardedStaged:
            return self._stage(iterator, "query", 7)

    writer = Writer(sharded_plan(tmp_path / "orders", SHARDS))
    message = writer.write(Row(customer=customer(n), n=n) for n in range(100))
    writer._publish([message], 7, None)
    assert stored(tmp_path / "orders") == expected(range(100))


# ── once ────────────────────────────────────────────────────────────────────────────────────


@STORES
def test_batch_that_is_repeated_is_stored_once(tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture) -> None:
    base = f"{store}{tmp_path}/orders"
    for _ in range(2):
        caplog.clear()
        writer, messages = staged_for_stream(base, range(100))
        writer.commit(messages, 7)
    assert stored(base) == expected(range(100))
    assert sum("the batch 7 or a later one: this write is skipped" in r.message for r in caplog.records) == SHARDS
    writer, messages = staged_for_stream(base, range(100, 200), batch_id=8)
    writer.commit(messages, 8)
    assert stored(base) == expected(range(200))


def test_repetition_with_other_shards_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    writer, messages = staged_for_stream(tmp_path / "orders", range(100))
    writer.commit(messages, 7)
    writer = ShardedStreamWriter(sharded_plan(tmp_path / "orders", 4))
    with pytest.raises(ss.OptionError, match="the batch 7 with other shards or shardBy"):
        writer.commit([writer._stage(rows(range(100)), "query", 7)], 7)
    assert stored(tmp_path / "orders") == expected(range(100))
    writer.commit([writer._stage(rows(range(100, 200)), "query", 8)], 8)


# ── on a real Spark ─────────────────────────────────────────────────────────────────────────


def frame(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("concat('customer ', id % 17) AS customer", "id AS n")


def options_for(base: str, **options: Any) -> dict[str, str]:
    space = {} if "://" in base else {"minimumRequiredSpace": 0}
    return {k: str(v) for k, v in {**space, "shards": SHARDS, "shardBy": "customer", **options}.items()}


@pytest.mark.spark
@STORES
@pytest.mark.parametrize("inline", [None, 0])
def test_batch_write_of_a_frame(spark: SparkSession, tmp_path: Path, store: str, inline: int | None) -> None:
    base = f"{store}{tmp_path}/orders"
    options = options_for(base, **({} if inline is None else {"maxInlineBytes": inline}))
    for _ in range(2):
        writer = frame(spark, 1000).write.format("spillable").mode("append").options(**options)
        writer.option("txnAppId", "job").option("txnVersion", "1").save(base)
    assert stored(base) == expected(range(1000))


@pytest.mark.slow
@pytest.mark.spark
@STORES
def test_stream_from_a_channel_to_shards_and_its_restart(spark: SparkSession, tmp_path: Path, store: str) -> None:
    base, source = f"{store}{tmp_path}/orders", str(tmp_path / "source")
    for first in (0, 300):
        with ss.Channel(source, schema=ARROW, minimum_required_space=0) as channel, channel.put_transaction() as tx:
            tx.put_many([{"customer": customer(n), "n": n} for n in range(first, first + 300)])
        stream = spark.readStream.format("spillable").option("maxEventsPerTrigger", 200).load(source)
        writer = stream.writeStream.format("spillable").options(**options_for(base))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        drain(lambda writer=writer: writer.start(base))  # type: ignore[misc]
    assert [sorted(numbers) for numbers in stored(base)] == expected(range(600))
    together = spark.read.format("spillable").load(f"{base}-*")
    assert sorted(row.n for row in together.select("n").collect()) == list(range(600))


@pytest.mark.spark
def test_write_that_fails_in_one_shard_leaves_no_staged_file_there_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = str(tmp_path / "orders")
    sharded_plan(base, SHARDS)
    ss.Channel(f"{base}-1", create=False, overflow_capacity=10).close()
    writer = frame(spark, 100).write.format("spillable").mode("append")
    with pytest.raises(PySparkException) as failed:
        writer.options(**options_for(base, maxInlineBytes=0, keepAlive=0)).save(base)
    assert "is incomplete: the shards 0, 2 have its rows, and it failed in the shard 1: " in explain(failed.value)
    assert segments(base) == [(2, 2), (0, 0), (2, 2)]
    found, whole = stored(base), expected(range(100))
    assert [sorted(numbers) for numbers in found] == [whole[0], [], whole[2]]


@pytest.mark.spark
def test_wrong_column_is_told_by_the_write(spark: SparkSession, tmp_path: Path) -> None:
    writer = frame(spark, 10).write.format("spillable").mode("append")
    with pytest.raises(PySparkException, match="shardBy names the column 'region', and the rows have customer, n"):
        writer.options(**options_for("", shardBy="customer,region")).save(str(tmp_path / "orders"))


@pytest.mark.spark
def test_query_that_reads_one_of_its_shards_is_refused_before_it_has_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = str(tmp_path / "orders")
    writer, messages = staged_for_batch(base, range(100))
    writer.commit(messages)
    stream = spark.readStream.format("spillable").load(f"{base}-1").selectExpr("concat('x', n) AS customer", "n")
    query = stream.writeStream.format("spillable").options(**options_for(base))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(base)
    with pytest.raises(PySparkException, match="so it would never end; write to another channel"):
        query.awaitTermination()
    assert stored(base) == expected(range(100))
