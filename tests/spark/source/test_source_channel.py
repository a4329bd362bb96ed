"""A source's channel and group: a stream without the option `group` has a position of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.errors import GroupOwnedError
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly
from tests.support.spark.sources import batches, batches_of, groups, planned, put, read_ranges, source


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        yield channel


# ── a position of its own ───────────────────────────────────────────────────────────────────


def test_two_queries_of_one_load_each_get_everything(channel: ss.Channel) -> None:
    one, other = source(channel), source(channel)
    assert batches(one) == batches(other) == [(1, 10)]
    assert len(groups(channel)) == 2 and all(g.is_automatic for g in groups(channel).values())
    for reader in (one, other):
        reader.stop()
    assert batches_of(channel) == [(1, 10)], "a new checkpoint gets all that is kept"


def test_group_is_created_by_the_first_look_for_events_and_not_before(channel: ss.Channel) -> None:
    reader = source(channel)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.reportLatestOffset()["lagEvents"] == 10
    assert groups(channel) == {}
    end = reader.latestOffset(start)
    group = groups(channel)[start["group"]]
    assert (group.position, group.is_automatic, group.has_planned) == (0, True, False)
    assert reader.reportLatestOffset()["group"] == start["group"] == end["group"]
    reader.partitions(start, end)
    assert groups(channel)[start["group"]].has_planned
    reader.stop()


def test_what_a_query_reports_before_its_group_is_created_is_behind_where_it_begins(channel: ss.Channel) -> None:
    reader = source(channel, startingOffsets=8)
    reader.initialOffset()
    assert reader.reportLatestOffset()["lagEvents"] == 3


def test_offsets_of_a_named_group_are_what_they_were(channel: ss.Channel) -> None:
    reader = source(channel, group="g")
    start, end = planned(reader)
    assert start == {"channel": channel.uuid, "writeOrderId": 0}
    mark = ("recovery", end["recovery"])
    assert list(end.items()) == [("channel", channel.uuid), mark, ("start", 0), ("writeOrderId", 10)]
    assert set(groups(channel)) == {"g"}
    reader.stop()


def test_restart_continues_in_the_group_that_the_checkpoint_names(channel: ss.Channel) -> None:
    reader = source(channel)
    _, end = planned(reader)
    reader.stop()
    put(channel, 2)
    again = source(channel)
    following = again.latestOffset(end)
    mark = ("recovery", end["recovery"])
    assert list(following.items()) == [("channel", channel.uuid), ("group", end["group"]), mark, ("writeOrderId", 12)]
    assert read_ranges(again, end, following) == [(11, 12)]
    assert set(groups(channel)) == {end["group"]}
    again.stop()


@pytest.mark.parametrize("stopped", [False, True])
def test_query_whose_first_batch_was_empty_keeps_its_position_without_an_owner(tmp_path: Path, stopped: bool) -> None:
    """Be it stopped, or be its trigger's interval long: Spark's checkpoint has that batch."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, 5)
        reader = source(channel, startingOffsets="latest")
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert end == start and read_ranges(reader, start, end) == []
        reader.stop()  # or as it is after a minute without a call
        engine = channel.engine()
        engine.upkeep.stop()
        upkeep = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
        upkeep.look(0)
        for _ in range(20):
            upkeep.look(60_000)
        put(channel, 5)
        with channel.take_transaction("fast") as tx:
            assert len(tx.take_many(10)) == 5
        again = source(channel) if stopped else reader
        assert read_ranges(again, end, again.latestOffset(end)) == [(6, 10)]
        again.stop()


def test_copy_of_a_checkpoint_is_refused_while_the_other_query_lives(channel: ss.Channel) -> None:
    reader = source(channel)
    _, end = planned(reader)
    copy = source(channel, ownerTimeout=0)
    with pytest.raises(GroupOwnedError, match="checkpoint has the same position as this query's, so one is a copy"):
        copy.latestOffset(end)
    reader.stop()


# ── a group that is gone ────────────────────────────────────────────────────────────────────


def test_group_that_was_dropped_is_created_again_where_the_checkpoint_is(channel: ss.Channel) -> None:
    reader = source(channel)
    _, end = planned(reader)
    reader.stop()
    channel.drop_group(end["group"])
    put(channel, 2)
    again = source(channel)
    assert read_ranges(again, end, again.latestOffset(end)) == [(11, 12)]
    group = groups(channel)[end["group"]]
    assert (group.position, group.is_automatic, group.has_planned, list(group.removed)) == (10, True, True, [])
    again.stop()


def test_group_that_is_gone_after_its_last_batch_is_created_again_by_the_next_look_for_events(
    channel: ss.Channel,
) -> None:
    """As Spark 4.0 and 4.1 ask: first for the last batch's end, though that batch is done."""
    reader = source(channel)
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    channel.drop_group(end["group"])
    again = source(channel)
    assert again.partitions(end, end) == []
    put(channel, 5)
    assert read_ranges(again, end, again.latestOffset()) == [(11, 15)]
    again.stop()


@pytest.mark.parametrize("before_4_2", [False, True])
@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}, {"startingTimestamp": 1}])
def test_new_query_on_a_busy_channel_begins_with_the_first_event_that_is_still_there(
    tmp_path: Path, options: dict[str, Any], before_4_2: bool
) -> None:
    """Others take events while Spark starts the query, and without retention they leave."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, 5)
        reader = source(channel, **options)
        start = reader.initialOffset()
        put(channel, 5)
        with channel.take_transaction("fast") as tx:
            assert len(tx.take_many(8)) == 8
        end = reader.latestOffset(*[] if before_4_2 else [start])
        assert reader.initialOffset() == start
        assert read_ranges(reader, start, end) == [(9, 10)]
        reader.stop()
        again = source(channel, **options)
        assert read_ranges(again, again.initialOffset(), end) == [(9, 10)], "also where Spark plans it again"
        again.commit(end)
        assert groups(channel)[end["group"]].position == 10
        again.stop()


def test_group_that_went_before_anything_was_planned_is_created_again_where_the_query_begins(
    channel: ss.Channel,
) -> None:
    reader = source(channel, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    reader.stop()  # as it is after a minute without a call
    channel.drop_group(start["group"])
    put(channel, 5)
    end = reader.latestOffset(start)
    assert not groups(channel)[start["group"]].has_planned
    assert read_ranges(reader, start, end) == [(11, 15)]
    reader.stop()


@NEEDS_MOUNTS
def test_a_channel_that_may_not_be_written_is_refused_and_a_batch_read_named(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        reader = source(channel)
    why = (
        r"/c can't be written by this process \(.*Read-only file system.*\), and a stream keeps its position in the ch"
    )
    with mounted_readonly(tmp_path / "c"), pytest.raises(ss.StorageError, match=why):
        reader.initialOffset()
    assert reader.initialOffset()["writeOrderId"] == 0
    reader.stop()
