"""A query that reads and writes the same channel is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spillable_stream as ss

pytestmark = pytest.mark.spark
Put = Callable[..., Path]


def stored(path: Path) -> int:
    with ss.Channel(path, create=False) as channel:
        return channel.engine().follow().last_id


def test_stream_into_its_own_channel_is_refused_before_anything_is_written(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    path = put("a", b"1", b"2")
    stream = spark.readStream.format("spillable").load(str(path))
    writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(path))
    with pytest.raises(PySparkException, match=r"reads .*/a \(as the group 'default'\) and writes to it"):
        query.awaitTermination()
    assert stored(path) == 2


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
