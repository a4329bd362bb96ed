"""When a source owns its group: from when Spark asks for a batch; a named one, until one is planned, while it asks."""

from __future__ import annotations

import pickle
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.errors import GroupOwnedError, StorageError
from spillable_stream.spark.source import group_lease
from spillable_stream.spark.source.group_lease import GroupLease
from spillable_stream.spark.source.partition import EventPartition
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import numbered, put, take
from tests.support.no_threads import no_threads
from tests.support.spark.sources import named_source, source

pytestmark = pytest.mark.spark


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *numbered(0, 5))
        yield channel


def own(channel: ss.Channel, wait_seconds: float = 0.0, group: str = "default") -> None:
    """Own a group for a moment, or raise that another does."""
    with ss.Channel(channel.path) as other:
        other.consumer(group, owner_timeout_seconds=wait_seconds, resume=True)


def planned(reader: SpillableStreamReader) -> dict[str, Any]:
    """Plan the first batch, and return its end."""
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end)
    return end


def wait_for_threads() -> None:
    """Wait until no thread watches for calls that don't come."""
    for thread in threading.enumerate():
        if thread.name == "spillable idle source":
            thread.join()


def test_a_group_that_is_given_up_is_free_while_its_channel_is_open_until_the_close(channel: ss.Channel) -> None:
    reader = source(channel)
    planned(reader)
    lease = reader._query.lease
    held = lease.channel()
    lease.give_up()
    with ss.Channel(channel.path) as other:
        other.consumer(reader._query.group.name, owner_timeout_seconds=0.0, resume=True)
    assert lease.channel() is held and not held._open.is_closed
    lease.give_up()
    reader.stop()
    assert held._open.is_closed


# ── what owns the group ─────────────────────────────────────────────────────────────────────────


def test_where_a_query_starts_and_what_it_reports_is_said_without_the_group(channel: ss.Channel) -> None:
    reader = named_source(channel)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    report = reader.reportLatestOffset()
    assert (report["owner"], report["lagEvents"]) == (None, 5)
    own(channel)
    assert reader.latestOffset(start)["writeOrderId"] == 5
    with pytest.raises(GroupOwnedError, match=r"is this process: the thread .* took with another handle"):
        own(channel)
    assert reader.reportLatestOffset()["owner"].startswith("pid ")
    reader.stop()
    own(channel)


def test_a_batch_that_is_done_again_owns_the_group_though_nobody_asked_where_it_ends(channel: ss.Channel) -> None:
    reader = named_source(channel)
    start = reader.initialOffset()
    assert reader.partitions(start, {**start, "writeOrderId": 3})
    with pytest.raises(GroupOwnedError):
        own(channel)
    reader.stop()


def test_where_a_query_starts_is_the_same_after_every_restart_though_nobody_owned_the_group(
    channel: ss.Channel,
) -> None:
    for _ in range(3):
        reader = named_source(channel, startingOffsets="latest")
        assert [reader.initialOffset()["writeOrderId"] for _ in range(2)] == [5, 5]
        reader.stop()
        put(channel, b"more")


def test_where_a_query_starts_is_the_position_of_a_group_that_another_owns(channel: ss.Channel) -> None:
    assert take(channel, 2) == numbered(0, 2)  # its handle owns the group from now on
    reader = named_source(channel, ownerTimeout=0, startingOffsets="latest")
    start = reader.initialOffset()
    assert start["writeOrderId"] == 2
    with pytest.raises(GroupOwnedError, match=r"is owned by pid \d+ on"):
        reader.latestOffset(start)
    reader.stop()


def test_a_group_that_is_created_again_without_an_owner_forgets_what_the_dropped_one_had_taken(tmp_path: Path) -> None:
    """What its file says counts once the memory tier is lost: events that it never had would not be reported lost."""
    with ss.Channel(tmp_path / "m", minimum_required_space=0, memory_capacity=100) as channel:
        put(channel, *numbered(0, 5))
        assert len(take(channel)) == 5
        layout, fs = channel.engine().layout, channel.engine().fs
        assert read_position_hint(fs, layout, "default") == (5, [])
        channel._open.owned.consumers.pop("default").close()
        channel.drop_group("default")
        reader = named_source(channel)
        reader.initialOffset()
        assert read_position_hint(fs, layout, "default") == (0, [])
        reader.stop()


