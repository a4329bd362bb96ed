"""What a source hears of its query: offsets of another group, of an older copy and of earlier versions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.errors import CheckpointMismatchError
from tests.support.spark.sources import groups, planned, put, read_ranges, source


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        yield channel


def test_worker_that_hears_another_name_than_it_made_up_gives_its_own_group_up(channel: ss.Channel) -> None:
    reader, other = source(channel), source(channel)
    _, end = planned(other)
    other.stop()
    start = reader.initialOffset()
    reader.latestOffset(start)
    assert read_ranges(reader, start, end) == [(1, 10)]
    assert reader.reportLatestOffset()["group"] == end["group"]
    channel.consumer(start["group"], 0)
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
        lacking = f"lacked the group '{reader._query.group.name}' of a query that has read it up to the event 10"
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


def test_checkpoint_of_an_earlier_version_continues_in_the_default_group(channel: ss.Channel) -> None:
    reader = source(channel, group="default")
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    put(channel, 2)
    again = source(channel)
    following = again.latestOffset(end)
    assert following == {"channel": channel.uuid, "recovery": end["recovery"], "writeOrderId": 12}
    assert read_ranges(again, end, following) == [(11, 12)]
    assert set(groups(channel)) == {"default"}
    again.stop()


def test_first_batch_of_an_earlier_version_is_planned_again_in_the_default_group(channel: ss.Channel) -> None:
    reader = source(channel, group="default")
    _, end = planned(reader)
    reader.stop()
    put(channel, 2)
    again = source(channel)
    assert read_ranges(again, again.initialOffset(), end) == [(1, 10)]
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
    ("starting", "lacking"), [("earliest", "never took 1 to 10: .*"), ("latest", "has taken 11 to 12 too: .*")]
)
def test_query_that_is_given_another_option_group_is_told_to_give_it_the_former_one_again(
    channel: ss.Channel, starting: str, lacking: str
) -> None:
    reader = source(channel, group="g")
    _, end = planned(reader)
    reader.commit(end)
    reader.stop()
    put(channel, 2)
    renamed = source(channel, group="h", startingOffsets=starting)
    before = "the query had another option group before"
    way = rf"{before}.*\. If {before}, give it that again\. Use a new checkpointLocation"
    with pytest.raises(CheckpointMismatchError, match=rf"'h' {lacking}{way}"):
        renamed.latestOffset(end)
    renamed.stop()
    again = source(channel, group="g")
    assert read_ranges(again, end, again.latestOffset(end)) == [(11, 12)]
    again.stop()


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
    assert read_ranges(again, end, again.latestOffset(end)) == [(11, 12)]
    again.stop()
