"""The streaming source of a set of channels, called as Spark calls it, without Spark's JVM."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.errors import (
    CheckpointMismatchError,
    DataLossError,
    NotAChannelError,
    OptionError,
    SchemaError,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.options import SOURCE, parse_options
from spillable_stream.spark import idle_polls, set_reader
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.read_limits import ReadAllAvailable
from spillable_stream.spark.read_options import StreamOptions
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.set_reader import SpillableSetReader
from spillable_stream.spark.stream_reader import SpillableStreamReader
from tests.support.events import put, take

pytestmark = pytest.mark.spark

Json = dict[str, Any]
Open = Callable[..., ss.Channel]
Source = Callable[..., SpillableSetReader]


@pytest.fixture(params=["directory", "store"])
def open_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a channel by its name, in a directory or in a store in one."""
    with ExitStack() as stack:

        def open_at(name: str, **options: Any) -> ss.Channel:
            given = {"minimum_required_space": 0} if request.param == "directory" else {}
            return stack.enter_context(ss.Channel(f"{place(request.param, tmp_path)}/{name}", **given, **options))

        open_at.root = place(request.param, tmp_path)  # type: ignore[attr-defined]
        yield open_at


def place(kind: str, path: Path) -> str:
    return str(path) if kind == "directory" else f"object+file://{path}"