def test_a_take_that_was_committed_before_the_group_was_owned_moves_a_new_querys_start(channel: ss.Channel) -> None:
    """As by a listener, which hears of the former query's last batch between two calls of the new one's source."""
    former = named_source(channel)
    planned(former)
    former.stop()
    reader = named_source(channel)
    start = reader.initialOffset()
    assert start["writeOrderId"] == 0
    assert finish_takes(channel.engine(), "default", 5) == 1
    put(channel, *numbered(5, 5))
    end = reader.latestOffset(start)
    assert (end["start"], end["writeOrderId"]) == (5, 10)
    parts = reader.partitions(reader.initialOffset(), end)
    assert [e.first_id for p in parts for e in cast(EventPartition, p).plan.extents] == [6]
    reader.stop()


def test_a_new_query_that_finds_nothing_left_begins_behind_what_was_committed(channel: ss.Channel) -> None:
    former = named_source(channel)
    planned(former)
    former.stop()
    reader = named_source(channel)
    start = reader.initialOffset()
    finish_takes(channel.engine(), "default", 5)
    end = reader.latestOffset(start)
    assert end["writeOrderId"] == 5
    assert reader.partitions(reader.initialOffset(), end) == []
    assert reader.latestOffset(end) == end
    reader.stop()


# ── a worker that nobody calls ──────────────────────────────────────────────────────────────────


def test_a_group_without_a_planned_batch_is_given_up_when_no_call_comes_and_taken_again_at_the_next(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.05)
    reader = named_source(channel)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    own(channel, wait_seconds=60)
    assert reader.latestOffset(start) == end
    assert reader.partitions(start, end)
    wait_for_threads()
    with pytest.raises(GroupOwnedError):
        own(channel)
    reader.stop()


