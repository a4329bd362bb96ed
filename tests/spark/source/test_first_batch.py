"""A query that has lost its first offset is refused, rather than that its sink skips rows."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.engine.port import PlanReader
from spillable_stream.format.query_note import FirstBatch, QueryNote
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source import set_members
from spillable_stream.spark.source.first_batch import FormerGroup, PlannedBatch, high_water_of, note_batch
from spillable_stream.spark.source.partition import EventPartition
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, peek, put, take
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spark.sources import source
from tests.support.spark.versions import drain

TASK = QueryTask("query", "run 1", 0)
AGAIN = QueryTask("query", "run 2", 0)
FIRST = PlannedBatch("g", 1, 5, is_first=True)
LATER = PlannedBatch("g", 6, 9)


@pytest.fixture(params=["local", "object"])
def events(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlanReader]:
    """The reader of a task, of a channel on disk and of one in a store."""
    with stores_in_memory():
        path = tmp_path / "c" if request.param == "local" else URL
        with ss.Channel(path) as channel:
            put(channel, *numbered(0, 10))
            [plan] = channel.port().plan_read([[(1, 10)]])
        reader = plan.open()
        yield reader
        reader.close()


# ── a group that the options name ───────────────────────────────────────────────────────────────


def test_a_first_batch_is_noted_and_may_be_planned_again_as_it_was(events: PlanReader) -> None:
    note_batch(events, FIRST, TASK)
    assert events.query_note("g") == QueryNote("query", "run 1", FirstBatch(0, 1, 5))
    note_batch(events, FIRST, AGAIN)  # after a crash
    note_batch(events, PlannedBatch("g", 2, 4, is_first=True), AGAIN)  # others took the rest
    note_batch(events, LATER, QueryTask("query", "run 2", 1))
    assert events.query_note("g") == QueryNote("query", "run 1", FirstBatch(0, 1, 5))


def test_a_first_batch_whose_note_may_not_be_durable_is_noted_again(
    events: PlanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose sync failed, or that was killed before it, has left a note that a power cut takes away."""
    note_batch(events, FIRST, TASK)
    noted: list[QueryNote] = []
    monkeypatch.setattr(events, "note_query", lambda _, note: noted.append(note) or True)
    note_batch(events, FIRST, AGAIN)
    assert noted == [QueryNote("query", "run 1", FirstBatch(0, 1, 5))]
    note_batch(events, LATER, QueryTask("query", "run 2", 1))
    assert len(noted) == 1, "a request of every batch"


@pytest.mark.parametrize(
    ("batch", "task"),
    [
        (PlannedBatch("g", 6, 9, is_first=True), AGAIN),  # the take was committed
        (PlannedBatch("g", 1, 6, is_first=True), AGAIN),
        (PlannedBatch("g", 1, 5, is_first=True, reset="another"), AGAIN),  # the group was moved again
        (FIRST, QueryTask("query", "run 2", 1)),  # of a set, where the channel joined another batch
    ],
)
def test_another_first_batch_of_a_query_is_refused_each_time(
    events: PlanReader, batch: PlannedBatch, task: QueryTask
) -> None:
    note_batch(events, FIRST, TASK)
    for _ in range(2):  # the second time Spark's checkpoint has the batch
        with pytest.raises(
            ss.CheckpointMismatchError,
            match=r"the query query begins to read .* in its batch \d, with the events \d to \d; but it began before "
            r"with the events 1 to 5 in the batch 0, and its checkpoint .*Use a new checkpointLocation$",
        ):
            note_batch(events, batch, task)
    note_batch(events, batch, QueryTask("another", "run 3", 0))  # a new checkpoint


def test_a_query_that_was_noted_at_a_later_batch_does_not_begin_again(events: PlanReader) -> None:
    note_batch(events, LATER, TASK)
    assert events.query_note("g") == QueryNote("query", "run 1")
    with pytest.raises(ss.CheckpointMismatchError, match="but it began before, and its checkpoint"):
        note_batch(events, FIRST, AGAIN)


def test_a_note_of_an_earlier_version_says_nothing_of_a_batch(events: PlanReader) -> None:
    events.note_query("g", QueryNote("query"))
    note_batch(events, FIRST, TASK)


def test_a_batch_read_and_a_task_outside_of_a_query_note_nothing(events: PlanReader) -> None:
    note_batch(events, FIRST, None)
    assert events.query_note("g") is None


