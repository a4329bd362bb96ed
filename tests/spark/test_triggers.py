"""Every trigger: what a query reads, and when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss
from tests.support.spark.versions import needs

pytestmark = pytest.mark.spark
Put = Callable[..., Path]
LIMITS = needs(4, 2, "a word to the source on its trigger and its limits")
Numbered = Callable[[int, int], list[bytes]]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start a query from the channel "a" to the channel "b", always with the same checkpoint."""
    queries = []

    def start(trigger: dict[str, Any], **options: Any) -> Any:
        reader = spark.readStream.format("spillable").options(**{k: str(v) for k, v in options.items()})
        writer = reader.load(str(tmp_path / "a")).writeStream.format("spillable").option("minimumRequiredSpace", 0)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger)
        queries.append(writer.start(str(tmp_path / "b")))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def rows(query: Any) -> list[int]:
    return [report.numInputRows for report in query.recentProgress if report.numInputRows]


def bodies(spark: SparkSession, path: Path) -> list[bytes]:
    return [bytes(row.body) for row in spark.read.format("spillable").load(str(path)).collect()]


def test_available_now_ends_though_a_producer_continues(
    put: Put, start: Callable[..., Any], numbered: Numbered
) -> None:
    path, stop = put("a", *numbered(0, 30)), threading.Event()

    def produce() -> None:
        with ss.Channel(path) as channel:
            while not stop.wait(0.02):
                with channel.put_transaction() as tx:
                    tx.put(ss.Event(b"more"))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        query = start({"availableNow": True}, maxEventsPerTrigger=2_000)
        assert query.awaitTermination(120)
        assert producer.is_alive()
    finally:
        stop.set()
        producer.join()
    assert sum(rows(query)) >= 30


@pytest.mark.slow
@LIMITS
def test_available_now_continues_where_the_last_one_ended(
    spark: SparkSession, put: Put, start: Callable[..., Any], numbered: Numbered, tmp_path: Path
) -> None:
    for run in range(3):
        put("a", *numbered(25 * run, 25))
        query = start({"availableNow": True}, maxEventsPerTrigger=10)
        query.awaitTermination()
        assert rows(query) == [10, 10, 5]
    assert bodies(spark, tmp_path / "b") == numbered(0, 75)


@pytest.mark.slow
def test_available_now_ends_when_the_events_were_taken_by_others(
    put: Put, start: Callable[..., Any], numbered: Numbered
) -> None:
    with ss.Channel(put("a", *numbered(0, 10))) as channel, channel.take_transaction() as tx:
        tx.take_many(10)
    query = start({"availableNow": True}, maxEventsPerTrigger=3)
    assert query.awaitTermination(120)
    assert rows(query) == []


@LIMITS
def test_once_is_one_batch_of_everything(put: Put, start: Callable[..., Any], numbered: Numbered) -> None:
    put("a", *numbered(0, 30))
    query = start({"once": True}, maxEventsPerTrigger=10)
    query.awaitTermination()
    assert rows(query) == [30]


@pytest.mark.slow
def test_query_that_is_paused_and_resumed_reads_every_event_once(
    spark: SparkSession, put: Put, start: Callable[..., Any], numbered: Numbered, tmp_path: Path
) -> None:
    for run in range(3):
        put("a", *numbered(20 * run, 10))
        query = start({"processingTime": "0 seconds"}, maxEventsPerTrigger=7)
        query.processAllAvailable()
        put("a", *numbered(20 * run + 10, 10))
        query.processAllAvailable()
        query.stop()
    assert bodies(spark, tmp_path / "b") == numbered(0, 60)


@LIMITS
def test_min_events_per_trigger_makes_fewer_batches(
    put: Put, start: Callable[..., Any], numbered: Numbered, tmp_path: Path
) -> None:
    put("a", *numbered(0, 4))
    query = start({"processingTime": "0 seconds"}, minEventsPerTrigger=5, maxTriggerDelay="10m")
    put("a", *numbered(4, 4))
    put("a", *numbered(8, 1))
    query.processAllAvailable()
    put("a", *numbered(9, 10))
    query.processAllAvailable()
    assert sum(rows(query)) == 19 and min(rows(query)) >= 5
