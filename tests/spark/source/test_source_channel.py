"""A source's channel and group: a stream without the option `group` has a position of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.automatic_groups import UNPLANNED_SECONDS, AutomaticGroups
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError, DataLossError, GroupOwnedError
from spillable_stream.format.frame import FrameType
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.state.group import GroupState
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly
from tests.support.spark.sources import batches, batches_of, put, source


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        yield channel


def groups(channel: ss.Channel) -> dict[str, GroupState]:
    return dict(channel.engine().follow().groups)


def expire(channel: ss.Channel, through: int) -> None:
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


def planned(reader: SpillableStreamReader) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan the first batch, and return where it begins and ends."""
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end)
    return start, end


def read(reader: SpillableStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Plan a batch, and return the ranges of its events."""
    parts: list[Any] = list(reader.partitions(start, end))
    return [(e.first_id, e.last_id) for part in parts for e in part.plan.extents]


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
    assert read(again, end, following) == [(11, 12)]
    assert set(groups(channel)) == {end["group"]}
    again.stop()


def test_first_batch_is_planned_again_as_it_was_though_the_options_mean_another_beginning(channel: ss.Channel) -> None:
    """Spark asks again where it begins."""
    reader = source(channel, startingOffsets="latest")
    start = reader.initialOffset()
    put(channel, 3)
    end = reader.latestOffset(start)
    reader.stop()
    put(channel, 4)
    again = source(channel, startingOffsets="latest")
    assert read(again, again.initialOffset(), end) == [(11, 13)]
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
    assert read(again, again.initialOffset(), start) == []
    assert again.latestOffset(start)["writeOrderId"] == 14
    again.stop()


@pytest.mark.parametrize("stopped", [False, True])
def test_query_whose_first_batch_was_empty_keeps_its_position_without_an_owner(tmp_path: Path, stopped: bool) -> None:
    """Be it stopped, or be its trigger's interval long: Spark's checkpoint has that batch."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, 5)
        reader = source(channel, startingOffsets="latest")
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert end == start and read(reader, start, end) == []
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
        assert read(again, end, again.latestOffset(end)) == [(6, 10)]
        again.stop()


def test_copy_of_a_checkpoint_is_refused_while_the_other_query_lives(channel: ss.Channel) -> None:
    reader = source(channel)
    _, end = planned(reader)
    copy = source(channel, ownerTimeout=0)
    with pytest.raises(GroupOwnedError, match="checkpoint has the same position as this query's, so one is a copy"):
        copy.latestOffset(end)
    reader.stop()


def test_worker_that_hears_another_name_than_it_made_up_gives_its_own_group_up(channel: ss.Channel) -> None:
    reader, other = source(channel), source(channel)
    _, end = planned(other)
    other.stop()
    start = reader.initialOffset()
    reader.latestOffset(start)
    assert read(reader, start, end) == [(1, 10)]
    assert reader.reportLatestOffset()["group"] == end["group"]
    channel.consumer(start["group"], 0)
    reader.stop()


# ── a group that is gone ────────────────────────────────────────────────────────────────────


def test_group_that_was_dropped_is_created_again_where_the_checkpoint_is(channel: ss.Channel) -> None:
    reader = source(channel)
    _, end = planned(reader)
    reader.stop()
    channel.drop_group(end["group"])
    put(channel, 2)
    again = source(channel)
    assert read(again, end, again.latestOffset(end)) == [(11, 12)]
    group = groups(channel)[end["group"]]
    assert (group.position, group.is_automatic, group.has_planned, list(group.removed)) == (10, True, True, [])
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
    assert read(again, end, following) == [(15, 20)]
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
    assert read(again, again.initialOffset(), end) == [(1, 10)]
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
    assert read(again, again.initialOffset() if first else start, end) == [(1, 10) if first else (11, 15)]
    again.commit(end)
    assert read(again, end, again.latestOffset()) == [(11, 15) if first else (16, 20)]
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
    assert read(again, end, again.latestOffset()) == [(11, 15)]
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
    assert read(again, again.initialOffset(), end) == []
    assert read(again, end, again.latestOffset()) == [(11, 14)]
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
        assert read(reader, start, end) == [(9, 10)]
        reader.stop()
        again = source(channel, **options)
        assert read(again, again.initialOffset(), end) == [(9, 10)], "also where Spark plans it again"
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
    assert read(reader, start, end) == [(11, 15)]
    reader.stop()


def test_older_copy_of_the_channel_is_refused_and_no_group_is_created(channel: ss.Channel) -> None:
    reader = source(channel)
    start = {**reader.initialOffset(), "group": "auto-1", "writeOrderId": 12}
    with pytest.raises(CheckpointMismatchError, match="up to the event 12, but that has only 10: it is an older copy"):
        reader.latestOffset(start)
    assert groups(channel) == {}


@pytest.mark.parametrize("options", [{}, {"group": "g", "startingOffsets": "latest"}], ids=str)
def test_query_whose_group_the_channel_lacks_says_that_the_channel_may_be_an_older_copy(
    tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The offset is one of an earlier version, which says no recovery, and the query's group began after the copy."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, 5)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
        reader = source(channel, **{**options, "startingOffsets": "earliest"})
        _, end = planned(reader)
        reader.commit(end)
        assert reader.latestOffset(end) == end
        reader.stop()
        again = source(channel, **options)
        assert again.latestOffset(end) == end
        again.stop()
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "copy").rename(tmp_path / "c")
    assert "older copy" not in caplog.text
    del end["recovery"]
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)  # under the IDs 6 to 10, which the query has read
        reader = source(channel, **options)
        assert reader.latestOffset(end) == reader.latestOffset(end) == end
        lacking = f"lacked the group '{reader._group.name}' of a query that has read it up to the event 10"
        assert caplog.text.count(lacking) == caplog.text.count("older copy of the one that was read") == 1
        reader.stop()