def test_a_task_that_may_not_write_says_what_is_not_noted(
    events: PlanReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "note_query", lambda *_: False)
    with caplog.at_level(logging.WARNING, "spillable_stream.spark.source.first_batch"):
        note_batch(events, LATER, TASK)
        assert not caplog.messages
        note_batch(events, FIRST, TASK)
    [message] = caplog.messages
    assert "a task may not write beside the group 'g', so the first batch of its query is not noted" in message


# ── a group that the stream created for itself ─────────────────────────────────────────────────────


def test_a_query_that_begins_anew_with_another_group_is_refused_and_stays_so(events: PlanReader) -> None:
    note_batch(events, PlannedBatch("auto-1", 1, 5, is_first=True), TASK)
    new = PlannedBatch("auto-2", 6, 9, is_first=True, former=(FormerGroup("auto-0", 3), FormerGroup("auto-1", 5)))
    with pytest.raises(
        ss.CheckpointMismatchError, match=r"but it began before, .*Use a new checkpointLocation with startingOffsets=6$"
    ):
        note_batch(events, new, AGAIN)
    with pytest.raises(ss.CheckpointMismatchError, match="but it began before"):  # Spark's checkpoint has it by now
        note_batch(events, PlannedBatch("auto-2", 6, 9, is_first=True), QueryTask("query", "run 3", 0))


def test_a_set_is_not_told_about_an_id_of_one_channel_which_it_would_refuse(events: PlanReader) -> None:
    note_batch(events, PlannedBatch("auto-1", 1, 5, is_first=True), TASK)
    new = PlannedBatch("auto-2", 6, 9, is_first=True, former=(FormerGroup("auto-1", 5),))
    with pytest.raises(ss.CheckpointMismatchError, match=r"with a startingTimestamp for all channels of the set$"):
        note_batch(events, new, AGAIN, of_set=True)


def test_one_run_may_read_a_channel_with_two_groups_of_its_own(events: PlanReader) -> None:
    """A self-join: each of its two sources has a group, and both begin at once."""
    note_batch(events, PlannedBatch("auto-1", 1, 5, is_first=True), TASK)
    note_batch(events, PlannedBatch("auto-2", 1, 5, is_first=True, former=(FormerGroup("auto-1", 0),)), TASK)
    assert events.query_note("auto-2") == QueryNote("query", "run 1", FirstBatch(0, 1, 5))


def test_a_second_source_that_a_crash_kept_from_being_noted_is_not_refused(events: PlanReader) -> None:
    note_batch(events, PlannedBatch("auto-1", 1, 5, is_first=True), TASK)
    note_batch(events, PlannedBatch("auto-2", 1, 5, is_first=True), AGAIN)  # Spark's checkpoint has its group
    assert events.query_note("auto-2") == QueryNote("query", "run 2", FirstBatch(0, 1, 5))


@pytest.mark.parametrize("is_again", [False, True])
def test_another_group_is_of_an_earlier_start_if_it_planned_before_this_one_was_created(
    events: PlanReader, is_again: bool
) -> None:
    note_batch(events, PlannedBatch("auto-1", 1, 5, is_first=True, planned_at=(10, 7)), TASK)
    former = FormerGroup("auto-1", 5)
    at_once = PlannedBatch("auto-2", 1, 5, True, None, (former,), is_again, planned_at=(10, 8), made_at=(10, 6))
    note_batch(events, at_once, AGAIN)  # the second source of the query, which a crash kept from being noted
    anew = PlannedBatch("auto-3", 6, 9, True, None, (former,), is_again, planned_at=(10, 9), made_at=(10, 8))
    with pytest.raises(ss.CheckpointMismatchError, match=r"but it began before, .*with startingOffsets=6$"):
        note_batch(events, anew, AGAIN)


def test_a_channel_is_further_than_before_though_it_lost_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with ss.Channel(path, memory_capacity=10, minimum_required_space=0) as channel:
        take(channel)
        for i in range(4):
            put(channel, *numbered(i, 1))
            take(channel)
        with channel.engine().snapshot() as state:
            before = high_water_of(state)
        kill(channel)
    lose_memory(path)
    with pytest.warns(ss.MemoryLossWarning), ss.Channel(path) as channel, channel.engine().snapshot() as state:
        assert state.next_transaction < before[1]
        assert high_water_of(state) > before


# ── what a source tells the first task ──────────────────────────────────────────────────────────


