"""Batch reads: which events, split how, with which columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support.channels import snapshot
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly
from tests.support.spark.sources import nine_events, read

pytestmark = pytest.mark.spark
Put = Callable[..., Path]


@pytest.fixture
def path(put: Put) -> Path:
    return nine_events(put)


def ids(df: DataFrame) -> list[int]:
    return [int(row.body) for row in df.select("body").collect()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(1, 10)),
        ({"startingOffsets": 4}, range(4, 10)),
        ({"startingOffsets": '{"writeOrderId": 4}'}, range(5, 10)),
        ({"startingOffsets": 10}, []),
        ({"endingOffsets": 4}, range(1, 5)),
        ({"endingOffsets": '{"writeOrderId": 4}', "startingOffsets": 3}, range(3, 5)),
        ({"endingOffsets": "latest", "startingOffsets": "earliest"}, range(1, 10)),
        ({"endingOffsets": 5, "startingOffsets": 6}, []),
        ({"endingOffsets": '{"writeOrderId": 4}', "startingOffsets": '{"writeOrderId": 4}'}, []),
        ({"startingTimestamp": 7, "endingTimestamp": 7}, []),
        ({"group": "some"}, range(3, 10)),
        ({"group": "some", "endingOffsets": 4, "maxEventsPerPartition": 1}, range(3, 5)),
        ({"startingTimestamp": 0}, range(1, 10)),
        ({"startingTimestamp": "2999-01-01T00:00:00Z"}, []),
    ],
    ids=str,
)
def test_options_choose_the_events(spark: SparkSession, path: Path, options: dict[str, Any], expected: Any) -> None:
    assert ids(read(spark, path, **options)) == list(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": 10}, "endingOffsets 10 is beyond the last event's ID in"),
        ({"startingOffsets": 12}, "the start 12 is after the next event of .*, 10"),
        ({"startingOffsets": 6, "endingOffsets": 2}, "event 6, as startingOffsets says, .* event 2, as endingOffsets"),
        (
            {"startingOffsets": '{"writeOrderId": 5}', "endingOffsets": '{"writeOrderId": 4}'},
            "event 6, as startingOffsets says, and end with the event 4, as endingOffsets says: give it an earlier",
        ),
        (
            {"startingTimestamp": "2999-01-01T00:00:00Z", "endingOffsets": 4},
            "begin with the event 10, as startingTimestamp says, and end with the event 4, as endingOffsets says",
        ),
        ({"startingOffsets": 3, "endingTimestamp": 0}, "event 3, as startingOffsets .* 0, as endingTimestamp"),
        (
            {"startingTimestamp": 2000, "endingTimestamp": "1970-01-01T00:00:01Z"},
            r"startingTimestamp, 1970-01-01T00:00:02\+00:00, is later than endingTimestamp, 1970-01-01T00:00:01",
        ),
        ({"endingOffsets": 5, "endingTimestamp": 0}, "endingOffsets and endingTimestamp exclude each other"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be latest, a write-order ID"),
        ({"minEventsPerTrigger": 5}, "minEventsPerTrigger is not an option of a Spark batch read but of a streaming"),
        ({"txnAppId": "x"}, "txnAppId is not an option of a Spark source but of a sink"),
    ],
)
def test_options_that_are_invalid_are_refused(
    spark: SparkSession, path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, path, **options).collect()


def test_events_that_left_are_an_error_or_passed_over(spark: SparkSession, path: Path) -> None:
    with ss.Channel(path) as channel:
        channel.drop_group("all")
        with channel.take_transaction("some") as tx:
            tx.take_many(2)
    with pytest.raises(PySparkException, match="the events 2 to 4 have left the channel"):
        read(spark, path, startingOffsets=2).collect()
    assert ids(read(spark, path, startingOffsets=2, failOnDataLoss=False)) == list(range(5, 10))


@pytest.mark.parametrize(
    "start", [{}, {"startingTimestamp": 0}, {"startingOffsets": 2, "failOnDataLoss": False}, {"group": "some"}], ids=str
)
def test_a_read_up_to_events_that_left_has_no_rows_where_it_need_not_begin_with_them(
    spark: SparkSession, path: Path, start: dict[str, Any]
) -> None:
    with ss.Channel(path) as channel:
        channel.drop_group("all")
        with channel.take_transaction("some") as tx:
            tx.take_many(4)
    assert ids(read(spark, path, endingOffsets=3, **start)) == []


@pytest.mark.parametrize(("first", "last"), [(1, 3), (4, 6), (7, 9)])
def test_lost_events_are_an_error_or_passed_over(spark: SparkSession, put: Put, first: int, last: int) -> None:
    path = put("lost", *(b"%d" % i for i in range(1, 10)))
    value = {"lost": [[first, last]], "doubtful": [], "next": 10, "groups": {}, "kept": True}
    with ss.Channel(path) as channel:
        channel.engine().commit(Control(FrameType.LOST, value))
    with pytest.raises(PySparkException, match=f"the events {first} to {last} are lost"):
        read(spark, path).collect()
    there = [i for i in range(1, 10) if not first <= i <= last]
    assert ids(read(spark, path, failOnDataLoss=False)) == there
    assert ids(read(spark, path, startingOffsets=last + 1)) == [i for i in there if i > last]


def test_what_was_removed_for_a_group_is_an_error_or_passed_over(spark: SparkSession, path: Path) -> None:
    with ss.Channel(path) as channel:
        channel.engine().commit(Control(FrameType.RETENTION, {"through": 4}))
    with pytest.raises(PySparkException, match=r"the events 3 to 4 of .* were removed before the query read them"):
        read(spark, path, group="some").collect()
    assert ids(read(spark, path, group="some", failOnDataLoss=False)) == list(range(5, 10))
    assert ids(read(spark, path, group="some", startingOffsets=5)) == list(range(5, 10))
    assert ids(read(spark, path)) == list(range(5, 10))


# ── times and filters ───────────────────────────────────────────────────────────────────────────


def test_timestamps_bound_a_read(spark: SparkSession, path: Path) -> None:
    with ss.Channel(path) as channel, channel.take_transaction("clock") as tx:
        times = [datetime.fromtimestamp(e.timestamp, UTC).isoformat() for e in tx.take_many(9)[::3]]
        tx.rollback()
    assert ids(read(spark, path, startingTimestamp=times[1])) == [4, 5, 6, 7, 8, 9]
    assert ids(read(spark, path, endingTimestamp=times[1])) == [1, 2, 3]
    assert ids(read(spark, path, startingTimestamp=times[1], endingTimestamp=times[2])) == [4, 5, 6]
    assert ids(read(spark, path, endingTimestamp=0)) == []


def test_filters_of_one_dataframe_do_not_reach_another(spark: SparkSession, path: Path) -> None:
    """Spark's push-down would leave rows out of both: the reader takes no filters."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        df = read(spark, path, metadata=True)
        assert ids(df.where("write_order_id > 7")) == [8, 9]
        assert ids(df) == list(range(1, 10))
        assert ids(df.where("write_order_id > 7").union(df.where("write_order_id < 3"))) == [8, 9, 1, 2]
    finally:
        spark.conf.unset(name)


@NEEDS_MOUNTS
@pytest.mark.parametrize("group", [None, "some"])
def test_a_channel_on_a_readonly_mount_is_read(spark: SparkSession, path: Path, group: str | None) -> None:
    before = snapshot(path)
    with mounted_readonly(path):
        df = read(spark, path, minPartitions=3, **({"group": group} if group else {}))
        assert ids(df) == list(range(3 if group else 1, 10))
    assert snapshot(path) == before
