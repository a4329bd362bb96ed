"""Several queries on one channel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss

pytestmark = pytest.mark.spark
Put = Callable[..., Path]
Numbered = Callable[[int, int], list[bytes]]


def start(spark: SparkSession, source: Path, target: Path, checkpoint: Path, **options: Any) -> Any:
    reader = spark.readStream.format("spillable").options(**{k: str(v) for k, v in options.items()})
    writer = reader.load(str(source)).writeStream.format("spillable").option("minimumRequiredSpace", 0)
    return writer.option("checkpointLocation", str(checkpoint)).start(str(target))


def bodies(spark: SparkSession, path: Path) -> list[bytes]:
    return [bytes(row.body) for row in spark.read.format("spillable").load(str(path)).collect()]


@pytest.mark.slow
def test_two_queries_with_groups_of_their_own_each_get_every_event(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    source = put("a", *numbered(0, 20))
    with ss.Channel(source) as channel:  # what every group has taken leaves, so both must be there first
        for group in "xy":
            channel.consumer(group)
    queries = [
        start(spark, source, tmp_path / f"to-{g}", tmp_path / f"ck-{g}", group=g, maxEventsPerTrigger=6) for g in "xy"
    ]
    try:
        put("a", *numbered(20, 20))
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert bodies(spark, tmp_path / "to-x") == bodies(spark, tmp_path / "to-y") == numbered(0, 40)


@pytest.mark.slow
def test_channel_keeps_what_the_slower_query_has_yet_to_read(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    source = put("a", *numbered(0, 20))
    with ss.Channel(source) as channel:
        channel.consumer("slow")
    for run in range(2):  # Spark's word that the last batch is done comes with the next
        start_and_end = start(spark, source, tmp_path / "fast", tmp_path / "ck", group="fast")
        start_and_end.processAllAvailable()
        start_and_end.stop()
        put("a", *numbered(20 + run, 1))
    assert len(bodies(spark, source)) == 22
    with ss.Channel(source) as channel, channel.take_transaction("slow") as tx:
        assert [e.body for e in tx.take_many(100)] == numbered(0, 22)


@pytest.mark.slow
def test_two_sinks_and_a_producer_share_a_channel(
    spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path
) -> None:
    target = put("c", b"p-000")
    sources = [put("a", *(b"a-" + b for b in numbered(0, 30))), put("b", *(b"b-" + b for b in numbered(0, 30)))]
    stop, produced = threading.Event(), [b"p-000"]

    def produce() -> None:
        with ss.Channel(target) as channel:
            while not stop.wait(0.01):
                body = b"p-%03d" % len(produced)
                with channel.put_transaction() as tx:
                    tx.put(ss.Event(body))
                produced.append(body)

    producer = threading.Thread(target=produce)
    producer.start()
    queries = [start(spark, s, target, tmp_path / f"ck-{s.name}", maxEventsPerTrigger=8) for s in sources]
    try:
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
        stop.set()
        producer.join()
    found = bodies(spark, target)
    assert [b for b in found if b.startswith(b"p")] == produced
    for name in (b"a-", b"b-"):
        assert [b for b in found if b.startswith(name)] == [name + b for b in numbered(0, 30)]


@pytest.mark.slow
def test_one_query_may_read_two_channels(spark: SparkSession, put: Put, numbered: Numbered, tmp_path: Path) -> None:
    both = [spark.readStream.format("spillable").load(str(put(name, *numbered(0, 20)))) for name in "ab"]
    writer = both[0].union(both[1]).writeStream.format("spillable").option("minimumRequiredSpace", 0)
    query = writer.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "c"))
    try:
        query.processAllAvailable()
        put("b", *numbered(20, 5))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(bodies(spark, tmp_path / "c")) == sorted([*numbered(0, 20), *numbered(0, 25)])
