"""Spark's checkpoint and a group's position belong together, or the query is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import FrameType
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.checkpoint_check import check_batch, never_taken
from spillable_stream.spark.source.offset import OffsetJson
from spillable_stream.spark.source.partition import EventPartition
from spillable_stream.spark.source.query_group import QueryGroup
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.spark.test_channel_pool import close_parked
from tests.support.damage import kill, lose_memory, reboot
from tests.support.events import put as put_events
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spark.sources import batches, batches_of, named_source, put, source


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
    with pytest.raises(CheckpointMismatchError, match=r"an old copy\. Use a new checkpointLocation, or another group$"):
        check(channel, 2, 2)


def test_removed_events_are_not_taken_by_the_group(channel: ss.Channel) -> None:
    put(channel, 10)
    channel.consumer("default")
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 4}))
    check(channel, 0, 10)
    check(channel, 4, 10)


# ── a channel that was restored from a backup ───────────────────────────────────────────────────


@pytest.fixture(params=["directory", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a channel may be, on disk or in a store in a directory."""
    return f"{'object+file://' if request.param == 'store' else ''}{tmp_path}/c"


def restore(place: str, tmp_path: Path) -> ss.Channel:
    """Return the channel that a backup of it makes, in its place; the first one that was there is aside."""
    aside = tmp_path / "original"
    (tmp_path / "c").rename(tmp_path / f"gone-{uuid4()}" if aside.exists() else aside)
    ss.restore(tmp_path / "copy", place)
    return ss.Channel(place, create=False)


def read_after_a_restore(place: str, tmp_path: Path) -> OffsetJson:
    """Return the offset of a query that has read all of a channel, 5 events of a backup, and 3 that came after it."""
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
    with restore(place, tmp_path) as channel:
        put(channel, 3)
        return read_all(source(channel))


NOT_FROM = (
    "up to the event 8 after a restore that the channel there now does not come from: .*Use a new checkpointLocation"
)


def read_all(reader: SpillableStreamReader, start: OffsetJson | None = None) -> OffsetJson:
    """Run micro-batches until there is no more, and return where the last one ended; the source is stopped then."""
    start = start or reader.initialOffset()
    while (end := reader.latestOffset(start)) != start:
        reader.partitions(start, end)
        reader.commit(end)
        start = end
    reader.stop()
    return start


def refuses(reader: SpillableStreamReader, offset: OffsetJson, match: str, again: str | None = None) -> None:
    """Prove that a checkpoint is refused, whether Spark asks first for its next batch, or plans the last one again.

    Args:
        reader: the source.
        offset: the checkpoint's last one.
        match: what the error says.
        again: what it says of the last batch, of which Spark does not tell before 4.2 whether it was done.
    """
    with pytest.raises(CheckpointMismatchError, match=match):
        reader.latestOffset(offset)
    with pytest.raises(CheckpointMismatchError, match=again or match):
        reader.partitions(offset, offset)


def test_a_query_that_began_after_a_backup_passes_over_no_events_of_the_restored_channel(
    place: str, tmp_path: Path
) -> None:
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        put(channel, 5)
        read = read_all(source(channel))
    assert read["writeOrderId"] == 10
    with restore(place, tmp_path) as channel:
        put(channel, 8)  # 6 to 10 are not those that the query has read
        way = "Use a new checkpointLocation with startingOffsets=6: it continues with the events that are new$"
        refused = f"has read .* up to the event 10, but .* that ends with the event 5, .*{way}"
        again = "planned it up to the event 10, but .* startingOffsets=1: a sink that .* batch then has 1 to 5 twice$"
        refuses(source(channel), read, refused, again)
        refuses(source(channel, failOnDataLoss=False), read, refused, again)
        assert not channel.stats().groups
        assert batches_of(channel, startingOffsets="6") == [(6, 13)]


