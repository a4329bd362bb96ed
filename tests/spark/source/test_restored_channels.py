"""Queries whose channel was restored from a backup: those that it lacks events of are refused."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

import spillable_stream as ss
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.spark.source.offset import OffsetJson
from spillable_stream.spark.source.partition import EventPartition
from tests.support.spark.sources import batches_of, named_source, put, read_all, refuses, source


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
        again = "planned it up to the event 10, but .* startingOffsets=1: .* batch then has the events 1 to 5 twice$"
        refuses(source(channel), read, refused, again)
        refuses(source(channel, failOnDataLoss=False), read, refused, again)
        assert not channel.stats().groups
        assert batches_of(channel, startingOffsets="6") == [(6, 13)]


@pytest.mark.parametrize(
    ("committed", "way"),
    [
        (3, "startingOffsets=4: a sink that has the planned batch then has the events 4 to 5 twice"),
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