def test_query_that_is_given_another_group_is_told_so_and_only_where_it_continues(
    channel: ss.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    reader = source(channel, group="g")
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    refused = source(channel, group="h")
    with pytest.raises(CheckpointMismatchError, match="'h' never took 1 to 10: the query had another option"):
        refused.latestOffset(end)
    refused.stop()
    assert "lacked" not in caplog.text
    again = source(channel, group="i", startingOffsets="11")
    assert again.latestOffset(end) == again.latestOffset(end) == end
    again.stop()
    assert caplog.text.count("lacked the group 'i'") == 1
    assert "the group was dropped, or the query read as another group before, or the channel is an" in caplog.text


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({}, "'h' never took 1 to 10: the query had another option group before, or "),
        ({"startingOffsets": "latest"}, "'h' has taken 11 to 12 too: "),
        ({"startingOffsets": "latest", "failOnDataLoss": False}, "'h' has taken 11 to 12 too: "),
    ],
)
@pytest.mark.parametrize("plans", [False, True])
def test_a_refused_query_leaves_no_group_behind_that_would_hold_events_for_nobody(
    channel: ss.Channel, options: dict[str, Any], refusal: str, plans: bool
) -> None:
    reader = source(channel, group="g")
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    put(channel, 2)
    refused = source(channel, group="h", **options)
    with pytest.raises(CheckpointMismatchError, match=refusal):
        if plans:
            del end["start"]  # of the first batch
            refused.partitions(end, {**end, "writeOrderId": 12})
        refused.latestOffset(end)
    refused.stop()
    assert "h" not in groups(channel)


# ── a checkpoint without a name ─────────────────────────────────────────────────────────────


def test_checkpoint_of_an_earlier_version_continues_in_the_default_group(channel: ss.Channel) -> None:
    reader = source(channel, group="default")
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    put(channel, 2)
    again = source(channel)
    following = again.latestOffset(end)
    assert following == {"channel": channel.uuid, "recovery": end["recovery"], "writeOrderId": 12}
    assert read(again, end, following) == [(11, 12)]
    assert set(groups(channel)) == {"default"}
    again.stop()


def test_first_batch_of_an_earlier_version_is_planned_again_in_the_default_group(channel: ss.Channel) -> None:
    reader = source(channel, group="default")
    _, end = planned(reader)
    reader.stop()
    put(channel, 2)
    again = source(channel)
    assert read(again, again.initialOffset(), end) == [(1, 10)]
    assert set(groups(channel)) == {"default"}
    again.stop()


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("default", [None, 0, 4])
def test_query_that_lost_its_option_group_does_not_continue_in_another_one(
    channel: ss.Channel, fail: bool, default: int | None
) -> None:
    if default is not None:
        consumer = channel.consumer("default")
        consumer.commit([(1, default)] if default else [])
        consumer.close()
        channel._open.owned.consumers.clear()
    reader = source(channel, group="g")
    _, end = planned(reader)
    reader.stop()
    again = source(channel, failOnDataLoss=fail)
    lacking = "is not there" if default is None else f"never took {default + 1} to 10"
    with pytest.raises(CheckpointMismatchError, match=rf"'default'; but that {lacking}\. Give the query its option"):
        again.latestOffset(end)
    again.stop()
    assert "default" not in groups(channel) or groups(channel)["default"].position == default


@pytest.mark.parametrize(
    ("starting", "lacking"), [("earliest", r"never took 1 to 10: .*"), ("latest", r"has taken 11 to 12 too: .*")]
)
def test_query_with_a_position_of_its_own_that_is_given_the_option_group_is_told_to_take_it_away(
    channel: ss.Channel, starting: str, lacking: str
) -> None:
    reader = source(channel)
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    put(channel, 2)
    named = source(channel, group="g", startingOffsets=starting)
    way = rf"has a position of its own, '{end['group']}': take the option away to continue there\. Use a new"
    with pytest.raises(CheckpointMismatchError, match=rf"'g' {lacking}{way}"):
        named.latestOffset(end)
    named.stop()
    again = source(channel)
    assert read(again, end, again.latestOffset(end)) == [(11, 12)]
    again.stop()


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