@contextmanager
def channel_of(path: Path, *groups: str) -> Iterator[ss.Channel]:
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        for group in groups:
            channel.consumer(group).close()
        yield channel


def planned(parts: list[Any]) -> list[PlannedBatch | None]:
    assert all(isinstance(part, EventPartition) for part in parts)
    return [part.batch for part in parts]


@pytest.mark.spark
def test_the_first_partition_alone_is_told_the_batch(tmp_path: Path) -> None:
    with channel_of(tmp_path / "c") as channel:
        reader = source(channel, group="g", minPartitions=2, maxEventsPerTrigger=6)
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert planned(reader.partitions(start, end)) == [PlannedBatch("g", 1, 6, is_first=True), None]
        again = source(channel, group="g", minPartitions=2)
        reader.stop()
        assert planned(again.partitions(start, end)) == [PlannedBatch("g", 1, 6, is_first=True), None]
        last = again.latestOffset(end)
        assert planned(again.partitions(end, last)) == [PlannedBatch("g", 7, 10), None]
        again.stop()


@pytest.mark.spark
def test_a_group_that_a_stream_has_created_just_now_comes_with_the_former_ones(tmp_path: Path) -> None:
    with channel_of(tmp_path / "c", "named") as channel:
        first = source(channel)
        start = first.initialOffset()
        end = first.latestOffset(start)
        [batch] = planned(first.partitions(start, end))
        assert batch is not None and batch.is_first and not batch.former
        first.stop()
        second = source(channel)  # the checkpoint lost the offset
        anew = second.initialOffset()
        [new] = planned(second.partitions(anew, second.latestOffset(anew)))
        assert new is not None and new.is_first and new.former == (FormerGroup(batch.group, 0),)
        second.stop()
        third = source(channel)  # the checkpoint has it
        [again] = planned(third.partitions(third.initialOffset(), end))
        assert again is not None and again.is_first and again.group == batch.group and again.is_again
        assert again.former == (FormerGroup(new.group, 0),)
        third.stop()


def noted(channel: ss.Channel, batch: PlannedBatch | None, run: str, batch_id: int = 0) -> None:
    """Do what the first task of a batch does."""
    assert batch is not None
    [plan] = channel.port().plan_read([[(batch.first_id, batch.last_id)]])
    with contextlib.closing(plan.open()) as events:
        note_batch(events, batch, QueryTask("query", run, batch_id))


@pytest.mark.spark
def test_a_driver_that_is_killed_between_an_offset_that_was_written_anew_and_its_first_task_is_not_a_way_around(
    tmp_path: Path,
) -> None:
    """A power cut took the query's first offset; the next batch 0 has other events, and its sink would skip them."""
    with channel_of(tmp_path / "c") as channel:
        first = source(channel)
        start = first.initialOffset()
        end = first.latestOffset(start)
        [batch] = planned(first.partitions(start, end))
        noted(channel, batch, "run 1")
        first.commit(end)
        first.stop()
        put(channel, *numbered(10, 10))
        second = source(channel, startingOffsets=11)
        end = second.latestOffset(second.initialOffset())
        second.stop()
        third = source(channel, startingOffsets=11)
        [again] = planned(third.partitions(third.initialOffset(), end))
        third.stop()
        with pytest.raises(ss.CheckpointMismatchError, match="but it began before"):
            noted(channel, again, "run 3")


@pytest.mark.spark
def test_a_query_that_begins_at_the_latest_event_and_is_killed_in_its_first_batch_continues_from_there(
    tmp_path: Path,
) -> None:
    """When Spark plans that batch again, `latest` means the place where a later batch begins."""
    with channel_of(tmp_path / "c") as channel:
        reader = source(channel, startingOffsets="latest")
        start = reader.initialOffset()
        put(channel, *numbered(10, 5))
        end = reader.latestOffset(start)
        reader.stop()
        put(channel, *numbered(15, 2))
        reader, start = source(channel, startingOffsets="latest"), None
        for batch_id in range(3):
            [batch] = planned(reader.partitions(reader.initialOffset() if start is None else start, end))
            noted(channel, batch, "run 2", batch_id)
            put(channel, *numbered(17, 2 * (batch_id > 0)))
            start, end = end, reader.latestOffset(end)
        reader.stop()


