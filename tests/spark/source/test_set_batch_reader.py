"""Sets of channels on a real Spark: batch reads of them, and a stream that is stopped and started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spillable_stream as ss
from tests.support.events import put, take
from tests.support.spark.versions import drain

pytestmark = pytest.mark.spark


@pytest.fixture
def fill(tmp_path: Path) -> Callable[[str, int], None]:
    """Put so many events into the channel with a name, which are numbered on."""

    def fill(name: str, count: int) -> None:
        with ss.Channel(tmp_path / name, minimum_required_space=0) as channel:
            first = channel.stats().last_id
            put(channel, *(f"{name[-1]}{i}".encode() for i in range(first, first + count)))

    return fill


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("spillable").options(**{k: str(v) for k, v in options.items()}).load(path)


def bodies(df: DataFrame) -> list[str]:
    return [bytes(row.body).decode() for row in df.collect()]


def test_a_pattern_reads_all_that_fits_by_path_and_in_order(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None]
) -> None:
    for name, count in (("orders-b", 2), ("orders-a", 3), ("returns-c", 1)):
        fill(name, count)
    assert bodies(load(spark, f"{tmp_path}/orders-*")) == ["a0", "a1", "a2", "b0", "b1"]
    assert bodies(load(spark, f"{tmp_path}/returns-c, {tmp_path}/orders-b")) == ["b0", "b1", "c0"]
    assert bodies(load(spark, f"file://{tmp_path}/[or]*-[bc]")) == ["b0", "b1", "c0"]


def test_a_metadata_column_names_the_channel(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None]
) -> None:
    for name in ("orders-a", "orders-b"):
        fill(name, 2)
    df = load(spark, f"{tmp_path}/orders-*", metadata=True)
    assert df.columns == ["headers", "body", "write_order_id", "transaction_id", "put_time", "channel"]
    assert [(r.channel, r.write_order_id) for r in df.select("channel", "write_order_id").collect()] == [
        (f"{tmp_path}/orders-{letter}", i) for letter in "ab" for i in (1, 2)
    ]


@pytest.mark.parametrize("name", ["a,b", "orders-*"])
def test_a_path_that_is_a_channel_as_it_is_written_is_that_channel(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None], name: str
) -> None:
    fill(name, 1)
    fill("orders-a", 1)
    assert bodies(load(spark, f"{tmp_path}/{name}")) == [f"{name[-1]}0"]
    assert "channel" not in load(spark, f"{tmp_path}/{name}", metadata=True).columns


@pytest.mark.parametrize(("option", "allowed"), [("startingOffsets", "earliest"), ("endingOffsets", "latest")])
def test_ids_of_one_channel_are_refused(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None], option: str, allowed: str
) -> None:
    fill("orders-a", 1)
    with pytest.raises(PySparkException, match=f"{option} must be {allowed} for a batch read of a set of channels"):
        load(spark, f"{tmp_path}/orders-*", **{option: 1}).collect()


def test_times_that_are_the_wrong_way_round_are_refused(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None]
) -> None:
    fill("orders-a", 1)
    with pytest.raises(PySparkException, match=r"startingTimestamp, \S+, is later than endingTimestamp, \S+"):
        load(spark, f"{tmp_path}/orders-*", startingTimestamp=2, endingTimestamp=1).collect()
    assert load(spark, f"{tmp_path}/orders-*", startingTimestamp=1, endingTimestamp=1).count() == 0


def test_a_pattern_that_fits_nothing_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"no channel fits \S+/orders-\*"):
        load(spark, f"{tmp_path}/orders-*")


@pytest.mark.slow
def test_a_stream_of_a_set_continues_from_its_checkpoint_and_takes_what_it_read(
    spark: SparkSession, tmp_path: Path, fill: Callable[[str, int], None]
) -> None:
    def run() -> None:
        stream = spark.readStream.format("spillable").option("maxEventsPerTrigger", 4).load(f"{tmp_path}/orders-*")
        writer = stream.writeStream.format("spillable").option("minimumRequiredSpace", 0)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        drain(lambda: writer.start(str(tmp_path / "all")))

    for name, count in (("orders-a", 7), ("orders-b", 2)):
        fill(name, count)
    run()
    for name, count in (("orders-a", 1), ("orders-c", 3)):
        fill(name, count)
    run()
    with ss.Channel(tmp_path / "all") as channel:
        found = [body.decode() for body in take(channel, 100)]
    expected = {"a": 8, "b": 2, "c": 3}
    assert {letter: [b for b in found if b[0] == letter] for letter in expected} == {
        letter: [f"{letter}{i}" for i in range(count)] for letter, count in expected.items()
    }
    assert len(found) == 13