@pytest.mark.parametrize(
    ("committed", "way"),
    [
        (3, "startingOffsets=4: a sink that has the planned batch then has 4 to 5 twice"),
        (5, "startingOffsets=6: it continues with the events that are new"),
        (6, "startingOffsets=6: it continues with the events that are new"),
    ],
)
def test_a_batch_that_was_planned_and_not_done_is_not_said_to_be_read(
    place: str, tmp_path: Path, committed: int, way: str
) -> None:
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        put(channel, 2)
        offset = {"channel": channel.uuid, "writeOrderId": committed}
        planned = {**offset, "writeOrderId": 7}
    with restore(place, tmp_path) as channel:
        text = f"has read .* up to the event {committed}, and planned it up to the event 7, but .*{way}$"
        with pytest.raises(CheckpointMismatchError, match=text):
            source(channel, failOnDataLoss=False).partitions(offset, planned)


def test_nothing_is_promised_where_it_is_not_known_whether_the_last_batch_was_done(place: str, tmp_path: Path) -> None:
    """Before Spark 4.2 a resuming query plans its last end first, done or not."""
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        put(channel, 2)
        last = {"channel": channel.uuid, "writeOrderId": 7}
    with restore(place, tmp_path) as channel:
        with pytest.raises(CheckpointMismatchError) as e:
            source(channel).partitions(last, last)
        assert str(e.value) == (
            f"the Spark checkpoint has read, or only planned, {channel.path} up to the event 7, but the channel was "
            "restored from a backup that ends with the event 5, and gives the later IDs to other events. Use a new "
            "checkpointLocation with startingOffsets=6 if a sink has the last batch; if it has not, with the first "
            "event of that"
        )


def test_a_restored_channel_without_a_new_event_refuses_at_once(place: str, tmp_path: Path) -> None:
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        put(channel, 2)
        read = read_all(source(channel))
    with restore(place, tmp_path) as channel:
        ends = "up to the event 7, but .* that ends with the event 5, .*"
        refuses(source(channel), read, f"{ends} startingOffsets=6: it", f"{ends} startingOffsets=1: a sink")
        begins = source(channel, startingOffsets="6").initialOffset()
        assert begins["writeOrderId"] == 5


def test_a_query_that_has_read_no_more_than_the_backup_has_continues_in_the_restored_channel(
    place: str, tmp_path: Path
) -> None:
    with ss.Channel(place) as channel:
        channel.consumer("keeps-everything")
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        read = read_all(source(channel))
    with restore(place, tmp_path) as channel:
        put(channel, 3)
        reader = source(channel)
        end = reader.latestOffset(read)
        extents = [e for p in reader.partitions(read, end) if isinstance(p, EventPartition) for e in p.plan.extents]
        assert [(e.first_id, e.last_id) for e in extents] == [(6, 8)]
        reader.stop()


def test_a_query_continues_in_a_channel_that_was_restored_before_it_began(place: str, tmp_path: Path) -> None:
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
    with restore(place, tmp_path) as channel:
        put(channel, 3)
        read = read_all(source(channel))
        put(channel, 2)
        assert read_all(source(channel), read)["writeOrderId"] == 10


def test_a_query_of_a_restored_channel_is_refused_once_the_same_backup_is_restored_again_or_the_original_is_back(
    place: str, tmp_path: Path
) -> None:
    read = read_after_a_restore(place, tmp_path)
    with restore(place, tmp_path) as channel:
        put(channel, 4)
        refuses(source(channel), read, NOT_FROM)
    (tmp_path / "c").rename(tmp_path / "aside")
    (tmp_path / "original").rename(tmp_path / "c")
    with ss.Channel(place, create=False) as channel:  # which no restore made
        put(channel, 4)
        refuses(source(channel), read, NOT_FROM)


@pytest.mark.parametrize(
    ("events", "now"),
    [(2, "has only events up to 7, and gives the later IDs to others"), (3, "has other events under these IDs")],
)
def test_a_refusal_of_another_restore_says_which_of_the_events_the_channel_has(
    place: str, tmp_path: Path, events: int, now: str
) -> None:
    read = read_after_a_restore(place, tmp_path)
    with restore(place, tmp_path) as channel:
        put(channel, events)
        refuses(source(channel), read, f"to the event 8 after a restore .* does not come from: it {now}. Use")


