"""Spark's checkpoint and a group's position belong together, or the query is refused."""

from __future__ import annotations

import pytest

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.format.frame import FrameType
from spillable_stream.spark.source.checkpoint_check import check_batch, never_taken
from spillable_stream.spark.source.query_group import QueryGroup
from tests.support.spark.sources import batches, batches_of, named_source, put


def test_checkpoint_older_than_the_groups_position_is_refused(channel: ss.Channel) -> None:
    channel.consumer("keeps-everything")
    put(channel, 5)
    reader = named_source(channel)
    assert batches(reader) == [(1, 5)]
    old = {**reader.initialOffset(), "writeOrderId": 2}
    with pytest.raises(CheckpointMismatchError, match="to the event 2, but the group 'default' has taken 3 to 5 too"):
        reader.latestOffset(old)
    way = "Use a new checkpointLocation with startingOffsets=3 and resetGroup=true, or another group: a sink that has"
    with pytest.raises(CheckpointMismatchError, match=f"{way} what the group took then has the events 3 to 5 twice"):
        reader.partitions(old, {**old, "writeOrderId": 4})


def test_first_batch_that_spark_repeats_after_it_was_committed_is_refused(channel: ss.Channel) -> None:
    """A power cut may take its entry from Spark's commit log, which Spark does not sync."""
    channel.consumer("keeps-everything")
    put(channel, 5)
    reader = named_source(channel)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    reader.commit(end)
    reader.stop()
    again = named_source(channel)
    with pytest.raises(CheckpointMismatchError, match="up to the event 0, but the group 'default' has taken 1 to 5"):
        again.partitions(again.initialOffset(), end)


def test_no_option_lets_an_old_checkpoint_continue(channel: ss.Channel) -> None:
    """A sink would take its next batches, which have numbers that it knows, for batches that it has."""
    put(channel, 5)
    assert batches_of(channel, group="default") == [(1, 5)]
    put(channel, 2)
    reader = named_source(channel, failOnDataLoss=False)
    with pytest.raises(CheckpointMismatchError, match="has taken 3 to 5 too"):
        reader.latestOffset({**reader.initialOffset(), "writeOrderId": 2})


