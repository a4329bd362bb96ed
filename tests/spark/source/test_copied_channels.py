"""Queries whose channel was replaced by a copy of another tool: those that it lacks events of are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

import spillable_stream as ss
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.spark.source.offset import OffsetJson
from tests.support.damage import kill, lose_memory, reboot
from tests.support.spark.sources import batches_of, put, read_all, refuses, source


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
        again = "planned it up to the event 10, but .* startingOffsets=1: .* batch then has the events 1 to 5 twice$"
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