@pytest.fixture
def source(open_at: Open, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """Make readers of all channels that are called orders-…, or of others, which look for new ones each time."""
    for name in ("_LOCAL_LOOK_SECONDS", "_REMOTE_LOOK_SECONDS"):
        monkeypatch.setattr(set_reader, name, 0.0)
    monkeypatch.setattr(idle_polls, "_LONGEST_WAIT_SECONDS", 0.01)
    with ExitStack() as stack:

        def source(*names: str, schema: pa.Schema | None = None, **options: Any) -> SpillableSetReader:
            channels = ChannelSet([f"{open_at.root}/{name}" for name in names or ("orders-*",)])  # type: ignore[attr-defined]
            parsed = StreamOptions.of(parse_options(options, (SOURCE,), where="a test"))
            columns = struct_type(schema or EVENT_SCHEMA)
            reader = SpillableSetReader(channels, parsed, columns)
            stack.callback(reader.stop)
            return reader

        yield source


def bodies(reader: SpillableSetReader, start: Json, end: Json) -> list[str]:
    """Plan a micro-batch and return what its partitions have, as executors read it."""
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    of_task = pickle.loads(pickle.dumps(reader))
    return [row["body"].decode() for p in partitions for batch in of_task.read(p) for row in batch.to_pylist()]


def drain(reader: SpillableSetReader, start: Json | None = None, most: int = 50) -> tuple[Json, list[list[str]]]:
    """Run micro-batches until nothing is new; return where that is, and what each had."""
    start = reader.initialOffset() if start is None else start
    found = []
    while (end := json.loads(json.dumps(reader.latestOffset(start)))) != start:
        found.append(bodies(reader, start, end))
        reader.commit(end)
        start = end
        assert len(found) < most
    return start, found


def by_channel(found: list[list[str]]) -> dict[str, list[str]]:
    """Return what came of each channel, in order; bodies begin with their channel's letter."""
    sorted_out: dict[str, list[str]] = {}
    for body in (b for batch in found for b in batch):
        sorted_out.setdefault(body[0], []).append(body)
    return sorted_out


def events(letter: str, first: int, count: int) -> list[bytes]:
    return [b"%s%d" % (letter.encode(), i) for i in range(first, first + count)]


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


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


def test_a_channel_that_is_gone_is_named_and_may_be_done_without(open_at: Open, source: Source, tmp_path: Path) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    put(a, b"a0")
    put(b, b"b0", b"b1")
    reader = source()
    at, _ = drain(reader)
    reader.stop()
    b.close()
    shutil.move(tmp_path / "orders-b", tmp_path / "elsewhere")
    put(a, b"a1")
    with pytest.raises(DataLossError, match=r"the channel \S+ at \S+/orders-b is gone from .* up to the event 2"):
        source().latestOffset(at)
    tolerant = source(fail_on_data_loss=False)
    at, found = drain(tolerant, at)
    assert found == [["a1"]] and len(at["channels"]) == 2
    tolerant.stop()
    shutil.move(tmp_path / "elsewhere", tmp_path / "orders-b")
    put(open_at("orders-b"), b"b2")
    assert drain(source(), at)[1] == [["b2"]]


def test_a_named_channel_that_is_gone_may_be_done_without_and_comes_back(
    open_at: Open, source: Source, tmp_path: Path
) -> None:
    for letter in "ab":
        with open_at(letter) as channel:
            put(channel, *events(letter, 0, 1))
    reader = source("a", "b")
    at, _ = drain(reader)
    reader.stop()
    shutil.move(tmp_path / "b", tmp_path / "elsewhere")
    with pytest.raises(DataLossError, match=r"the channel \S+ at \S+/b is gone from"):
        source("a", "b").latestOffset(at)
    tolerant = source("a", "b", fail_on_data_loss=False)
    assert tolerant.latestOffset(at) == at
    shutil.move(tmp_path / "elsewhere", tmp_path / "b")
    put(open_at("b"), b"b1")
    assert drain(tolerant, at)[1] == [["b1"]]


def test_a_batch_with_which_a_restored_channel_joins_is_planned_again(
    open_at: Open, source: Source, tmp_path: Path
) -> None:
    """The end of the batch alone says where it began: before the restore, of which the end is."""
    put(open_at("orders-a"), *events("a", 0, 2))
    with open_at("other") as other:
        put(other, *events("b", 0, 3))
        ss.backup(other, tmp_path / "copy")
    reader = source()
    at, _ = drain(reader)
    ss.restore(tmp_path / "copy", f"{open_at.root}/orders-b", new_identity=True)  # type: ignore[attr-defined]
    put(open_at("orders-b"), *events("b", 3, 2))
    end = reader.latestOffset(at)
    assert bodies(reader, at, end) == names("b", 5)
    reader.stop()
    again = source()
    assert bodies(again, at, end) == names("b", 5)
    assert again.latestOffset(end) == end


def test_a_query_that_has_read_what_a_restored_channel_of_the_set_has_not_is_refused(
    open_at: Open, source: Source, tmp_path: Path
) -> None:
    put(open_at("orders-a"), *events("a", 0, 2))
    with open_at("orders-b") as original:
        put(original, *events("b", 0, 3))
        ss.backup(original, tmp_path / "copy")
        put(original, *events("b", 3, 2))
        reader = source()
        at, _ = drain(reader)
        reader.stop()
    (tmp_path / "orders-b").rename(tmp_path / "gone")
    ss.restore(tmp_path / "copy", f"{open_at.root}/orders-b")  # type: ignore[attr-defined]
    put(open_at("orders-b"), *events("c", 0, 4))
    with pytest.raises(
        CheckpointMismatchError,
        match=r"orders-b up to the event 5, but .* the event 3, .* a startingTimestamp for all channels of the set: "
        r"the other channels' events since then come again, and a sink has twice what it has of them$",
    ):
        source().latestOffset(at)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_channel_that_appeared_before_the_first_batch_was_done_joins_from_its_beginning(
    open_at: Open, source: Source, group: str | None
) -> None:
    a = open_at("orders-a")
    put(a, b"before")
    reader = source(starting_offsets="latest", group=group)
    start = reader.initialOffset()
    put(a, b"a0")
    end = reader.latestOffset(start)
    reader.stop()  # the sink failed
    put(open_at("orders-b"), *events("b", 0, 4))
    again = source(starting_offsets="latest", group=group)
    again.initialOffset()
    assert bodies(again, start, end) == ["a0"]
    again.commit(end)
    assert drain(again, end)[1] == [names("b", 4)]


def test_a_batch_that_the_checkpoint_lost_is_planned_again_as_it_was(open_at: Open, source: Source) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    reader = source()
    put(a, b"a0")
    at, _ = drain(reader)
    put(a, b"a1")
    end = reader.latestOffset(at)
    assert bodies(reader, at, end) == ["a1"]
    reader.stop()
    put(b, *events("b", 0, 3))  # before a restart that has never heard of the last batch
    again = source()
    lost = again.latestOffset(at, ReadAllAvailable())
    assert lost == end and bodies(again, at, lost) == ["a1"]
    again.commit(lost)
    assert drain(again, lost)[1] == [names("b", 3)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_channel_that_comes_back_to_a_running_query_continues_where_it_was(
    open_at: Open, source: Source, tmp_path: Path, starting: str
) -> None:
    """As Spark before 4.2 asks: without the beginning."""
    with open_at("orders-b") as b:
        b.consumer("another").close()
        put(b, *events("b", 0, 2))
        put(open_at("orders-a"), b"a0")
        reader = source(starting_offsets="earliest")
        at, _ = drain(reader)
        reader.stop()
    shutil.move(tmp_path / "orders-b", tmp_path / "elsewhere")
    running = source(starting_offsets=starting, fail_on_data_loss=False)
    running.partitions(at, at)
    assert running.latestOffset() == at
    shutil.move(tmp_path / "elsewhere", tmp_path / "orders-b")
    put(open_at("orders-b"), b"b2")
    end = running.latestOffset()
    assert bodies(running, at, end) == ["b2"]


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_a_channel_that_is_removed_under_a_running_query_is_named_with_how_far_it_was_read(
    open_at: Open, source: Source, tmp_path: Path, is_tolerant: bool
) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    put(a, b"a0")
    put(b, b"b0", b"b1")
    reader = source(fail_on_data_loss=not is_tolerant)
    at, _ = drain(reader)
    b.close()
    shutil.rmtree(tmp_path / "orders-b")
    put(a, b"a1")
    if not is_tolerant:
        with pytest.raises(DataLossError, match=r"/orders-b is gone from .* up to the event 2"):
            reader.latestOffset(at)
        return
    at, found = drain(reader, at)
    assert found == [["a1"]]
    put(open_at("orders-b"), b"another channel")
    assert drain(reader, at)[1] == [["another channel"]]


@pytest.mark.parametrize("is_tolerant", [False, True])
@pytest.mark.parametrize("call", ["port", "waiting", "answer", "partitions", "commit"])
def test_a_channel_that_is_removed_at_any_call_is_done_without_where_the_options_say_so(
    open_at: Open, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, is_tolerant: bool
) -> None:
    a, b = open_at("orders-a"), open_at("orders-b")
    put(a, b"a0")
    put(b, b"b0")
    reader = source(fail_on_data_loss=not is_tolerant)
    at, _ = drain(reader)
    reader.latestOffset(at)  # idle once: the next call waits
    if call != "port":
        put(a, b"a1")
        put(b, b"b1")
    b.close()
    real = getattr(SpillableStreamReader, call)

    def removed_first(of_one: SpillableStreamReader, *arguments: Any) -> Any:
        shutil.rmtree(tmp_path / "orders-b", ignore_errors=True)
        if of_one._path.endswith("orders-b"):
            raise DataLossError("its objects are gone")  # as one of many errors says
        return real(of_one, *arguments)

    def batch() -> list[str]:
        end = reader.latestOffset(at)
        found = bodies(reader, at, end)
        reader.commit(end)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SpillableStreamReader, call, removed_first)
        if is_tolerant or call == "commit":  # which has nothing more to do there
            found = batch()
            assert [body for body in found if body[0] == "a"] == ([] if call == "port" else ["a1"])
        else:
            with pytest.raises(DataLossError, match=r"/orders-b is gone from .* up to the event"):
                batch()


def test_a_channel_that_is_removed_is_left_out_of_a_report_and_named_with_the_next_batch(
    open_at: Open, source: Source, tmp_path: Path
) -> None:
    put(open_at("orders-a"), b"a0")
    b = open_at("orders-b")
    put(b, b"b0")
    reader = source()
    at = reader.latestOffset(reader.initialOffset())
    b.close()
    shutil.rmtree(tmp_path / "orders-b")
    found = reader.reportLatestOffset()
    assert [report["path"].rpartition("/")[2] for report in found["channels"].values()] == ["orders-a"]
    with pytest.raises(DataLossError, match=r"/orders-b is gone from .* up to the event 1"):
        reader.latestOffset(at)


@pytest.mark.parametrize("others", [0, 1])
def test_a_channel_that_is_removed_as_a_query_begins_is_none_of_the_set(
    open_at: Open, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    for name in ["orders-b", "orders-a"][: 1 + others]:
        with open_at(name) as channel:
            put(channel, b"event")
    reader, real = source(), SpillableStreamReader.initialOffset

    def removed_first(of_one: SpillableStreamReader) -> Any:
        if of_one._path.endswith("orders-b"):
            shutil.rmtree(tmp_path / "orders-b")
        return real(of_one)

    monkeypatch.setattr(SpillableStreamReader, "initialOffset", removed_first)
    if others:
        assert [place["path"].rpartition("/")[2] for place in reader.initialOffset()["channels"].values()] == [
            "orders-a"
        ]
    else:
        with pytest.raises(NotAChannelError, match="no channel fits"):
            reader.initialOffset()


def test_an_error_of_a_channel_that_is_still_there_is_raised(
    open_at: Open, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(open_at("orders-a"), b"a0")
    put(open_at("orders-b"), b"b0")
    reader = source(fail_on_data_loss=False)
    at = reader.initialOffset()

    def fail(*_: object) -> None:
        raise DataLossError("events are gone")

    monkeypatch.setattr(SpillableStreamReader, "partitions", fail)
    with pytest.raises(DataLossError, match="events are gone"):
        reader.partitions(at, reader.latestOffset(at))


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


def test_named_channels_are_read_by_path_and_made_where_the_options_say_so(open_at: Open, source: Source) -> None:
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


def test_a_channel_with_other_columns_is_named(open_at: Open, source: Source) -> None:
    columns = pa.schema({"n": pa.int64()})
    open_at("orders-a", schema=columns)
    open_at("orders-b", schema=pa.schema({"m": pa.int64()}))
    with pytest.raises(SchemaError, match="/orders-b: the channel has no column 'n'"):
        source(schema=columns).initialOffset()


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