@pytest.mark.spark
def test_of_two_sources_of_a_query_one_may_be_noted_when_its_driver_is_killed(tmp_path: Path) -> None:
    with channel_of(tmp_path / "c") as channel:
        two = [source(channel), source(channel)]
        starts = [each.initialOffset() for each in two]
        ends = [each.latestOffset(start) for each, start in zip(two, starts, strict=True)]
        [batch] = planned(two[0].partitions(starts[0], ends[0]))
        noted(channel, batch, "run 1")
        for each in two:
            each.stop()
        again = source(channel)
        [other] = planned(again.partitions(again.initialOffset(), ends[1]))
        again.stop()
        assert other is not None and [former.name for former in other.former] == [batch.group if batch else ""]
        noted(channel, other, "run 2")


@pytest.mark.spark
def test_a_channel_that_joins_a_set_has_a_first_batch_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_members, "_LOCAL_LOOK_SECONDS", 0.0)
    with channel_of(tmp_path / "orders-a") as one:
        options = StreamOptions.of({"group": "g"})
        reader = SpillableSetReader(ChannelSet([f"{tmp_path}/orders-*"]), options, struct_type(one.schema))
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert planned(reader.partitions(start, end)) == [PlannedBatch("g", 1, 10, is_first=True)]
        put(one, b"more")
        with channel_of(tmp_path / "orders-b"):
            later = reader.latestOffset(end)
            assert planned(reader.partitions(end, later)) == [
                PlannedBatch("g", 11, 11),
                PlannedBatch("g", 1, 10, is_first=True),
            ]
            reader.stop()


@pytest.mark.spark
@pytest.mark.parametrize("options", [{"group": "g"}, {}], ids=["named", "of its own"])
def test_a_query_of_a_set_that_lost_its_first_offset_is_refused_though_other_channels_have_events_now(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Its sink has a batch 0, and would skip what the other channels have."""
    with channel_of(tmp_path / "orders-a") as one, ss.Channel(tmp_path / "orders-b", minimum_required_space=0) as two:

        def begun() -> tuple[SpillableSetReader, Any, PlannedBatch | None]:
            parsed = StreamOptions.of(options)
            reader = SpillableSetReader(ChannelSet([f"{tmp_path}/orders-*"]), parsed, struct_type(one.schema))
            start = reader.initialOffset()
            end = reader.latestOffset(start)
            [batch] = planned(reader.partitions(start, end))
            return reader, end, batch

        first, end, batch = begun()
        noted(one, batch, "run 1")
        first.commit(end)
        first.stop()
        put(two, *numbered(10, 5))
        second, _, batch = begun()
        with pytest.raises(ss.CheckpointMismatchError, match="but it began before"):
            noted(two, batch, "run 2")
        second.stop()


# ── on Spark ────────────────────────────────────────────────────────────────────────────────────


def run(spark: SparkSession, path: str, checkpoint: Path, target: str, **options: object) -> None:
    events = spark.readStream.format("spillable").options(**options).load(path)
    writer = events.writeStream.format("spillable").option("checkpointLocation", str(checkpoint))
    drain(lambda: writer.trigger(availableNow=True).start(target))  # until the take is committed, before Spark 4.2 too


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("options", [{"group": "g"}, {}], ids=["named", "of its own"])
@pytest.mark.parametrize("place", ["{}", "object+file://{}"], ids=["disk", "store"])
def test_a_query_whose_first_offset_a_power_cut_took_is_refused(
    spark: SparkSession, tmp_path: Path, place: str, options: dict[str, str]
) -> None:
    """Spark keeps the query's ID, and its sink skips the rows of a second batch 0: they were lost without a word."""
    origin, target = (place.format(tmp_path / name) for name in ("source", "target"))
    with ss.Channel(origin) as channel:
        put(channel, *numbered(0, 10))
    run(spark, origin, tmp_path / "checkpoint", target, **options)
    for directory in ("offsets", "commits"):
        shutil.rmtree(tmp_path / "checkpoint" / directory)
    with ss.Channel(origin) as channel:
        put(channel, *numbered(10, 10))
    for _ in range(2):
        with pytest.raises(PySparkException, match=r"the events 11 to 20; but it began before"):
            run(spark, origin, tmp_path / "checkpoint", target, **options)
    behind = {} if options else {"startingOffsets": "11"}
    run(spark, origin, tmp_path / "another", target, **options, **behind)
    with ss.Channel(target) as channel:
        assert peek(channel, 30) == numbered(0, 20)
