"""A listener on a real Spark: what it commits, moves and reports while queries run, fail, idle and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.integrity.verify import verify
from spillable_stream.spark.progress.query_listener import QueryListener, QueryReport
from tests.spark.test_stream import bodies, run, stream
from tests.support.events import numbered, put
from tests.support.spark.events import group_state
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(4, 2, "a source that says to its query's progress what a listener must know")]


def until(ready: Callable[[], bool], query: StreamingQuery | None = None, timeout_seconds: float = 150) -> None:
    """Wait for what Spark tells the listener a moment later, while the query runs that it tells of."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        if query and (failed := query.exception()):
            raise failed
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {timeout_seconds} s; the query: {query and (query.status, query.lastProgress)}")
        time.sleep(0.02)


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[QueryListener]:
    found = spillable_stream.spark.listener(spark)
    yield found
    found.close()


def reports_of(listener: QueryListener, path: Path) -> list[QueryReport]:
    return [r for r in listener.reports() if r.path == str(path)]


def is_over(listener: QueryListener, path: Path) -> bool:
    found = reports_of(listener, path)
    return bool(found) and not any(r.active for r in found)


@pytest.mark.slow
def test_the_last_batch_is_committed_and_not_repeated_by_a_new_checkpoint(
    spark: SparkSession, listener: QueryListener, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
        run(stream(spark, path, group="default", maxEventsPerTrigger=10), tmp_path / "ck1", tmp_path / "b")
        until(lambda: is_over(listener, path))
        assert channel.stats().groups["default"].lag == 0
        assert channel.stats().channel_size == 0
        put(channel, *numbered(20, 10))
        run(stream(spark, path, group="default"), tmp_path / "ck2", tmp_path / "c")
        until(lambda: channel.stats().channel_size == 0)
    assert bodies(tmp_path / "b") == numbered(0, 20)
    assert bodies(tmp_path / "c") == numbered(20, 10)
    assert verify(path).healthy


@pytest.mark.slow
def test_a_query_continues_from_its_checkpoint_after_the_listener_committed_its_last_batch(
    spark: SparkSession, listener: QueryListener, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    with ss.Channel(path, minimum_required_space=0) as channel:
        for first in (0, 10):
            put(channel, *numbered(first, 10))
            run(stream(spark, path, group="default"), tmp_path / "ck", tmp_path / "b")
            until(lambda: channel.stats().channel_size == 0)
    assert bodies(tmp_path / "b") == numbered(0, 20)


@pytest.mark.slow
def test_the_end_of_a_query_moves_memory_to_disk_though_spark_kills_its_worker(
    spark: SparkSession, listener: QueryListener, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    with ss.Channel(path, minimum_required_space=0, memory_capacity=100) as channel:
        put(channel, *numbered(0, 20))
        channel.consumer("slow")
        query = stream(spark, path, group="default").writeStream.format("noop").start()
        until(lambda: "default" in channel.stats().groups and group_state(channel) == (20, 0))
    assert (path / "memory").exists()  # the query reads it
    query.stop()
    until(lambda: not (path / "memory").exists())
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [-20]


@pytest.mark.slow
def test_nothing_of_a_batch_that_failed_is_committed(
    spark: SparkSession, listener: QueryListener, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    fails = [True]

    def write(df: DataFrame, batch_id: int) -> None:
        df.count()
        if batch_id == 1 and fails:
            raise RuntimeError("the sink fails")

    def go() -> Any:
        df = stream(spark, path, group="default", maxEventsPerTrigger=10)
        return df.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "ck")).start()

    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
        query = go()
        with pytest.raises(PySparkException, match="the sink fails"):
            query.awaitTermination()
        until(lambda: is_over(listener, path))
        assert group_state(channel) == (10, 10)
        assert [(r.last_batch, r.last_id, r.lag_events) for r in reports_of(listener, path)] == [(0, 10, 10)]
        fails.clear()
        query = go()
        put(channel, *numbered(20, 5))  # Spark does not report a batch that it tries again in full, but the next one
        until(lambda: group_state(channel) == (25, 0))
        query.stop()


@pytest.mark.slow
def test_a_query_that_is_idle_since_it_began_is_reported(
    spark: SparkSession, listener: QueryListener, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(interval, 500)
    try:
        with ss.Channel(path, minimum_required_space=0) as channel:
            put(channel, *numbered(0, 10))
            run(stream(spark, path, group="default"), tmp_path / "ck", tmp_path / "b")
            until(lambda: is_over(listener, path))
            with listener._mutex:
                listener._found.clear()  # as after a restart of the driver
            query = (
                stream(spark, path, group="default")
                .writeStream.format("spillable")
                .option("checkpointLocation", str(tmp_path / "ck"))
                .start(str(tmp_path / "b"))
            )
            until(lambda: bool(reports_of(listener, path)), query)
            (report,) = reports_of(listener, path)
            assert (report.run_id, report.group, report.active) == (str(query.runId), "default", True)
            assert (report.last_batch, report.last_id, report.lag_events) == (0, 10, 0)
            query.stop()
    finally:
        spark.conf.unset(interval)


@pytest.mark.slow
@pytest.mark.timeout(600)  # three sources, and what else the machine has to do
def test_reports_and_series_say_how_far_each_query_is(spark: SparkSession, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    listener = spillable_stream.spark.listener(spark, prometheus=registry)
    with ss.Channel(tmp_path / "a", minimum_required_space=0) as a, ss.Channel(tmp_path / "b") as b:
        put(a, *numbered(0, 30))
        put(b, *numbered(0, 3))
        one = stream(spark, a.path, maxEventsPerTrigger=10, group="one")
        other = stream(spark, b.path, group="other")
        rate = spark.readStream.format("rate").option("numPartitions", 1).load()
        query = (
            one.select("body")
            .union(other.select("body"))
            .union(rate.selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS body"))
            .writeStream.format("noop")
            .queryName("three_sources")
            .start()
        )
        until(lambda: {r.channel: r.last_id for r in listener.reports()} == {a.uuid: 30, b.uuid: 3}, query, 400)
        until(lambda: a.stats().channel_size == b.stats().channel_size == 0, query)
        found = {Path(r.path or "").name: r for r in listener.reports()}
        assert found.keys() == {"a", "b"}
        report = found["a"]
        assert (report.query, report.query_id, report.group) == ("three_sources", str(query.id), "one")
        assert (report.channel, report.last_id, report.oldest_age_seconds) == (a.uuid, 30, None)
        assert report.active and report.last_batch >= 2 and found["b"].last_id == 3
        text = generate_latest(registry).decode()
        labels = f'{{channel="{a.path}",group="one",query="three_sources"}}'
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert float(lines[f"spillable_query_lag_events{labels}"]) == 0
        assert float(lines[f"spillable_query_oldest_age_seconds{labels}"]) == 0
        assert float(lines[f"spillable_query_active{labels}"]) == 1
        assert float(lines[f"spillable_query_events_total{labels}"]) == 30
        assert float(lines[f"spillable_query_batches_total{labels}"]) >= 3
        assert f"spillable_query_commits_total{labels}" in lines  # how many depends on who is first
        query.stop()
        until(lambda: not any(r.active for r in listener.reports()))
        text = generate_latest(registry).decode()
        assert f"spillable_query_active{labels} 0.0" in text
        assert f"spillable_query_lag_events{labels}" not in text  # nobody looks any more
        with pytest.raises(ss.OptionError, match="the series of another listener"):
            spillable_stream.spark.listener(spark, prometheus=registry)
    listener.close()


def test_a_closed_listener_commits_nothing_more(spark: SparkSession, tmp_path: Path) -> None:
    listener = spillable_stream.spark.listener(spark)
    listener.close()
    listener.close()
    path = tmp_path / "a"
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
        only_sparks_word = stream(
            spark, path, group="default", maxEventsPerTrigger=10, asyncProgressTrackingEnabled=True
        )
        run(only_sparks_word, tmp_path / "ck", tmp_path / "b")
        assert group_state(channel) == (10, 10)
    assert listener.reports() == []
    assert bodies(tmp_path / "b") == numbered(0, 20)