def test_events_of_an_older_copy_that_no_query_read_are_not_passed_over(
    channel: ss.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    put(channel, 5)
    assert batches_of(channel, group="default") == [(1, 5)]
    put(channel, 6)  # 6 to 8 are not those that the checkpoint's 6 to 8 were
    reader = named_source(channel)
    start = {**reader.initialOffset(), "writeOrderId": 8}
    with pytest.raises(CheckpointMismatchError, match="the group 'default' never took 6 to 8"):
        reader.latestOffset(start)
    with pytest.raises(CheckpointMismatchError, match="the group 'default' never took 6 to 8"):
        reader.partitions(start, {**start, "writeOrderId": 11})
    reader.stop()
    lenient = named_source(channel, failOnDataLoss=False)
    assert batches(lenient, 8) == [(9, 11)]
    assert caplog.text.count("the read continues without them") == 1


def test_checkpoint_ahead_of_the_channel_is_refused(channel: ss.Channel) -> None:
    put(channel, 5)
    reader = named_source(channel)
    start = reader.initialOffset()
    with pytest.raises(CheckpointMismatchError, match="up to the event 9, but that has only 5"):
        reader.partitions(start, {**start, "writeOrderId": 9})
    with pytest.raises(CheckpointMismatchError, match="up to the event 8, but that has only 5"):
        reader.latestOffset({**start, "writeOrderId": 8})


def check(channel: ss.Channel, begin: int, end: int) -> None:
    with channel.engine().snapshot() as state:
        check_batch(state, QueryGroup("default"), begin, end, "the channel")


def missed(channel: ss.Channel, begin: int) -> list[tuple[int, int]]:
    with channel.engine().snapshot() as state:
        return never_taken(state, "default", begin)


def test_a_batch_behind_the_groups_position_and_within_the_channel_is_planned(channel: ss.Channel) -> None:
    put(channel, 10)
    channel.consumer("default").commit([(1, 4)])
    for begin, end in ((4, 4), (4, 10), (6, 9)):
        check(channel, begin, end)


@pytest.mark.parametrize(("begin", "end", "read"), [(4, 11, 11), (12, 4, 12)])
def test_a_checkpoint_that_has_read_more_than_there_is_is_of_a_newer_copy(
    channel: ss.Channel, begin: int, end: int, read: int
) -> None:
    put(channel, 10)
    channel.consumer("default").commit([(1, 4)])
    text = f"has read the channel up to the event {read}, but that has only 10: it is an older copy"
    with pytest.raises(CheckpointMismatchError, match=text):
        check(channel, begin, end)


def test_events_that_the_group_took_and_the_checkpoint_did_not_read_are_named(channel: ss.Channel) -> None:
    channel.consumer("keeps-everything")
    put(channel, 10)
    channel.consumer("default").commit([(1, 4)])
    with pytest.raises(CheckpointMismatchError, match=r"the group 'default' has taken 3 to 4 too: another query"):
        check(channel, 2, 10)


def test_lost_events_are_not_taken_by_the_group(channel: ss.Channel) -> None:
    """Its position goes on over them, as over what it took."""
    put(channel, 10)
    consumer = channel.consumer("default")
    value = {"lost": [[1, 4]], "doubtful": [], "next": 11, "groups": {}, "kept": True}
    channel.engine().commit(Control(FrameType.LOST, value))
    check(channel, 0, 10)
    consumer.commit([(5, 6)])
    check(channel, 6, 10)
    with pytest.raises(CheckpointMismatchError, match="the group 'default' has taken 5 to 6 too"):
        check(channel, 0, 10)


def test_what_a_group_never_took_is_told_but_what_it_took_ahead_or_is_taking(channel: ss.Channel) -> None:
    put(channel, 20)
    consumer = channel.consumer("default")
    consumer.commit([(1, 4)])
    consumer.commit([(8, 9)])
    consumer.prepare([(11, 12)])
    assert missed(channel, 4) == []
    assert missed(channel, 7) == [(5, 7)]
    assert missed(channel, 15) == [(5, 7), (10, 10), (13, 15)]


# ── a group that a seek moved ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("to", [2, 9])
def test_a_checkpoint_that_disagrees_with_a_seek_is_told_so_in_those_words(channel: ss.Channel, to: int) -> None:
    channel.consumer("keeps-everything")
    put(channel, 10)
    consumer = channel.consumer("default")
    consumer.commit([(1, 5)])
    consumer.seek(to)
    with pytest.raises(CheckpointMismatchError) as e:
        check(channel, 5, 5)
    assert str(e.value) == (
        f"the group 'default' was moved by a seek to the event {to + 1}, but the Spark checkpoint has read the channel "
        "up to the event 5: a seek serves Python consumers and new checkpoints; use a new checkpointLocation, which "
        "begins where the seek moved the group, or another group"
    )
    check(channel, to, 10)


@pytest.mark.parametrize(("of_set", "option"), [(False, "startingOffsets"), (True, "startingTimestamp")])
def test_a_query_with_a_position_of_its_own_that_a_seek_moved_is_told_about_an_option_that_it_takes(
    channel: ss.Channel, of_set: bool, option: str
) -> None:
    """No new checkpoint continues with such a group."""
    channel.consumer("keeps-everything")
    put(channel, 10)
    group = QueryGroup(None)
    channel.port().create_group(group.name, "earliest", automatic=True)
    consumer = channel.consumer(group.name)
    consumer.commit([(1, 5)])
    consumer.seek(2)
    with channel.engine().snapshot() as state, pytest.raises(CheckpointMismatchError) as e:
        check_batch(state, group, 5, 5, "the channel", of_set=of_set)
    assert str(e.value).endswith(f"; use a new checkpointLocation (with {option})")


def test_a_group_that_took_something_after_a_seek_disagrees_like_any_other(channel: ss.Channel) -> None:
    channel.consumer("keeps-everything")
    put(channel, 10)
    consumer = channel.consumer("default")
    consumer.commit([(1, 5)])
    consumer.seek(2)
    consumer.commit([(3, 8)])
    with pytest.raises(CheckpointMismatchError, match="the group 'default' has taken 6 to 8 too"):
        check(channel, 5, 5)


# ── the way on ──────────────────────────────────────────────────────────────────────────────


def test_the_way_on_begins_with_what_is_there_and_says_what_a_sink_then_has_twice(channel: ss.Channel) -> None:
    channel.consumer("keeps-everything")
    put(channel, 10)
    channel.consumer("default").commit([(1, 8)])
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 4}))
    with pytest.raises(CheckpointMismatchError, match=r"startingOffsets=5 and resetGroup=true, .* events 5 to 8 twice"):
        check(channel, 2, 2)


def test_the_way_on_is_a_new_checkpoint_where_nothing_is_there_any_more(channel: ss.Channel) -> None:
    put(channel, 10)
    channel.consumer("default").commit([(1, 8)])
    with pytest.raises(CheckpointMismatchError, match=r"again\. Use a new checkpointLocation, or another group$"):
        check(channel, 2, 2)


def test_removed_events_are_not_taken_by_the_group(channel: ss.Channel) -> None:
    put(channel, 10)
    channel.consumer("default")
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 4}))
    check(channel, 0, 10)
    check(channel, 4, 10)