def test_a_restored_channel_is_backed_up_and_restored_and_its_query_continues_where_both_have_the_events(
    place: str, tmp_path: Path
) -> None:
    with ss.Channel(place) as channel:
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
    with restore(place, tmp_path) as channel:
        put(channel, 3)
        ss.backup(channel, tmp_path / "second")
        early = read_all(source(channel))
        put(channel, 3)
        late = read_all(source(channel), early)
    (tmp_path / "copy").rename(tmp_path / "first")
    (tmp_path / "second").rename(tmp_path / "copy")
    with restore(place, tmp_path) as channel:
        put(channel, 6)
        refuses(source(channel), late, "up to the event 11, but .* that ends with the event 8")
        assert read_all(source(channel), early)["writeOrderId"] == 14


def test_a_named_group_is_told_to_be_moved_with_the_new_checkpoint(place: str, tmp_path: Path) -> None:
    with ss.Channel(place) as channel:
        channel.port().create_group("default", "earliest")
        put(channel, 5)
        ss.backup(channel, tmp_path / "copy")
        put(channel, 2)
        read = read_all(named_source(channel))
    with restore(place, tmp_path) as channel:
        put(channel, 4)
        own = "and resetGroup=true, or another group"
        refuses(named_source(channel), read, f"startingOffsets=6 {own}: it continues", f"startingOffsets=1 {own}: a")
        assert batches_of(channel, group="default", startingOffsets="6", resetGroup=True) == [(6, 9)]


def test_a_channel_that_was_never_restored_has_offsets_without_a_restore(channel: ss.Channel) -> None:
    put(channel, 5)
    first = read_all(named_source(channel))
    assert first == {"channel": channel.uuid, "recovery": first["recovery"], "start": 0, "writeOrderId": 5}


# ── a copy by another tool that takes its channel's place ───────────────────────────────────────


def copy(tmp_path: Path) -> None:
    """Copy the channel as ``cp -a`` does, in use or not."""
    shutil.copytree(tmp_path / "c", tmp_path / "copy", symlinks=True)


def put_back(tmp_path: Path) -> ss.Channel:
    """Return what was copied, in the place of the channel."""
    (tmp_path / "c").rename(tmp_path / f"gone-{uuid4()}")
    (tmp_path / "copy").rename(tmp_path / "c")
    return ss.Channel(tmp_path / "c", create=False)


def read_past_a_copy(tmp_path: Path) -> OffsetJson:
    """Return the offset of a query that has read the 5 events of which a copy was made, and 5 that came after it."""
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
    copy(tmp_path)
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
        return read_all(source(channel))


OTHER = "up to the event 10 in another copy of the channel: .* Use a new checkpointLocation: a sink then has twice"


