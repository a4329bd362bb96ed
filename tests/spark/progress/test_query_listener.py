"""The listener: with events as Spark sends them, and on a real Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryTerminatedEvent

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.engine.commit_on_behalf import finish_takes, owner_since
from spillable_stream.errors import MemoryLossWarning
from spillable_stream.integrity.verify import verify
from spillable_stream.spark.progress.query_listener import QueryListener, QueryReport
from tests.spark.test_stream import bodies, run, stream
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, put
from tests.support.spark import reader_process
from tests.support.spark.events import end_offset, group_state, tell
from tests.support.spark.reader_process import plan, progress, reader
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(4, 2, "a source that says to its query's progress what a listener must know")]
Open = Callable[..., ss.Channel]
RUN = "00000000-0000-0000-0000-000000000001"


def until(ready: Callable[[], bool], query: StreamingQuery | None = None, timeout_seconds: float = 150) -> None:
    """Wait for what Spark tells the listener a moment later, while the query runs that it tells of."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        if query and (failed := query.exception()):
            raise failed
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {timeout_seconds} s; the query: {query and (query.status, query.lastProgress)}")
        time.sleep(0.02)


def end(listener: QueryListener, run: str = RUN) -> None:
    event = {"id": RUN, "runId": run, "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(event))


# ── who commits first ───────────────────────────────────────────────────────────────────────


def test_the_listener_commits_before_the_source(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    tell(alone, first)
    assert group_state(channel) == (10, 0)
    second = plan(source, end_offset(first), 1)
    source.commit(end_offset(first))  # as Spark does, a batch late
    assert group_state(channel) == (10, 10)
    source.commit(end_offset(second))
    assert group_state(channel) == (20, 0)
    source.stop()


def test_so_it_does_in_a_store_where_the_source_leaves_its_commit_to_the_next_take(
    path: Path, alone: QueryListener
) -> None:
    place = f"object+file://{path}"
    with ss.Channel(place, commit_interval=0) as channel:
        put(channel, *numbered(0, 20))
        source = reader(place)
        first = plan(source, source.initialOffset(), 0)
        tell(alone, first)
        assert group_state(channel) == (10, 0)
        second = plan(source, end_offset(first), 1)
        source.commit(end_offset(first))
        assert group_state(channel) == (10, 10)
        tell(alone, second)
        assert group_state(channel) == (20, 0)
        source.commit(end_offset(second))
        source.stop()
        end(alone)
        assert group_state(channel) == (20, 0) and channel.stats().channel_size == 0


def test_the_source_commits_before_the_listener(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    source.commit(end_offset(first))
    plan(source, end_offset(first), 1)
    channel.stats()
    written = channel.engine().positions.disk.offset
    tell(alone, first)
    assert group_state(channel) == (10, 10)  # the take of the batch under way is left alone
    assert channel.engine().positions.disk.offset == written
    assert finish_takes(channel.engine(), "default", 10) == 0
    source.stop()


def test_source_and_listener_commit_the_same_takes_at_once_from_two_processes(open_channel: Open, path: Path) -> None:
    batches = 60
    channel = open_channel(memory_capacity=200)  # the takes of the first batches are in memory, the later ones on disk
    put(channel, *numbered(0, 150))
    put(channel, *numbered(150, 10 * batches - 150))
    listener = QueryListener(None, None, {})
    command = [sys.executable, reader_process.__file__, path, str(batches)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin and worker.stdout
        for _ in range(batches):
            event = json.loads(worker.stdout.readline())
            worker.stdin.write("commit\n")
            worker.stdin.flush()
            tell(listener, event)
            assert group_state(channel)[0] >= end_offset(event)["writeOrderId"]
        assert worker.wait(60) == 0
    listener._close_channels()
    assert group_state(channel) == (10 * batches, 0)
    assert channel.stats().channel_size == 0
    channel.close()
    assert verify(path).healthy


def test_memory_that_is_lost_after_the_listener_committed_loses_nothing(
    open_channel: Open, path: Path, alone: QueryListener
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    tell(alone, plan(source, source.initialOffset(), 0))
    assert group_state(channel) == (10, 0)
    source.stop()
    alone._close_channels()
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning, match="no event is known to be lost"):
        assert open_channel().stats().lost == ()


# ── late events ─────────────────────────────────────────────────────────────────────────────


def test_a_late_event_does_not_commit_takes_of_the_next_owner(
    open_channel: Open, path: Path, alone: QueryListener
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    late = plan(source, source.initialOffset(), 0)
    source.stop()
    another = reader(str(path))  # with a new checkpoint: it reads the last batch again
    repeated = plan(another, another.initialOffset(), 0)
    assert end_offset(repeated) == end_offset(late)
    tell(alone, late)
    assert group_state(channel) == (0, 10)
    assert alone.reports()[0].lag_events == 0  # of the query of which the event tells
    tell(alone, repeated)
    assert group_state(channel) == (10, 0)
    another.stop()


def test_a_group_that_was_dropped_is_only_reported(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    source.stop()
    channel.drop_group("default")
    tell(alone, event)
    assert alone.reports()[0].lag_events == 0
    assert "default" not in channel.stats().groups


@pytest.mark.parametrize("all_groups_took_it", [False, True])
def test_checkpoint_that_a_power_cut_left_without_a_committed_batch_is_refused(
    open_channel: Open, path: Path, alone: QueryListener, all_groups_took_it: bool
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    if not all_groups_took_it:
        channel.consumer("another")
    source = reader(str(path), max_events_per_trigger=None)
    start = source.initialOffset()
    tell(alone, plan(source, start, 0))
    source.stop()
    put(channel, *numbered(10, 10))
    again = reader(str(path), max_events_per_trigger=None)
    # The sink knows batch 0, and would drop whatever were in it now.
    with pytest.raises(
        ss.CheckpointMismatchError, match="up to the event 0, but the group 'default' has taken 1 to 10"
    ):
        again.latestOffset(start, again.getDefaultReadLimit())
    again.stop()


# ── channels that are not there, and what else an event may hold ────────────────────────────


def test_a_channel_on_another_machine_is_reported_from_what_spark_says(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 30))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    second = plan(source, end_offset(first), 1)
    for event in (first, second):
        event["progress"]["sources"][0]["latestOffset"]["path"] = "/nowhere/channel"
        tell(alone, event)
    report = alone.reports()[0]
    assert (report.path, report.group, report.last_id, report.lag_events) == ("/nowhere/channel", "default", 20, 10)
    assert report.oldest_age_seconds is not None
    assert group_state(channel) == (10, 10), "the source has done it"
    assert [r.levelname for r in caplog.records if r.name.startswith("spillable_stream.")] == ["WARNING"]
    source.stop()


def test_a_removed_channel_is_reported_from_what_spark_says(
    path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    second = plan(source, end_offset(first), 1)
    source.stop()
    tell(alone, first)
    shutil.rmtree(path)
    tell(alone, second)
    end(alone)
    report = alone.reports()[0]
    assert (report.last_id, report.lag_events, report.active) == (20, 0, False)
    assert [r.levelname for r in caplog.records if r.name.startswith("spillable_stream.")] == ["WARNING"]


def test_another_channel_at_the_path_is_left_alone(path: Path, alone: QueryListener) -> None:
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    source.stop()
    shutil.rmtree(path)
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        channel.consumer("default").prepare([(1, 10)])
        tell(alone, event)
        assert group_state(channel) == (0, 10)


def test_a_listener_that_is_told_the_group_commits_before_spark_4_2_too(
    open_channel: Open, path: Path, tmp_path: Path
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    done = plan(source, source.initialOffset(), 0)["progress"]["sources"][0]
    listener = QueryListener(None, None, {path: "default", tmp_path / "missing": "default"})
    tell(listener, progress([(done["startOffset"], done["endOffset"], done["endOffset"])]))
    assert group_state(channel) == (10, 0)
    assert [(r.path, r.group, r.lag_events) for r in listener.reports()] == [(str(path), "default", 10)]
    source.stop()
    listener._close_channels()


def test_a_listener_that_is_told_the_group_leaves_the_takes_of_a_later_query_alone(
    open_channel: Open, path: Path
) -> None:
    """Before Spark 4.2 nobody says whose batch is done; who has the group since the batch ended has another."""
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    late = plan(source, source.initialOffset(), 0)
    done = late["progress"]["sources"][0]
    done["latestOffset"] = done["endOffset"]
    source.stop()
    later = reader(str(path))  # with a new checkpoint: it reads the same events again
    repeated = plan(later, later.initialOffset(), 0)
    ended = owner_since(channel.engine().owners.owner_of("default"))
    assert ended is not None
    late["progress"]["timestamp"] = (ended - timedelta(seconds=1)).isoformat()
    listener = QueryListener(None, None, {path: "default"})
    tell(listener, late)
    assert group_state(channel) == (0, 10)
    assert [(r.last_id, r.lag_events) for r in listener.reports()] == [(10, 10)]
    repeated["progress"]["sources"][0]["latestOffset"] = done["endOffset"]
    tell(listener, repeated)
    assert group_state(channel) == (10, 0)
    later.stop()
    listener._close_channels()


def test_a_report_has_kafkas_words(open_channel: Open, path: Path, alone: QueryListener) -> None:
    put(open_channel(), *numbered(0, 25))
    source = reader(str(path))
    tell(alone, plan(source, source.initialOffset(), 0))
    (report,) = alone.reports()
    behind = report.min_offsets_behind_latest, report.max_offsets_behind_latest, report.avg_offsets_behind_latest
    assert behind == (15, 15, 15.0)
    unknown = replace(report, lag_events=None)
    assert unknown.min_offsets_behind_latest is unknown.avg_offsets_behind_latest is None
    source.stop()


def test_an_idle_event_commits_what_could_not_be_before(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(lock_timeout=0.01)
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    with channel.engine().committing():
        tell(alone, event)
    assert "stay for the source to commit" in caplog.text
    assert group_state(channel) == (0, 10)
    alone.onQueryIdle(QueryIdleEvent.fromJson({"id": RUN, "runId": RUN, "timestamp": ""}))
    assert group_state(channel) == (10, 0)
    assert alone.reports()[0].events_per_second == 0.0
    source.stop()


def test_the_end_of_the_last_query_of_a_channel_moves_memory_to_disk(path: Path, alone: QueryListener) -> None:
    with ss.Channel(path, minimum_required_space=0, memory_capacity=100) as channel:
        put(channel, *numbered(0, 20))
        source = reader(str(path))
        event = plan(source, source.initialOffset(), 0)
        tell(alone, event)
        source.stop()
    assert (path / "memory").exists()  # the listener has it open
    end(alone, "00000000-0000-0000-0000-000000000002")
    assert (path / "memory").exists()
    end(alone)
    assert not (path / "memory").exists()
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [-10]


# ── on Spark ────────────────────────────────────────────────────────────────────────────────


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
