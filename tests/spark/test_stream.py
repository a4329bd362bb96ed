"""The streaming source and sink on a real Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import spillable_stream as ss
from spillable_stream.spark import explain
from tests.lab.children import wait_until
from tests.support.spark.versions import ADMISSION_CONTROL, drain

pytestmark = pytest.mark.spark
Put = Callable[..., Path]
Numbered = Callable[[int, int], list[bytes]]
_START_SECONDS = 120  # of a query, on a machine with much to do


def stream(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.format("spillable")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def run(df: DataFrame, checkpoint: Path, target: Path, **options: Any) -> list[Any]:
    """Run a query into a channel until the source is exhausted and return the reports of its batches."""
    return drain(lambda: once(df, checkpoint, target, **options))


def once(df: DataFrame, checkpoint: Path, target: Path, **options: Any) -> Any:
    """Start one run of a query into a channel that ends by itself."""
    return (
        df.writeStream.format("spillable")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .option("minimumRequiredSpace", "0")
        .trigger(availableNow=True)
        .start(str(target))
    )


def bodies(path: Path) -> list[bytes]:
    """Return every body in a channel, in order, without taking any."""
    with ss.Channel(path, create=False) as channel:
        tx = channel.take_transaction("test")
        tx.begin()
        found = []
        while events := tx.take_many(10_000):
            found += [e["body"] if isinstance(e, dict) else e.body for e in events]
            if len(events) == 10_000:
                break
        tx.rollback()
        tx.close()
        return found


def test_format_is_found_without_registration(spark: SparkSession, put: Put) -> None:
    path = put("a", b"x")
    assert [r.body for r in spark.read.format("spillable").load(str(path)).collect()] == [b"x"]


def test_register_makes_the_format_known(spark: SparkSession, put: Put) -> None:
    path = put("a", b"x", b"y")
    ss.register(spark)
    assert spark.read.format("spillable").load(str(path)).count() == 2


def test_every_event_goes_through_once_and_in_order(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 700))
    reports = run(stream(spark, path, maxEventsPerTrigger=300), tmp_path / "ck", tmp_path / "b")
    assert [r.numInputRows for r in reports] == [300, 300, 100]
    assert bodies(tmp_path / "b") == numbered(0, 700)


def test_restart_from_its_checkpoint_continues_where_it_was(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 50))
    run(stream(spark, path), tmp_path / "ck", tmp_path / "b")
    put("a", *numbered(50, 50))
    run(stream(spark, path), tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(0, 100)


@pytest.mark.slow
def test_delayed_events_appear_in_an_idle_query_at_their_time_each_once_and_expired_ones_never(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nobody but the query looks at its channel when they are due; it is stopped and started again meanwhile."""
    source, target, dues = tmp_path / "a", tmp_path / "b", dict[bytes, float]()
    ss.Channel(target, minimum_required_space=0).close()
    with ss.Channel(source, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put(ss.Event(b"expired"), ttl=timedelta(microseconds=1))
        tx.put(ss.Event(b"now"), ttl=timedelta(hours=1))

    def start() -> StreamingQuery:
        writer = stream(spark, source).writeStream.format("spillable").option("minimumRequiredSpace", "0")
        return writer.option("checkpointLocation", str(tmp_path / "ck")).start(str(target))

    def come() -> list[bytes]:
        found = bodies(target)
        assert all(time.time() >= dues.get(body, 0) for body in found)
        return found

    query = start()
    assert wait_until(lambda: not query.isActive or b"now" in come(), _START_SECONDS)
    with ss.Channel(source, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put(ss.Event(b"expires when it is due"), deliver_after=2, ttl=timedelta(microseconds=1))
        for seconds in (20, 3, 10, 3):
            body = b"%d of %d" % (len(dues), seconds)
            dues[body] = time.time() + seconds - 0.001  # in whole milliseconds
            tx.put(ss.Event(body), deliver_after=seconds, ttl=timedelta(hours=1))
    assert wait_until(lambda: not query.isActive or {b"1 of 3", b"3 of 3"} <= set(come()), _START_SECONDS)
    query.stop()
    assert query.exception() is None
    assert wait_until(lambda: time.time() > dues[b"2 of 10"])  # nobody is there to deliver it
    query = start()
    assert wait_until(lambda: not query.isActive or dues.keys() <= set(come()), _START_SECONDS)
    query.stop()
    assert query.exception() is None
    assert come() == [b"now", b"1 of 3", b"3 of 3", b"2 of 10", b"0 of 20"]
    with ss.Channel(source, create=False) as channel:
        stats = channel.stats()
    assert stats.delayed.events == 0
    assert [group.expired_events for group in stats.groups.values()] == [2]


@pytest.mark.slow
def test_available_now_ends_when_nothing_is_new(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    path = put("a", b"x")
    run(stream(spark, path), tmp_path / "ck", tmp_path / "b")
    assert run(stream(spark, path), tmp_path / "ck", tmp_path / "b") == []


@pytest.mark.slow
def test_one_run_with_a_limit_reads_all_from_spark_4_2_on_and_one_batch_before(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    query = once(stream(spark, put("a", *numbered(0, 70)), maxEventsPerTrigger=30), tmp_path / "ck", tmp_path / "b")
    query.awaitTermination()
    rows = [report.numInputRows for report in query.recentProgress]
    latest = [report.sources[0].latestOffset for report in query.recentProgress]
    ends = [int(re.search(r"writeOrderId\D+(\d+)", text)[1]) for text in latest]  # 4.0 shows no JSON
    if ADMISSION_CONTROL:
        assert rows == [30, 30, 10]
        assert ends == [70, 70, 70]  # so the progress shows the lag
    else:
        assert rows == [30]
        assert ends == [30]


@pytest.mark.slow
def test_new_query_of_a_group_resumes_at_its_position(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 20))
    run(stream(spark, path, group="g", maxEventsPerTrigger=10), tmp_path / "ck1", tmp_path / "b")
    put("a", *numbered(20, 5))
    run(stream(spark, path, group="g"), tmp_path / "ck2", tmp_path / "c")
    assert bodies(tmp_path / "c") == numbered(20, 5)


@pytest.mark.slow
def test_new_group_starting_at_latest_sees_only_what_comes(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 10))
    late = stream(spark, path, group="late", startingOffsets="latest")
    assert run(late, tmp_path / "ck", tmp_path / "b") == []
    put("a", *numbered(10, 5))
    run(late, tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(10, 5)


@pytest.mark.slow
def test_new_group_starting_at_an_id_begins_with_it(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 10))
    run(stream(spark, path, group="g", startingOffsets=8), tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(7, 3)


@pytest.mark.slow
def test_max_bytes_per_trigger_bounds_batches_softly(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    path = put("a", *[bytes(1000)] * 100)
    reports = run(stream(spark, path, maxBytesPerTrigger=30_000), tmp_path / "ck", tmp_path / "b")
    assert sum(r.numInputRows for r in reports) == 100
    assert len(reports) == 4
    assert all(r.numInputRows > 0 for r in reports)


@pytest.mark.slow
def test_min_partitions_splits_a_batch(spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path) -> None:
    path = put("a", *numbered(0, 100))
    df = stream(spark, path, minPartitions=4).select(F.spark_partition_id().alias("p"), "body")
    run(df, tmp_path / "ck", tmp_path / "b")
    rows = spark.read.format("spillable").load(str(tmp_path / "b")).groupBy("p").count().collect()
    assert {r.p: r["count"] for r in rows} == {0: 25, 1: 25, 2: 25, 3: 25}


@pytest.mark.slow
def test_batch_replayed_for_the_same_offsets_has_identical_rows(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 40))
    seen: list[list[bytes]] = []

    def fail_once(df: DataFrame, batch_id: int) -> None:
        seen.append([bytes(r.body) for r in df.collect()])
        if len(seen) == 1:
            raise RuntimeError("the first try fails")

    def start() -> Any:
        writer = stream(spark, path, maxEventsPerTrigger=25).writeStream.foreachBatch(fail_once)
        return writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()

    with pytest.raises(PySparkException):
        start().awaitTermination()
    put("a", *numbered(40, 10))
    drain(start)
    assert seen[0] == seen[1] == numbered(0, 25)
    assert [b for batch in seen[1:] for b in batch] == numbered(0, 50)


@pytest.mark.slow
def test_batch_whose_commit_log_is_lost_is_not_stored_twice(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 30))
    events = stream(spark, path, maxEventsPerTrigger=10, asyncProgressTrackingEnabled=True)
    run(events, tmp_path / "ck", tmp_path / "b")
    for file in (tmp_path / "ck" / "commits").glob("*2*"):  # as if the driver had died before writing it
        file.unlink()
    run(events, tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(0, 30)


@pytest.mark.slow
@pytest.mark.skipif(not ADMISSION_CONTROL, reason="before 4.2 Spark does not ask again after the last batch of a run")
def test_commit_log_that_a_power_cut_took_after_the_take_was_committed_is_refused(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    """Rather than lose or double the batch in silence; Spark does not sync its checkpoint."""
    path = put("a", *numbered(0, 30))
    run(stream(spark, path, maxEventsPerTrigger=10), tmp_path / "ck", tmp_path / "b")
    for file in (tmp_path / "ck" / "commits").glob("*2*"):
        file.unlink()
    with pytest.raises(PySparkException, match=r"but the group 'auto-[0-9a-f]*' has taken 21 to 30"):
        run(stream(spark, path, maxEventsPerTrigger=10), tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(0, 30)


def test_second_live_query_of_a_group_is_refused_by_name(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    path = put("a", b"x")
    with ss.Channel(path) as channel, channel.take_transaction("default") as tx:
        tx.take()
        with pytest.raises(PySparkException, match=r"owned by pid \d+ on"):
            run(stream(spark, path, group="default", ownerTimeout=0), tmp_path / "ck", tmp_path / "b")


@pytest.mark.slow
def test_checkpoint_of_another_channel_is_refused(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    run(stream(spark, put("a", b"x")), tmp_path / "ck", tmp_path / "b")
    with pytest.raises(PySparkException, match="Spark checkpoint belongs to the channel"):
        run(stream(spark, put("other", b"y")), tmp_path / "ck", tmp_path / "b")


def test_complete_mode_is_refused_with_a_reason(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    counts = stream(spark, put("a", b"x")).groupBy("body").count()
    with pytest.raises(PySparkException, match="events in a channel are never replaced"):
        query = counts.writeStream.format("spillable").outputMode("complete")
        query.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "b")).awaitTermination()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxEventPerTrigger": 5}, "the nearest is 'maxEventsPerTrigger'"),
        ({"maxEventsPerTrigger": 0}, "maxEventsPerTrigger must be an integer of at least 1"),
        ({"keepAlive": 5}, "keepAlive is not an option of a Spark source"),
        ({"startingOffsets": "sometimes"}, "startingOffsets must be earliest, latest (streams), "),
    ],
)
def test_wrong_source_option_is_refused(spark: SparkSession, put: Put, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PySparkException, match=re.escape(message)):
        stream(spark, put("a", b"x"), **options)


def test_missing_channel_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="is not a channel"):
        stream(spark, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_create_if_missing_lets_a_consumer_start_first(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    df = stream(spark, tmp_path / "a", createIfMissing="true")
    put("a", b"x")
    run(df, tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == [b"x"]


@pytest.mark.slow
def test_full_channel_fails_the_query_and_loses_nothing(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 20))
    ss.Channel(tmp_path / "b", overflow_capacity=10, minimum_required_space=0).close()
    query = stream(spark, path).writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.raises(PySparkException, match="overflowCapacity"):
        query.option("keepAlive", "0").trigger(availableNow=True).start(str(tmp_path / "b")).awaitTermination()
    assert bodies(tmp_path / "b") == []
    ss.Channel(tmp_path / "b", overflow_capacity=100).close()
    run(stream(spark, path), tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(0, 20)


def test_batch_that_is_too_large_for_the_channel_says_that_it_comes_again_as_it_is_and_fits_once_the_channel_is_larger(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 20))
    ss.Channel(tmp_path / "b", overflow_capacity=10, minimum_required_space=0).close()

    for most in (20, 5):
        with pytest.raises(PySparkException) as e:
            once(stream(spark, path, maxEventsPerTrigger=most), tmp_path / "ck", tmp_path / "b").awaitTermination()
        assert "20 events do not fit" in (said := explain(e.value))
        assert "Raise overflowCapacity, or write fewer rows at once; a query's batch that was planned" in said
        assert bodies(tmp_path / "b") == []
    run(stream(spark, path), tmp_path / "ck", tmp_path / "b", overflowCapacity=20)
    assert bodies(tmp_path / "b") == numbered(0, 20)


@pytest.mark.slow
def test_large_task_outputs_are_staged_and_leave_no_orphans(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 1000))
    ss.Channel(tmp_path / "b", max_inline_bytes=0, minimum_required_space=0).close()
    run(stream(spark, path, maxEventsPerTrigger=500), tmp_path / "ck", tmp_path / "b")
    assert bodies(tmp_path / "b") == numbered(0, 1000)
    with ss.Channel(tmp_path / "b") as channel:
        assert channel.stats().segments == 2
        with channel.take_transaction("test") as tx:
            tx.take_batch(10_000)
        channel.checkpoint()
        channel.checkpoint()
        assert channel.stats().segments == 0


@pytest.mark.slow
def test_source_takes_are_committed_so_that_the_channel_drains(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    path = put("a", *numbered(0, 100))
    run(stream(spark, path, maxEventsPerTrigger=40), tmp_path / "ck", tmp_path / "b")
    with ss.Channel(path) as channel:
        (group,) = channel.stats().groups.values()
        assert group.position == 100
        assert channel.stats().channel_size == 0


# ── what a review found ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_batch_that_sparks_checkpoint_lost_is_planned_again_as_it_was(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    """Spark does not sync its checkpoint: after a power cut its newest files may be gone, the sink's batch not."""
    source = put("a", *numbered(0, 30))
    events = stream(spark, source, maxEventsPerTrigger=10, asyncProgressTrackingEnabled=True)
    target = tmp_path / "b"
    run(events, tmp_path / "checkpoint", target)
    for directory in ("offsets", "commits"):
        for name in ("2", ".2.crc"):
            (tmp_path / "checkpoint" / directory / name).unlink(missing_ok=True)
    put("a", *numbered(30, 30))
    run(stream(spark, source, maxEventsPerTrigger=25), tmp_path / "checkpoint", target)
    assert bodies(target) == numbered(0, 60)


@pytest.mark.slow
def test_events_that_were_taken_ahead_do_not_come_back_through_spark(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    source = put("a", *numbered(0, 30))
    with (
        ss.Channel(source) as channel,
        channel.take_transaction("g") as first,
        channel.take_transaction("g") as second,
    ):
        first.take_many(10)
        second.take_many(10)
        second.commit()
        first.rollback()
    left = numbered(0, 10) + numbered(20, 10)
    batch = spark.read.format("spillable").option("group", "g").load(str(source))
    assert [r.body for r in batch.collect()] == left
    run(stream(spark, source, group="g", minPartitions=3), tmp_path / "checkpoint", tmp_path / "b")
    assert bodies(tmp_path / "b") == left


def test_what_a_batch_write_staged_survives_a_checkpoint_before_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    from spillable_stream.spark.datasource import SpillableDataSource

    schema = spark.range(0).schema
    source = SpillableDataSource({"path": str(tmp_path / "c"), "maxInlineBytes": "0", "minimumRequiredSpace": "0"})
    writer = source.writer(schema, overwrite=False)
    message = writer.write(iter([pa.record_batch({"id": pa.array(range(1000), pa.int64())})]))
    with ss.Channel(tmp_path / "c") as other:
        other.checkpoint()
    writer.commit([message])
    assert spark.read.format("spillable").load(str(tmp_path / "c")).count() == 1000


def test_rows_stay_in_the_order_of_their_tasks_whatever_their_sizes(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 400, 1, 4).selectExpr("id", "repeat('x', IF(id >= 100 AND id < 200, 9000, 1)) AS text")
    rows.write.format("spillable").mode("append").option("minimumRequiredSpace", 0).save(str(tmp_path / "c"))
    with ss.Channel(tmp_path / "c") as channel, channel.take_transaction() as tx:
        assert channel.stats().segments == 3, "the two small outputs at the end share one"
        assert [row["id"] for row in tx.take_many(1000)] == list(range(400))


def test_create_if_missing_creates_a_channel_of_the_schema_that_is_given(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.readStream.schema("a INT, b STRING").format("spillable").option("createIfMissing", "true")
    run(reader.load(str(tmp_path / "a")), tmp_path / "checkpoint", tmp_path / "b")
    with ss.Channel(tmp_path / "a", create=False) as channel:
        assert channel.schema.names == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets must be earliest, an ID or an offset for a batch read"),
        ({"maxEventsPerTrigger": "5"}, "maxEventsPerTrigger is not an option of a Spark batch read"),
        ({"group": "grup"}, "has no group 'grup', nor any other: the first take"),
    ],
)
def test_what_a_batch_read_cannot_do_is_refused(
    spark: SparkSession, put: Put, options: dict[str, str], message: str
) -> None:
    source = put("a", b"x")
    with pytest.raises(PySparkException, match=message):
        spark.read.format("spillable").options(**options).load(str(source)).collect()


def test_a_column_that_differs_in_case_only_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write = spark.range(3).selectExpr("id AS amount").write.format("spillable").option("minimumRequiredSpace", 0)
    write.mode("append").save(str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="'Amount' differs from 'amount' in case only"):
        spark.range(3).selectExpr("id AS Amount").write.format("spillable").mode("append").save(str(tmp_path / "c"))


def test_a_read_may_leave_out_columns_that_are_not_nullable(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.int32(), False)])
    with (
        ss.Channel(tmp_path / "c", schema=schema, minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        tx.put({"a": 1, "b": 2})
    read = spark.read.schema("b INT").format("spillable").load(str(tmp_path / "c"))
    assert [tuple(r) for r in read.collect()] == [(2,)]


@pytest.mark.parametrize("path", ["dbfs:/x/y", "abfss:x"])
def test_a_path_that_is_not_local_is_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(PySparkException, match="a channel needs the path of a local directory"):
        spark.read.format("spillable").load(path)


def test_a_file_uri_is_decoded(spark: SparkSession, put: Put) -> None:
    path = put("a b", b"x")
    assert spark.read.format("spillable").load("file:" + str(path).replace(" ", "%20")).count() == 1