def test_a_query_that_began_after_a_copy_in_use_passes_over_no_events_of_the_copy(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
        copy(tmp_path)
        put(channel, 5)
        read = read_all(source(channel))
    with put_back(tmp_path) as channel:
        put(channel, 8)  # 6 to 10 are not those that the query has read
        way = "Use a new checkpointLocation with startingOffsets=6: it continues with the events that are new$"
        refused = f"has read .* up to the event 10, but .* a copy that has only the events up to 5 of that, .*{way}"
        again = "planned it up to the event 10, but .* startingOffsets=1: a sink that .* batch then has 1 to 5 twice$"
        refuses(source(channel), read, refused, again)
        refuses(source(channel, failOnDataLoss=False), read, refused, again)
        assert not channel.stats().groups
        assert batches_of(channel, startingOffsets="6") == [(6, 13)]


def test_a_query_that_began_after_a_copy_of_the_closed_channel_passes_over_no_events_of_the_copy(
    tmp_path: Path,
) -> None:
    read = read_past_a_copy(tmp_path)
    with put_back(tmp_path) as channel:
        put(channel, 8)
        refuses(source(channel), read, OTHER)


@pytest.mark.parametrize(
    ("events", "now"),
    [
        (1, "has only events up to 6, and gives the later IDs to others"),
        (4, "has only events up to 9, and gives the later IDs to others"),
        (5, "has other events under these IDs"),
        (8, "has other events under these IDs"),
    ],
)
def test_a_refusal_of_another_copy_says_which_of_the_events_it_has(tmp_path: Path, events: int, now: str) -> None:
    read = read_past_a_copy(tmp_path)
    with put_back(tmp_path) as channel:
        put(channel, events)
        refuses(source(channel), read, f"to the event 10 in another copy of the channel: the one there now {now}. Use")


def test_a_query_of_a_copy_is_refused_where_the_original_is_back(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
        copy(tmp_path)
    with ss.Channel(tmp_path / "copy") as channel:
        put(channel, 5)
        read = read_all(source(channel))
    with ss.Channel(tmp_path / "c") as channel:
        put(channel, 8)
        refuses(source(channel), read, OTHER)


def test_a_query_that_has_read_no_more_than_a_copy_has_continues_in_the_copy(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        channel.consumer("keeps-everything")
        put(channel, 5)
        read = read_all(source(channel))
        copy(tmp_path)
        put(channel, 5)
    with put_back(tmp_path) as channel:
        put(channel, 3)
        assert read_all(source(channel), read)["writeOrderId"] == 8


def test_a_query_continues_in_a_channel_that_was_moved_or_opened_again(tmp_path: Path) -> None:
    read = None
    for number in range(3):
        with ss.Channel(tmp_path / "c") as channel:
            put(channel, 5)
            read = read_all(source(channel), read)
        if number == 0:  # to another file system
            copy(tmp_path)
            put_back(tmp_path).close()
    assert read is not None and read["writeOrderId"] == 15


def test_an_offset_of_an_earlier_version_or_of_too_long_ago_is_believed(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        channel.consumer("keeps-everything")
        put(channel, 5)
        early = read_all(source(channel))
    for _ in range(40):
        with ss.Channel(tmp_path / "c") as channel:
            put(channel, 1)
    with ss.Channel(tmp_path / "c") as channel:
        of_earlier_version = {key: value for key, value in early.items() if key != "recovery"} | {"writeOrderId": 44}
        reader = source(channel)
        with pytest.raises(CheckpointMismatchError, match="never took"):  # as before: the group says it
            reader.latestOffset(of_earlier_version)
        reader.stop()
        assert read_all(source(channel), early)["writeOrderId"] == 45


def test_a_query_that_has_read_what_went_with_a_memory_tier_continues_and_nothing_else_has_its_ids(
    tmp_path: Path,
) -> None:
    """Recoveries are said on disk alone: what was put into memory after them is of them all the same."""
    channel = ss.Channel(tmp_path / "c", memory_capacity=100, byte_capacity=1 << 20)
    put(channel, 5)
    read = read_all(source(channel))
    kill(channel)
    channel = ss.Channel(tmp_path / "c")
    put(channel, 5)
    read = read_all(source(channel), read)
    kill(channel)
    lose_memory(tmp_path / "c")
    reboot(tmp_path / "c")
    with pytest.warns(ss.MemoryLossWarning), ss.Channel(tmp_path / "c") as channel:
        put(channel, 5)
        assert read_all(source(channel, failOnDataLoss=False), read)["writeOrderId"] > 15


# ── a bucket that was put back, and that others continued ───────────────────────────────────────


def stream_of_the_store(**options: str) -> SpillableStreamReader:
    return SpillableStreamReader(URL, StreamOptions.of(options), struct_type(EVENT_SCHEMA))


def put_to_the_store(*bodies: bytes) -> None:
    with ss.Channel(URL, commit_interval=0) as channel:
        put_events(channel, *bodies)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("options", [{"group": "g"}, {}], ids=["group", "automatic"])
def test_a_batch_that_was_planned_is_not_planned_again_with_the_events_that_have_its_ids_now(
    options: dict[str, str], others: bool
) -> None:
    """A sink may have the batch, and would skip these events."""
    with stores_in_memory() as stores:
        put_to_the_store(b"of both")
        before = dict(stores[URL].objects)
        put_to_the_store(b"mine")
        reader = stream_of_the_store(**options)
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert len(reader.partitions(start, end)) == 1
        reader.stop()
        if others:
            stores[URL].objects.clear()
            stores[URL].objects.update(before)
            put_to_the_store(b"others'", b"others', too")
        again = stream_of_the_store(**options)
        if others:
            with pytest.raises(CheckpointMismatchError, match="the event 2 is another one by now: the bucket was put"):
                again.partitions(start, end)
        else:
            assert len(again.partitions(start, end)) == 1
            assert again.latestOffset(end) == end, "to the letter, where nothing is new"
        again.stop()
    close_parked()  # which are of these stores
