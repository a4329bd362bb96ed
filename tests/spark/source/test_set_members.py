"""Which channels a query of a set reads: they join, are created, and close together."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.errors import ChannelClosedError, NotAChannelError, OptionError, SchemaError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.side_by_side import MOST_SIDE_BY_SIDE
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_members import Member, SetMembers
from spillable_stream.spark.source.set_reader import SpillableSetReader
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import put
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


def test_a_channel_that_appears_joins_from_its_beginning_whatever_the_query_began_with(
    open_at: Open, source: Source
) -> None:
    put(open_at("orders-a"), b"before")
    reader = source(starting_offsets="latest")
    at, found = drain(reader)
    assert found == []
    put(open_at("orders-b"), *events("b", 0, 3))
    put(open_at("orders-a"), b"a1")
    at, found = drain(reader, at)
    assert by_channel(found) == {"a": ["a1"], "b": names("b", 3)}
    open_at("orders-c")  # without events it is in no offset yet
    assert reader.latestOffset(at) == at
    put(open_at("orders-c"), b"c0")
    assert drain(reader, at)[1] == [["c0"]]


def test_a_channel_that_appeared_while_the_query_was_stopped_joins_when_it_is_back(
    open_at: Open, source: Source
) -> None:
    put(open_at("orders-a"), b"a0")
    reader = source(starting_offsets="latest", group="g")
    at, _ = drain(reader)
    reader.stop()
    put(open_at("orders-b"), *events("b", 0, 2))
    reader = source(starting_offsets="latest", group="g")
    end = reader.latestOffset(at)
    assert bodies(reader, at, end) == ["b0", "b1"]
    reader.stop()  # the batch is not committed: it is planned again, and only its end knows where the channel began
    again = source(starting_offsets="latest", group="g")
    assert bodies(again, at, end) == ["b0", "b1"]
    again.commit(end)
    assert drain(again, end)[1] == []


def of_three(open_at: Open, source: Source) -> SpillableSetReader:
    """Return what has read a set of three channels."""
    for letter in "abc":
        put(open_at(f"orders-{letter}"), *events(letter, 0, 1))
    reader = source()
    drain(reader)
    return reader


def test_a_set_closes_its_channels_at_the_same_time(
    open_at: Open, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, the last ones keep their groups from the query's next worker for too long."""
    reader = of_three(open_at, source)
    together = threading.Barrier(3, timeout=10)
    stop = SpillableStreamReader.stop

    def meet(member: SpillableStreamReader) -> None:
        together.wait()
        stop(member)

    monkeypatch.setattr(SpillableStreamReader, "stop", meet)
    reader.stop()
    assert reader._members == {}


