"""Positions belong to queries, and taken events can be read again: on a real Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.spark.test_stream import bodies, run, stream
from tests.support.events import numbered, put

pytestmark = pytest.mark.spark


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel that keeps what was taken; it has 20 events."""
    with ss.Channel(tmp_path / "a", minimum_required_space=0, retention_ms=3_600_000) as channel:
        put(channel, *numbered(0, 20))
        yield channel


@pytest.fixture
def to(spark: SparkSession, channel: ss.Channel, tmp_path: Path) -> Callable[..., list[bytes]]:
    """Run a query of the channel into another one until there is nothing more, and return what is there then."""

    def to(target: str, checkpoint: str = "", frame: DataFrame | None = None, **options: Any) -> list[bytes]:
        frame = stream(spark, channel.path, **options) if frame is None else frame
        run(frame, tmp_path / f"checkpoint-{checkpoint or target}", tmp_path / target)
        return bodies(tmp_path / target) if (tmp_path / target).exists() else []

    return to


To = Callable[..., list[bytes]]


def expire(channel: ss.Channel, through: int) -> None:
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


def automatic(channel: ss.Channel) -> list[str]:
    return [name for name, group in channel.engine().follow().groups.items() if group.is_automatic]


def drop(channel: ss.Channel, group: str) -> None:
    """Drop a group when its last query's worker has ended."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return channel.drop_group(group)
        except ss.GroupOwnedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.slow
def test_each_new_checkpoint_gets_all_that_is_kept_and_a_restart_continues(channel: ss.Channel, to: To) -> None:
    assert to("b") == numbered(0, 20)
    assert len(automatic(channel)) == 1
    put(channel, *numbered(20, 5))
    assert to("b") == numbered(0, 25)
    assert len(automatic(channel)) == 1
    expire(channel, 10)
    assert to("c") == numbered(10, 15)
    assert to("d", startingOffsets="latest") == []
    put(channel, *numbered(25, 5))
    assert to("d", startingOffsets="latest")[-5:] == numbered(25, 5)


@pytest.mark.slow
def test_two_queries_of_one_frame_each_get_everything(spark: SparkSession, channel: ss.Channel, tmp_path: Path) -> None:
    frame = stream(spark, channel.path)
    queries = [
        frame.writeStream.format("spillable")
        .options(checkpointLocation=str(tmp_path / f"checkpoint-{name}"), minimumRequiredSpace="0")
        .start(str(tmp_path / name))
        for name in "xy"
    ]
    try:
        put(channel, *numbered(20, 5))
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert bodies(tmp_path / "x") == bodies(tmp_path / "y") == numbered(0, 25)


@pytest.mark.slow
def test_a_query_with_a_bug_is_fixed_and_its_last_events_are_replayed_into_a_new_sink(
    spark: SparkSession, channel: ss.Channel, to: To
) -> None:
    with channel.engine().snapshot() as state:
        first_put_us = state.blocks.time_of(1)
    assert first_put_us is not None
    time.sleep(0.05)
    since_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    put(channel, *numbered(20, 10))
    events = stream(spark, channel.path)
    assert to("wrong", frame=events.withColumn("body", F.lit(b"bug")))[0] == b"bug"
    assert to("right", startingTimestamp=since_ms) == numbered(20, 10)
    assert to("all", startingTimestamp=first_put_us // 1000) == numbered(0, 30)


@pytest.mark.slow
def test_resetting_a_group_begins_again_once(channel: ss.Channel, to: To) -> None:
    assert to("b", group="g") == numbered(0, 20)
    again = {"group": "g", "startingOffsets": 11, "resetGroup": "true"}
    assert to("c", **again) == numbered(10, 10)
    put(channel, *numbered(20, 5))
    assert to("c", **again) == numbered(10, 15)
    assert set(channel.stats().groups) == {"g"}


@pytest.mark.slow
def test_an_old_copy_of_a_checkpoint_is_refused_and_the_way_on_is_named(
    channel: ss.Channel, to: To, tmp_path: Path
) -> None:
    assert to("b") == numbered(0, 20)
    shutil.copytree(tmp_path / "checkpoint-b", tmp_path / "checkpoint-old")
    put(channel, *numbered(20, 5))
    assert to("b") == numbered(0, 25)
    put(channel, *numbered(25, 5))
    with pytest.raises(PySparkException) as e:
        to("b", "old")
    text = ss.spark.explain(e.value)
    assert "the Spark checkpoint has read" in text and "has taken 21 to 25 too" in text
    assert "Use a new checkpointLocation with startingOffsets=21: a sink that has what the group took then has" in text
    assert "the events 21 to 25 twice" in text
    assert to("b", "new", startingOffsets=21) == [*numbered(0, 25), *numbered(20, 10)]


@pytest.mark.slow
def test_a_seek_that_a_checkpoint_disagrees_with_is_told(channel: ss.Channel, to: To) -> None:
    assert to("b", group="g") == numbered(0, 20)
    with ss.Channel(channel.path) as other:
        other.consumer("g", owner_timeout_seconds=60, resume=True).seek(4)
    for _ in range(2):
        with pytest.raises(
            PySparkException, match="'g' was moved by a seek to the event 5, but the Spark checkpoint has"
        ):
            to("b", group="g")
        put(channel, b"more")
    assert to("c", group="g") == [*numbered(4, 16), b"more", b"more"]


@pytest.mark.slow
def test_events_that_expire_before_a_query_reads_them_are_reported(
    spark: SparkSession, channel: ss.Channel, to: To
) -> None:
    ss.Channel(channel.path, retention_untaken="drop").close()
    assert to("b") == numbered(0, 20)
    put(channel, *numbered(20, 10))
    expire(channel, 25)
    with pytest.raises(PySparkException, match=r"the events 21 to 25 of .* were removed before the query read them"):
        to("b")
    assert to("b", failOnDataLoss="false") == [*numbered(0, 20), *numbered(25, 5)]


@pytest.mark.slow
def test_a_checkpoint_without_a_groups_name_continues_as_the_default_group(
    channel: ss.Channel, to: To, tmp_path: Path
) -> None:
    assert to("b", group="default") == numbered(0, 20)
    put(channel, *numbered(20, 5))
    assert to("b") == numbered(0, 25)
    assert list(channel.stats().groups) == ["default"]


def test_batch_reads_have_what_is_kept(spark: SparkSession, channel: ss.Channel, to: To) -> None:
    assert to("b", group="g") == numbered(0, 20)

    def read(**options: Any) -> list[bytes]:
        found = spark.read.format("spillable").options(**options).load(str(channel.path)).collect()
        return [bytes(row.body) for row in found]

    assert read() == numbered(0, 20)
    assert read(group="g") == []
    expire(channel, 5)
    assert read() == numbered(5, 15)
    assert read(startingOffsets="9", endingOffsets="12") == numbered(8, 4)
    with pytest.raises(PySparkException, match=r"the events 3 to 5 have left the channel: .* keeps is 6"):
        read(startingOffsets="3")


@pytest.mark.slow
def test_a_query_whose_own_group_was_dropped_continues_and_is_told_what_left(channel: ss.Channel, to: To) -> None:
    assert to("b") == numbered(0, 20)
    (group,) = automatic(channel)
    drop(channel, group)
    put(channel, *numbered(20, 5))
    assert to("b") == numbered(0, 25)
    drop(channel, group)
    put(channel, *numbered(25, 5))
    expire(channel, 27)
    with pytest.raises(PySparkException, match="the events 26 to 27 of"):
        to("b")
    assert to("b", failOnDataLoss="false") == [*numbered(0, 25), *numbered(27, 3)]
    assert automatic(channel) == [group]
