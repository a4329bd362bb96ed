"""The plan of a micro-batch: Spark plans one again, also of a group that is gone and of events that left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.automatic_groups import UNPLANNED_SECONDS
from spillable_stream.engine.requests import Control
from spillable_stream.errors import DataLossError
from spillable_stream.format.frame import FrameType
from tests.support.spark.sources import expire, groups, planned, put, read_ranges, source


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        yield channel


def test_first_batch_is_planned_again_as_it_was_though_the_options_mean_another_beginning(channel: ss.Channel) -> None:
    """Spark asks again where it begins."""
    reader = source(channel, startingOffsets="latest")
    start = reader.initialOffset()
    put(channel, 3)
    end = reader.latestOffset(start)
    reader.stop()
    put(channel, 4)
    again = source(channel, startingOffsets="latest")
    assert read_ranges(again, again.initialOffset(), end) == [(11, 13)]
    assert set(groups(channel)) == {end["group"]}
    again.commit(end)
    assert again.latestOffset(end)["writeOrderId"] == 17
    again.stop()


def test_first_batch_that_was_empty_is_planned_again_empty(channel: ss.Channel) -> None:
    """As of a query with several sources, of which another one had something."""
    reader = source(channel, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    reader.stop()
    put(channel, 4)
    again = source(channel, startingOffsets="latest")
    assert read_ranges(again, again.initialOffset(), start) == []
    assert again.latestOffset(start)["writeOrderId"] == 14
    again.stop()


@pytest.mark.parametrize("fail", [True, False])
def test_what_left_while_the_group_was_gone_was_removed(
    channel: ss.Channel, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = source(channel)
    _, end = planned(reader)
    reader.stop()
    channel.drop_group(end["group"])
    put(channel, 10)
    expire(channel, 14)
    again = source(channel, failOnDataLoss=fail)
    following = again.latestOffset(end)
    text = f"the events 11 to 14 of {channel.path} were removed before the query read them"
    if fail:
        unplanned = f"{UNPLANNED_SECONDS / 60:g} minutes"
        why = f"autoGroupTtl, 604800 s, or for {unplanned} before its first batch was planned"
        with pytest.raises(DataLossError, match=f"{text} .*{why}.* Set failOnDataLoss to false"):
            again.partitions(end, following)
        again.stop()
        again = source(channel, failOnDataLoss=False)
    assert read_ranges(again, end, following) == [(15, 20)]
    assert f"{text}" in caplog.text
    again.stop()


@pytest.mark.parametrize("dropped", [False, True])
def test_first_batch_whose_driver_was_killed_before_it_was_planned_is_planned(
    channel: ss.Channel, dropped: bool
) -> None:
    """The group of a query that never planned a batch does not live for long without an owner."""
    killed = source(channel)
    end = killed.latestOffset(killed.initialOffset())
    killed.stop()
    if dropped:
        channel.drop_group(end["group"])
    put(channel, 5)
    again = source(channel)
    assert read_ranges(again, again.initialOffset(), end) == [(1, 10)]
    assert groups(channel)[end["group"]].has_planned
    again.stop()


@pytest.mark.parametrize("first", [True, False])
def test_batch_under_way_whose_group_is_gone_is_planned_again_though_spark_asks_for_its_end_first(
    channel: ss.Channel, first: bool
) -> None:
    """As Spark 4.0 and 4.1 do: a group that is created at that end would be behind the batch."""
    killed = source(channel)
    if first:
        start = killed.initialOffset()
    else:
        _, start = planned(killed)
        put(channel, 5)
    end = killed.latestOffset(start)
    killed.stop()
    channel.drop_group(end["group"])
    put(channel, 5)
    again = source(channel)
    assert again.partitions(end, end) == []
    assert end["group"] not in groups(channel)
    assert read_ranges(again, again.initialOffset() if first else start, end) == [(1, 10) if first else (11, 15)]
    again.commit(end)
    assert read_ranges(again, end, again.latestOffset()) == [(11, 15) if first else (16, 20)]
    again.stop()


def test_first_batch_that_was_empty_is_planned_again_empty_though_spark_asks_for_its_end_first(
    channel: ss.Channel,
) -> None:
    """As Spark 4.0 and 4.1 do: the source knows the query's group then, and not yet where the query begins."""
    reader = source(channel, startingOffsets="latest")
    end = reader.latestOffset()
    assert reader.initialOffset() == end
    reader.stop()
    put(channel, 4)
    again = source(channel, startingOffsets="latest")
    assert again.partitions(end, end) == []
    assert read_ranges(again, again.initialOffset(), end) == []
    assert read_ranges(again, end, again.latestOffset()) == [(11, 14)]
    again.stop()


def test_events_that_left_between_a_new_querys_beginning_and_its_first_look_were_removed_if_it_asked_for_them(
    channel: ss.Channel,
) -> None:
    reader = source(channel, startingOffsets=2)
    start = reader.initialOffset()
    expire(channel, 4)
    end = reader.latestOffset(start)
    with pytest.raises(DataLossError, match="the events 2 to 4 of"):
        reader.partitions(start, end)
    reader.stop()


@pytest.mark.parametrize("kind", ["removed", "lost"])
def test_a_batch_under_way_whose_first_events_are_gone_is_planned_again_without_them(tmp_path: Path, kind: str) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 4, 6)
        killed = source(channel)
        _, end = planned(killed)
        killed.stop()
        if kind == "removed":
            expire(channel, 4)
        else:
            value = {"lost": [[1, 4]], "doubtful": [], "next": 11, "groups": {}, "kept": True}
            channel.engine().commit(Control(FrameType.LOST, value))
        again = source(channel)
        with pytest.raises(DataLossError, match="the events 1 to 4 "):
            again.partitions(again.initialOffset(), end)
        again.stop()
        lenient = source(channel, failOnDataLoss=False)
        parts: list[Any] = list(lenient.partitions(lenient.initialOffset(), end))
        assert sum(batch.num_rows for part in parts for batch in lenient.read(part)) == 6
        lenient.commit(end)
        assert groups(channel)[end["group"]].position == 10
        lenient.stop()