def test_a_channel_that_does_not_close_keeps_no_other_of_its_set_open(
    open_at: Open, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = of_three(open_at, source)
    stop, stopped = SpillableStreamReader.stop, list[str]()

    def fail(member: SpillableStreamReader) -> None:
        stop(member)
        stopped.append(member._path[-1])
        if member._path.endswith("a"):
            raise StorageError("no answer")

    monkeypatch.setattr(SpillableStreamReader, "stop", fail)
    with pytest.raises(StorageError, match="no answer"):
        reader.stop()
    assert sorted(stopped) == ["a", "b", "c"]


class Leaving:
    """A reader of one of many channels, which notes what it is told.

    Args:
        number: its number.
        told: gets what all of them are told.
        together: all that are told at the same time to give their groups up.
    """

    def __init__(self, number: int, told: list[str], together: threading.Barrier) -> None:
        self._number, self._told, self._together = number, told, together

    def give_group_up(self) -> None:
        self._together.wait()
        self._told.append("give up")
        if self._number == 0:
            raise StorageError("no answer")
        raise ChannelClosedError("it was removed")

    def stop(self) -> None:
        self._told.append("stop")


def test_a_set_of_many_channels_gives_all_groups_up_before_it_closes_any() -> None:
    """Spark kills its process soon. In a store a group that it still owned keeps the query's next source waiting."""
    told, many = list[str](), MOST_SIDE_BY_SIDE + 1
    together = threading.Barrier(many, timeout=60)
    members = SetMembers(ChannelSet(["/orders-*"]), StreamOptions.of(), struct_type(EVENT_SCHEMA), "")
    for number in range(many):
        leaving = cast(SpillableStreamReader, Leaving(number, told, together))
        members._members[f"{number}"] = Member("", leaving, joins=False)
    with pytest.raises(StorageError, match="no answer"):
        members.drop(list(members))
    assert told == ["give up"] * many + ["stop"] * many


def test_named_channels_are_read_by_path_and_created_where_the_options_say_so(open_at: Open, source: Source) -> None:
    put(open_at("b"), b"b0")
    with pytest.raises(NotAChannelError, match=r"/a\b"):
        source("b", "a").initialOffset()
    reader = source("b", "a", create_if_missing=True)
    at, found = drain(reader)
    assert found == [["b0"]]
    put(open_at("a"), b"a0")
    put(open_at("b"), b"b1")
    assert drain(reader, at)[1] == [["a0", "b1"]]


def test_a_pattern_that_fits_nothing_says_so_and_proposes_no_option_that_creates_no_channel_for_it(
    open_at: Open, source: Source
) -> None:
    pattern = f"{open_at.root}/orders-*"  # type: ignore[attr-defined]
    none = r"no channel fits .*/orders-\*\. Start what puts to one first$"
    for options in ({}, {"createIfMissing": "true"}):
        with pytest.raises(NotAChannelError, match=none):
            source(**options).initialOffset()
        with pytest.raises(NotAChannelError, match=none):
            SpillableDataSource({"path": pattern, **options}).schema()


@pytest.mark.parametrize("order", ["ac", "ca"])
def test_channels_of_a_set_that_a_stream_creates_have_the_columns_of_one_that_is_there(
    open_at: Open, order: str
) -> None:
    """Spark asks for the columns first: a channel of events beside it would be refused, now and ever after."""
    columns = pa.schema({"n": pa.int64()})
    open_at("a", schema=columns)
    path = ",".join(f"{open_at.root}/{name}" for name in order)  # type: ignore[attr-defined]
    options = {"path": path, "createIfMissing": "true"}
    schema = SpillableDataSource(options).schema()
    assert schema == struct_type(columns)
    SpillableDataSource(options).streamReader(schema).initialOffset()
    assert open_at("c").schema == columns


@pytest.mark.parametrize("order", ["ac", "ca"])
def test_no_channel_of_a_set_is_created_for_columns_that_one_that_is_there_does_not_have(
    open_at: Open, order: str
) -> None:
    open_at("a", schema=pa.schema({"n": pa.int64()}))
    root = open_at.root  # type: ignore[attr-defined]
    options = {"path": ",".join(f"{root}/{name}" for name in order), "createIfMissing": "true"}
    reader = SpillableDataSource(options).streamReader(struct_type(EVENT_SCHEMA))
    with pytest.raises(SchemaError, match="/a: the channel has no column 'headers'"):
        reader.initialOffset()
    with pytest.raises(NotAChannelError):
        open_at("c", create=False)


def test_no_channel_of_a_set_is_created_beside_a_channel_and_its_copy(tmp_path: Path) -> None:
    Channel(tmp_path / "a").close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    options = {"path": ",".join(f"{tmp_path}/{name}" for name in "cab"), "createIfMissing": "true"}
    with pytest.raises(OptionError, match="one is a copy of the other"):
        SpillableDataSource(options).streamReader(struct_type(EVENT_SCHEMA)).initialOffset()
    assert not (tmp_path / "c").exists()


def test_where_no_channel_of_a_set_is_there_they_are_created_for_events(open_at: Open) -> None:
    path = ",".join(f"{open_at.root}/{name}" for name in "ab")  # type: ignore[attr-defined]
    assert SpillableDataSource({"path": path, "createIfMissing": "true"}).schema() == struct_type(EVENT_SCHEMA)
    with pytest.raises(NotAChannelError, match=r"/a\b"):
        SpillableDataSource({"path": path}).schema()


def test_a_channel_with_other_columns_is_named(open_at: Open, source: Source) -> None:
    columns = pa.schema({"n": pa.int64()})
    open_at("orders-a", schema=columns)
    open_at("orders-b", schema=pa.schema({"m": pa.int64()}))
    says = r"/orders-b: the channel has no column 'n'; .* of a set have to have the columns of the read"
    with pytest.raises(SchemaError, match=says):
        source(schema=columns).initialOffset()
    path = ",".join(f"{open_at.root}/orders-{letter}" for letter in "ab")  # type: ignore[attr-defined]
    with pytest.raises(SchemaError, match=says):
        SpillableDataSource({"path": path}).reader(struct_type(columns)).partitions()
