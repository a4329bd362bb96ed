"""The streaming source of a set of channels, called as Spark calls it, without Spark's JVM."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql.datasource import InputPartition

from spillable_stream.errors import CheckpointMismatchError, OptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.options import SOURCE, parse_options
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.offset import OffsetJson
from spillable_stream.spark.source.read_limits import ReadAllAvailable
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import put, take
from tests.support.spark.sets import (
    Open,
    Source,
    bodies,
    by_channel,
    drain,
    events,
    names,
)

pytestmark = pytest.mark.spark


def test_every_event_of_every_channel_comes_once_and_in_its_channels_order(open_at: Open, source: Source) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    put(a, *events("a", 0, 3))
    put(b, *events("b", 0, 2))
    reader = source()
    at, found = drain(reader)
    assert found == [["a0", "a1", "a2", "b0", "b1"]]
    put(b, *events("b", 2, 2))
    put(a, *events("a", 3, 1))
    at, more = drain(reader, at)
    assert more == [["a3", "b2", "b3"]]
    assert reader.latestOffset(at) == at
    assert {p["path"][-1]: p["writeOrderId"] for p in at["channels"].values()} == {"a": 4, "b": 4}


def test_a_batch_is_planned_again_with_the_same_events_by_another_worker(open_at: Open, source: Source) -> None:
    for letter in "ab":
        put(open_at(f"orders-{letter}"), *events(letter, 0, 3))
    reader = source()
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    first = bodies(reader, start, end)
    reader.stop()
    again = source()
    assert bodies(again, start, end) == first == names("a", 3) + names("b", 3)
    put(open_at("orders-a"), b"a3")
    again.commit(end)
    assert drain(again, end)[1] == [["a3"]]


def test_the_beginning_of_a_channel_does_not_have_the_marks_of_its_first_batchs_end(
    open_at: Open, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(open_at("orders-a"), b"a0")
    begins: list[OffsetJson] = []
    plan = SpillableStreamReader.partitions

    def partitions(reader: SpillableStreamReader, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        begins.append(start)
        return plan(reader, start, end)

    monkeypatch.setattr(SpillableStreamReader, "partitions", partitions)
    reader = source()
    reader.partitions({"channels": {}}, reader.latestOffset(reader.initialOffset()))
    assert [begin["writeOrderId"] for begin in begins] == [0]
    assert not begins[0].keys() & {"recovery", "restore", "start", "made"}


def test_a_limit_counts_for_all_channels_and_each_has_its_share(open_at: Open, source: Source) -> None:
    for letter, count in (("a", 30), ("b", 5), ("c", 1)):
        put(open_at(f"orders-{letter}"), *events(letter, 0, count))
    _, found = drain(source(max_events_per_trigger=6))
    assert max(map(len, found)) == 6 and sum(map(len, found)) == 36
    assert Counter(body[0] for body in found[0]) in ({"a": 3, "b": 2, "c": 1}, {"a": 2, "b": 3, "c": 1})
    assert by_channel(found) == {"a": names("a", 30), "b": names("b", 5), "c": names("c", 1)}


def test_a_limit_below_the_number_of_channels_starves_none(open_at: Open, source: Source) -> None:
    for letter in "abc":
        put(open_at(f"orders-{letter}"), *events(letter, 0, 4))
    _, found = drain(source(max_events_per_trigger=1))
    assert [len(batch) for batch in found] == [1] * 12
    assert Counter(batch[0][0] for batch in found[:6]) == {"a": 2, "b": 2, "c": 2}


def test_without_limits_everything_comes_at_once_if_spark_wants_it(open_at: Open, source: Source) -> None:
    for letter in "ab":
        put(open_at(f"orders-{letter}"), *events(letter, 0, 5))
    reader = source(max_events_per_trigger=1)
    start = reader.initialOffset()
    assert len(bodies(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 10


def test_too_few_events_in_all_channels_together_wait(open_at: Open, source: Source) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    reader = source(min_events_per_trigger=5)
    at, _ = drain(reader)
    put(a, *events("a", 0, 2))
    put(b, *events("b", 0, 2))
    assert reader.latestOffset(at) == at
    put(b, b"b2")
    assert drain(reader, at)[1] == [["a0", "a1", "b0", "b1", "b2"]]


def test_available_now_ends_with_what_was_there_and_no_channel_joins(open_at: Open, source: Source) -> None:
    put(open_at("orders-a"), *events("a", 0, 2))
    reader = source(max_events_per_trigger=1)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(start)
    put(open_at("orders-a"), b"later")
    put(open_at("orders-b"), b"later")
    assert bodies(reader, start, first) == ["a0"]
    assert drain(reader, first)[1] == [["a1"]]


def test_available_now_has_what_appeared_while_the_query_was_stopped_from_its_beginning(
    open_at: Open, source: Source
) -> None:
    put(open_at("orders-a"), b"before")
    reader = source(starting_offsets="latest")
    at, _ = drain(reader)
    reader.stop()
    put(open_at("orders-b"), *events("b", 0, 2))
    reader = source(starting_offsets="latest")
    reader.prepareForTriggerAvailableNow()
    assert drain(reader, at)[1] == [["b0", "b1"]]


def test_groups_of_their_own_hold_back_what_the_query_has_yet_to_take(open_at: Open, source: Source) -> None:
    channels = {letter: open_at(f"orders-{letter}") for letter in "ab"}
    reader = source()
    at, _ = drain(reader)
    for letter, channel in channels.items():
        put(channel, *events(letter, 0, 3))
    end = reader.latestOffset(at)
    reader.partitions(at, end)
    assert all(channel.stats().channel_size == 3 for channel in channels.values())
    reader.commit(end)
    reader.stop()  # in a store the commit waits for another append
    assert all(channel.stats().channel_size == 0 for channel in channels.values())


def test_a_named_group_is_one_of_each_channel(open_at: Open, source: Source) -> None:
    for letter in "ab":
        with open_at(f"orders-{letter}") as channel:
            put(channel, *events(letter, 0, 3))
            assert take(channel, 1, "g") == [f"{letter}0".encode()]
    assert by_channel(drain(source(group="g"))[1]) == {"a": ["a1", "a2"], "b": ["b1", "b2"]}


def test_an_old_checkpoint_of_a_set_is_told_about_options_that_a_set_takes(open_at: Open, source: Source) -> None:
    """A set refuses startingOffsets with an ID, which a single channel is told of."""
    with open_at("orders-a") as a, open_at("orders-b") as b:
        for each in (a, b):
            each.consumer("all")
        for options, way in (
            ({}, "a startingTimestamp for all channels of the set: a sink"),
            ({"group": "g"}, "a startingTimestamp for all channels of the set and resetGroup=true, or another group: "),
        ):
            put(a, b"a0")
            put(b, b"b0")
            old = None
            for _ in range(2):
                reader = source(**options)
                end, _ = drain(reader, old)
                reader.stop()
                old = old or end
                put(a, b"a1")
            with pytest.raises(CheckpointMismatchError, match="Use a new checkpointLocation with " + way) as e:
                source(**options).latestOffset(old)
            assert "startingOffsets" not in str(e.value)


@pytest.mark.parametrize("starting", ["5", '{"writeOrderId": 5}'])
def test_an_id_of_one_channel_is_not_a_beginning_of_a_set(source: Source, starting: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets must be earliest or latest for a set of channels"):
        source(starting_offsets=starting)


def test_a_checkpoint_of_a_single_channel_is_refused(open_at: Open, source: Source) -> None:
    a = open_at("orders-a")
    with pytest.raises(CheckpointMismatchError, match=f"belongs to the channel {a.uuid} alone"):
        source().latestOffset({"channel": a.uuid, "writeOrderId": 0})


@pytest.mark.parametrize("group", [None, "g"])
def test_a_checkpoint_continues_neither_from_a_path_to_a_set_of_that_path_nor_back(
    open_at: Open, source: Source, group: str | None
) -> None:
    """As ``load("/data/orders")`` and ``load("/data/orders,")``: whichever method Spark calls first says so."""
    put(channel := open_at("orders-a"), b"1", b"2")
    options = {} if group is None else {"group": group}

    def alone() -> SpillableStreamReader:
        parsed = StreamOptions.of(parse_options(options, (SOURCE,), where="a test"))
        return SpillableStreamReader(str(channel.path), parsed, struct_type(EVENT_SCHEMA))

    for begin, resume, whose in (
        (alone, lambda: source("orders-a", **options), f"the channel {channel.uuid} alone"),
        (lambda: source("orders-a", **options), alone, "a set of channels"),
    ):
        first = begin()
        end = first.latestOffset(start := first.initialOffset())
        assert first.partitions(start, end)
        first.stop()
        again = resume()
        for call in (again.latestOffset, again.commit, lambda end, again=again: again.partitions(end, end)):
            with pytest.raises(CheckpointMismatchError, match=f"belongs to {whose}"):
                call(end)
        with pytest.raises(CheckpointMismatchError, match=f"belongs to {whose}"):
            again.partitions(again.initialOffset(), end)
        again.stop()
        if group is not None:
            channel.drop_group(group)


def test_what_is_behind_is_reported_of_each_channel_and_of_all(open_at: Open, source: Source) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    reader = source()
    drain(reader)
    put(a, *events("a", 0, 3))
    put(b, b"b0")
    found = reader.reportLatestOffset()
    assert (found["minOffsetsBehindLatest"], found["maxOffsetsBehindLatest"]) == (1, 3)
    assert found["avgOffsetsBehindLatest"] == 2.0
    assert {uuid: report["lagEvents"] for uuid, report in found["channels"].items()} == {a.uuid: 3, b.uuid: 1}