def test_a_group_that_was_given_up_and_has_a_batch_of_a_killed_query_under_way_finds_it_again(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = named_source(channel)
    end = planned(killed)
    killed.stop()
    put(channel, *numbered(5, 5))
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    reader = named_source(channel)
    start = reader.initialOffset()
    for _ in range(3):
        assert reader.latestOffset(start)["writeOrderId"] == 5
        own(channel, wait_seconds=60)
    assert reader.partitions(start, end)
    assert channel.stats().groups["default"].in_flight == 5
    reader.stop()


@pytest.mark.slow
def test_calls_that_come_while_the_group_is_given_up_find_everything_as_it_was(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    reader = named_source(channel, minEventsPerTrigger=1000)
    start = reader.initialOffset()
    for i in range(100):
        assert reader.latestOffset(start) == start
        assert reader.reportLatestOffset()["lagEvents"] == 5 + i
        put(channel, b"more")
    reader.stop()
    wait_for_threads()
    own(channel)


def test_a_call_that_takes_longer_than_a_lease_lasts_keeps_what_is_open(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    lease = GroupLease(lambda: ss.Channel(channel.path), lambda channel: channel.consumer("default"))
    with lease.call():
        held = lease.channel()
        time.sleep(0.2)  # the thread would close it, were there no call
        monkeypatch.setattr(group_lease, "IDLE_SECONDS", 60.0)
    time.sleep(0.2)
    assert lease.channel() is held
    lease.close()


def test_a_worker_that_nobody_calls_lets_others_be_the_last_to_close_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    with ss.Channel(tmp_path / "m", minimum_required_space=0, memory_capacity=100) as channel:
        put(channel, *numbered(0, 5))
        reader = named_source(channel)
        reader.latestOffset(reader.initialOffset())
        wait_for_threads()
        assert (tmp_path / "m" / "memory").exists()
    assert not (tmp_path / "m" / "memory").exists()


def test_a_channel_that_cannot_be_closed_cleanly_when_nobody_calls_is_logged(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        path = "/data/full"

        def close(self) -> None:
            raise StorageError("the disk is full")

    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    lease = GroupLease(lambda: cast(ss.Channel, Full()), lambda channel: channel.consumer("default"))
    lease.channel()
    wait_for_threads()
    assert "the channel /data/full, for which Spark has not asked for 0 s: the disk is full" in caplog.text


def test_a_channel_that_no_thread_can_close_is_used_and_closed_once_there_is_one(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = named_source(channel)
    with no_threads(named="spillable idle source") as refused:
        start = reader.initialOffset()
        for _ in range(2):
            assert reader.latestOffset(start)["writeOrderId"] == 5
    assert refused and caplog.text.count("nobody closes the channel") == 1
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    assert reader.latestOffset(start)["writeOrderId"] == 5
    wait_for_threads()
    own(channel)
    reader.stop()


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_a_query_with_a_position_of_its_own_owns_it_however_long_its_trigger_is(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    """Nobody else may read as this group, and without an owner it would be dropped."""
    monkeypatch.setattr(group_lease, "IDLE_SECONDS", 0.0)
    reader = source(channel, startingOffsets="latest")
    start = reader.initialOffset()
    if resumed:
        reader.latestOffset(start)
        assert reader.partitions(start, start) == []
        reader.stop()
        reader = source(channel)
    assert reader.latestOffset(start) == start
    wait_for_threads()
    time.sleep(0.1)
    with pytest.raises(GroupOwnedError):
        channel.drop_group(start["group"])
    assert not channel.stats().without_owner
    reader.stop()
    channel.drop_group(start["group"])


def test_a_reader_that_was_used_can_be_sent_to_executors(channel: ss.Channel) -> None:
    reader = named_source(channel)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    sent = pickle.loads(pickle.dumps(reader))
    assert sum(batch.num_rows for part in parts for batch in sent.read(part)) == 5
    reader.stop()


# ── on a real Spark ─────────────────────────────────────────────────────────────────────────────


def two_sources(spark: SparkSession, first: Path, second: Path) -> Any:
    """Return a query's frame of two channels, each read as the group of its name."""
    one, other = (
        spark.readStream.format("spillable").option("group", path.name).option("ownerTimeout", 0).load(str(path))
        for path in (first, second)
    )
    return one.union(other).writeStream.format("noop").trigger(availableNow=True)


@pytest.mark.slow
def test_a_source_of_a_query_whose_other_source_is_gone_does_not_keep_its_group(
    spark: SparkSession, channel: ss.Channel, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    ss.Channel(gone, minimum_required_space=0).close()
    frame = two_sources(spark, channel.path, gone)
    shutil.rmtree(gone)
    with pytest.raises(PySparkException, match="gone"):
        frame.start().awaitTermination()
    own(channel, group="c")


@pytest.mark.parametrize(
    "fails", [pytest.param(False, id="stopped"), pytest.param(True, id="failed", marks=pytest.mark.slow)]
)
def test_a_query_that_ends_before_its_first_batch_gives_a_position_of_its_own_up(
    spark: SparkSession, channel: ss.Channel, tmp_path: Path, fails: bool
) -> None:
    """Spark ends the worker of each source that it has asked for a batch, and the kernel frees what that held."""
    other = tmp_path / "other"
    ss.Channel(other, minimum_required_space=0).close()
    one, gone = (
        spark.readStream.format("spillable").option("startingOffsets", "latest").load(str(path))
        for path in (channel.path, other)
    )
    query = one.union(gone).writeStream.format("noop").start()
    while not has_owner_of_its_own(channel):
        assert query.isActive
        time.sleep(0.05)
    if fails:
        while other.exists():  # the query may make files in it meanwhile
            shutil.rmtree(other, ignore_errors=True)
        with pytest.raises(PySparkException):
            query.awaitTermination()
    query.stop()
    (group,) = channel.stats().groups
    own(channel, wait_seconds=30, group=group)


def has_owner_of_its_own(channel: ss.Channel) -> bool:
    groups = channel.stats()
    return bool(groups.groups) and not groups.without_owner


@pytest.mark.parametrize("before_4_2", [False, True], ids=["4.2 and later", "4.0 and 4.1"])
def test_a_new_query_begins_behind_what_the_last_one_had_though_nothing_new_came(
    channel: ss.Channel, before_4_2: bool
) -> None:
    """Spark plans a first batch whether it has anything in it or not."""
    former = named_source(channel)
    end = planned(former)
    reader = named_source(channel)
    start = reader.initialOffset()
    assert start["writeOrderId"] == 0
    former.commit(end)
    former.stop()
    empty = reader.latestOffset(None if before_4_2 else start)
    assert reader.partitions(start, empty) == []
    put(channel, *numbered(5, 3))
    following = reader.latestOffset(None if before_4_2 else empty)
    (partition,) = reader.partitions(empty, following)
    assert isinstance(partition, EventPartition) and partition.plan.extents[0].first_id == 6
    reader.stop()
