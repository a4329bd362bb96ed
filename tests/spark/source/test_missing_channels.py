"""Channels of a set that appear, are restored, are removed and come back: each is named, and may be done without."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.errors import (
    CheckpointMismatchError,
    DataLossError,
    NotAChannelError,
    OptionError,
)
from spillable_stream.spark.source.read_limits import ReadAllAvailable
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import put
from tests.support.spark.sets import Open, Source, bodies, drain, events, names

pytestmark = pytest.mark.spark


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


def test_a_copy_of_a_channel_beside_it_is_passed_over_by_a_query_that_has_read_the_channel_and_by_no_other(
    open_at: Open, source: Source, tmp_path: Path
) -> None:
    with open_at("orders-b") as b:
        put(b, b"b0")
    reader = source()
    at, _ = drain(reader)
    shutil.copytree(tmp_path / "orders-b", tmp_path / "orders-a")
    put(open_at("orders-b"), b"b1")
    at, found = drain(reader, at)
    reader.stop()
    put(open_at("orders-b"), b"b2")
    assert [*found, *drain(source(), at)[1]] == [["b1"], ["b2"]]
    with pytest.raises(OptionError, match="one is a copy of the other"):
        source().initialOffset()


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
