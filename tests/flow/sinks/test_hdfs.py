"""The HDFS sink: directories, names and ends of its files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sinks import bucket_files, bucket_sink, claimed_files, naming
from spillable_stream.flow.sinks.hdfs import Hdfs
from tests.support.hdfs_sinks import KINDS, NO_ROLLS, drain, files, lines, opened, put
from tests.support.one_module import replace_in


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel is not below `tmp_path`, which has the files of the sink."""
    return tmp_path_factory.mktemp("channel") / "channel"


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    return open_channel()


def test_events_go_to_the_directory_of_their_time_and_headers(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1", "2", timestamp="1700000000000", app="x")
    put(channel, "3", timestamp="1700003600000", app="../y")
    sink = opened(
        channel, tmp_path / "%{app}" / "%Y-%m-%d" / "%H", time_zone="UTC", file_prefix="log-%{app}", **NO_ROLLS
    )
    drain(sink)
    assert all(name.endswith(".tmp") for name in files(tmp_path))
    sink.close()
    assert files(tmp_path) == {
        "_/y/2023-11-14/23/log-_/y.1001": "3\n",
        "x/2023-11-14/22/log-x.1000": "1\n2\n",
    }


def test_times_are_rounded_down(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1", timestamp="1700000999000")
    sink = opened(
        channel, tmp_path / "%H%M", time_zone="UTC", round=True, round_value=10, round_unit="minute", **NO_ROLLS
    )
    drain(sink)
    sink.close()
    assert files(tmp_path) == {"2220/FlumeData.1000": "1\n"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_full_before_the_event_that_would_follow_the_limit(
    channel: Channel, tmp_path: Path, kind: dict[str, Any]
) -> None:
    put(channel, *map(str, range(25)))
    sink = opened(channel, tmp_path, **{**NO_ROLLS, "roll_count": 10, "batch_size": 7, **kind})
    drain(sink)
    sink.close()
    assert [len(text.split()) for text in files(tmp_path).values()] == [10, 10, 5]
    put(channel, *("xxxx" for _ in range(7)))
    sink = opened(channel, tmp_path / "size", **{**NO_ROLLS, "roll_size": 10, **kind})
    drain(sink)
    sink.close()
    assert [len(text.split()) for text in files(tmp_path / "size").values()] == [3, 3, 1]
    assert channel.stats().groups["default"].lag == 0


@pytest.mark.parametrize("kind", KINDS)
def test_files_end_with_the_time_and_when_they_are_idle(
    channel: Channel, tmp_path: Path, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 100.0
    for module in (bucket_files, bucket_sink, claimed_files):
        replace_in(monkeypatch, module, "time", monotonic=lambda: seconds)
    for options in ({"roll_interval": 30}, {"idle_timeout": 30}):
        out = tmp_path / str(options)
        sink = opened(channel, out, **{**NO_ROLLS, **options, **kind})
        put(channel, "1")
        drain(sink)
        assert sink.due_seconds() == 30
        assert not [n for n in files(out) if not n.endswith(".tmp")] if kind["file_type"] == "DataStream" else True
        seconds += 30
        drain(sink)
        assert lines(out) == ["1"] and not list(out.glob("*.tmp"))
        assert sink.due_seconds() == float("inf")


def test_names_have_the_parts_that_options_say(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1")
    sink = opened(channel, tmp_path, file_suffix=".log", in_use_prefix="_", in_use_suffix=".open", **NO_ROLLS)
    drain(sink)
    assert list(files(tmp_path)) == ["_FlumeData.1000.log.open"]
    sink.close()
    assert list(files(tmp_path)) == ["FlumeData.1000.log"]
    put(channel, "2")
    sink = opened(channel, tmp_path, empty_in_use_suffix=True, **NO_ROLLS)
    drain(sink)
    assert "FlumeData.1000" in files(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_without_a_time_is_named_or_goes_to_the_dead_letters(
    channel: Channel, tmp_path: Path, kind: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    put(channel, "timed", timestamp="1700000000000")
    put(channel, "untimed")
    sink = opened(channel, tmp_path / "out" / "%Y", **{**NO_ROLLS, **kind})
    for _ in range(2):
        with pytest.raises(StorageError, match="no header timestamp"):
            sink.process()
    assert caplog.text.count("the event 2 can't be written") == 1
    assert "deadLetter" in caplog.text
    assert sink.trouble
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        sink.dead_letter = dead
        drain(sink)
        sink.close()
        with dead.take_transaction() as tx:
            letter = tx.take()
    assert isinstance(letter, Event)
    assert letter.body == b"untimed"
    assert letter.headers["deadletter.id"] == "2" and letter.headers["deadletter.component"] == "a1.k1"
    assert lines(tmp_path / "out") == ["timed"]
    assert not sink.trouble


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_whose_header_can_not_name_a_file_does_not_hold_up_the_others(
    channel: Channel, tmp_path: Path, kind: dict[str, Any]
) -> None:
    put(channel, "nul", app="a\0b")
    put(channel, "long", app="x" * 300)
    put(channel, "file", app="file/below")
    put(channel, "short", app="a")
    sink = opened(channel, tmp_path / "out" / "%{app}", **{**NO_ROLLS, **kind})
    (tmp_path / "out" / "file").touch()
    with pytest.raises(StorageError, match="make a path that no file can have"):
        sink.process()
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        sink.dead_letter = dead
        drain(sink)
        sink.close()
        with dead.take_transaction() as tx:
            letters = tx.take_many(3)
    assert [letter.body for letter in letters] == [b"long", b"file"]
    (tmp_path / "out" / "file").unlink()
    assert {path.partition("/")[0]: text for path, text in files(tmp_path / "out").items()} == {
        "a_b": "nul\n",
        "a": "short\n",
    }
    assert channel.stats().channel_size == 0


def test_files_that_a_name_cannot_be_given_to_are_named_later(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(channel, "1")
    sink = opened(channel, tmp_path, **NO_ROLLS, retry_interval=0)
    drain(sink)

    def fails(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        (file,) = sink._open
        sink._open.forget(file)
        sink._naming.name(file)
        sink.process()
        assert "1 closed file can't get a final name yet" in sink.trouble and "busy" in sink.trouble
    assert list(files(tmp_path)) == ["FlumeData.1000.tmp"]
    assert sink.due_seconds() == 0
    sink.process()
    assert list(files(tmp_path)) == ["FlumeData.1000"]
    assert sink.trouble == ""


def test_no_event_is_written_while_too_many_files_have_no_name_and_all_are_when_the_disk_is_back(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "_MOST_UNNAMED", 2)
    put(channel, *map(str, range(5)))
    sink = opened(channel, tmp_path, **{**NO_ROLLS, "roll_count": 1, "batch_size": 1}, retry_interval=0)

    def fails(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        for _ in range(3):
            sink.process()
        for _ in range(2):
            with pytest.raises(StorageError, match="2 closed files can't get a final name yet"):
                sink.process()
        assert channel.stats().channel_size == 2
    drain(sink)
    sink.close()
    assert sorted(files(tmp_path).values()) == [f"{i}\n" for i in range(5)]
    assert not [name for name in files(tmp_path) if name.endswith(".tmp")]


def test_no_more_files_are_open_than_it_may_have(channel: Channel, tmp_path: Path) -> None:
    for i in range(5):
        put(channel, "x", a=str(i))
    sink = opened(channel, tmp_path / "%{a}", max_open_files=2, **NO_ROLLS)
    drain(sink)
    assert len(list(tmp_path.rglob("*.tmp"))) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"file_type": "X"},
        {"file_type": "CompressedStream"},
        {"codec": "lzo"},
        {"file_type": "DataStream", "codec": "gzip"},
        {"time_zone": "Mars"},
        {"round": True, "round_unit": "day"},
        {"serializer": "none.such"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Hdfs("/out", **{"file_type": "DataStream", **options})


def test_a_sequence_file_has_the_events_times_as_keys(channel: Channel, tmp_path: Path) -> None:
    put(channel, "one", timestamp="7")
    put(channel, "two")
    sink = opened(channel, tmp_path, file_type="SequenceFile", **NO_ROLLS)
    drain(sink)
    sink.close()
    data = (tmp_path / "FlumeData.1000").read_bytes()
    assert data.startswith(b"SEQ\x06")
    assert (7).to_bytes(8, "big") + (3).to_bytes(4, "big") + b"one" in data
    assert (1000).to_bytes(8, "big") + (3).to_bytes(4, "big") + b"two" in data


@pytest.mark.parametrize("kind", KINDS)
def test_two_sinks_of_one_directory_never_replace_each_others_files(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: dict[str, Any]
) -> None:
    """They begin in the same millisecond, and call their files in use otherwise."""
    channel = open_channel()
    put(channel, "1", "2")
    sinks = []
    for name, suffix in (("a1.k1", ".tmp"), ("a1.k2", ".part")):
        sink = Hdfs(str(tmp_path), in_use_suffix=suffix, batch_size=1, now=lambda: 1.0, **{**NO_ROLLS, **kind})
        sink.name = name
        sink.open(channel)
        sink.process()
        sinks.append(sink)
    for sink in sinks:
        sink.close()
    assert sorted(lines(tmp_path)) == ["1", "2"]


def test_a_prefix_that_leaves_no_room_but_for_the_rest_of_the_name_is_written(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1", app="x" * 246)
    sink = opened(channel, tmp_path, file_prefix="%{app}", **NO_ROLLS)
    drain(sink)
    assert files(tmp_path) == {f"{'x' * 246}.1000.tmp": "1\n"}
    sink.close()
