from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spillable_stream as ss
from spillable_stream import Channel
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import StorageError
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.sinks.base import BatchSink
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sinks.written import (
    Note,
    NotedEvents,
    WrittenEvents,
    group_token,
    ranges_of,
    uncommitted,
    without,
)
from spillable_stream.flow.sources.base import Status
from tests.support.events import put, take
from tests.support.late_channels import opened_late


@given(st.sets(st.integers(1, 60)))
def test_ids_are_told_as_ranges(ids: set[int]) -> None:
    found = ranges_of(pa.array(sorted(ids), pa.int64()))
    assert [i for first, last in found for i in range(first, last + 1)] == sorted(ids)
    assert all(b[0] > a[1] + 1 for a, b in itertools.pairwise(found))


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_ranges_are_taken_from_ranges(some: set[int], others: set[int]) -> None:
    ids, gone = (ranges_of(pa.array(sorted(values), pa.int64())) for values in (some, others))
    assert without(ids, gone) == ranges_of(pa.array(sorted(some - others), pa.int64()))


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60), min_size=1))
def test_events_that_are_written_are_left_out(written: set[int], taken: set[int]) -> None:
    events, ids = WrittenEvents(), pa.chunked_array([pa.array(sorted(taken), pa.int64())])
    events.add(ranges_of(pa.array(sorted(written), pa.int64())))
    keep = events.missing(ids)
    left = ids if keep is None else ids.filter(keep)
    assert left.to_pylist() == sorted(taken - written)
    events.remove(ranges_of(ids))
    assert bool(events) == bool(written - taken)


def test_a_note_names_what_is_written_until_it_is_committed(channel: Channel) -> None:
    written, token = WrittenEvents(), group_token(channel, "default")
    written.add([(50, 60)])  # another sink's
    noted = NotedEvents(written, channel, "default", Note(channel.uuid, ranges=((1, 3),), token=token))
    assert written.among([(1, 9)]) == [(1, 3)]
    assert noted.add([(4, 6)]) == ((1, 6),)
    assert noted.add([(8, 9)]) == ((1, 3), (8, 9))  # 4 to 6 could not be written
    written.add([(8, 9)])
    written.remove([(1, 2)])
    assert noted.note({}).ranges == ((3, 3), (8, 9))


def test_what_a_group_has_committed_is_known(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    channel.consumer("default")
    put(channel, b"1", b"2", b"3", b"4")
    token = group_token(channel, "default")
    assert uncommitted(channel, "default", [(1, 2), (4, 4)], token) == [(1, 2), (4, 4)]
    take(channel, 1)
    assert uncommitted(channel, "default", [(1, 2), (4, 4)], token) == [(2, 2), (4, 4)]
    take(channel)
    assert uncommitted(channel, "default", [(1, 2), (4, 4)], token) == []


@pytest.mark.parametrize("is_optional", [False, True])
def test_a_channel_that_cannot_say_what_is_committed_is_away_if_it_is_optional(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, is_optional: bool
) -> None:
    channel = opened_late(open_channel) if is_optional else open_channel()
    monkeypatch.setattr(channel.engine(), "snapshot", refuse)
    with pytest.raises(ChannelAwayError if is_optional else StorageError):
        uncommitted(channel, "default", [(1, 2)], "")


# ── the sinks that write notes ──────────────────────────────────────────────────────────────────


def file_roll(out: Path, now: float) -> FileRoll:
    return FileRoll(out)


def hdfs(out: Path, now: float) -> Hdfs:
    return Hdfs(str(out), file_type="DataStream", write_format="Text", now=lambda: now)


@pytest.fixture(params=[file_roll, hdfs])
def opened(request: pytest.FixtureRequest, channel: Channel, tmp_path: Path) -> Callable[..., BatchSink]:
    """Return what opens a sink at a time, in seconds since 1970, of the channel or of another one."""

    def open_sink(now: float, of: Channel = channel) -> BatchSink:
        sink: BatchSink = request.param(tmp_path / "out", now)
        sink.name = "a1.k1"
        sink.open(of)
        return sink

    return open_sink


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    channel = open_channel()
    channel.consumer("default")
    channel.consumer("another")  # so that the events stay
    put(channel, b"1", b"2")
    return channel


def drain(sink: BatchSink) -> None:
    while sink.process() is Status.READY:
        pass
    sink.close()


def lines(out: Path) -> list[bytes]:
    return [line for p in sorted(out.iterdir()) if not p.name.startswith(".") for line in p.read_bytes().splitlines()]


def test_events_that_a_seek_brings_back_are_written_though_the_note_of_the_first_time_names_them(
    channel: Channel, opened: Callable[[float], BatchSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(1.0)
    assert sink.process() is Status.READY
    channel.seek("default", 1)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="no space"):
        patch.setattr(OutputFile, "append", refuse)
        sink.process()
    drain(sink)
    assert lines(tmp_path / "out") == [b"1", b"2"] * 2


def refuse(*_: object, **__: object) -> None:
    raise StorageError("no space")


def test_a_seek_back_between_two_runs_brings_all_events_also_those_of_the_last_note(
    channel: Channel, opened: Callable[[float], BatchSink], tmp_path: Path
) -> None:
    for now in (1.0, 2.0):
        drain(opened(now))
        channel.seek("default", 1)
    assert lines(tmp_path / "out") == [b"1", b"2"] * 2


def test_a_group_that_is_dropped_and_made_again_brings_all_events_also_those_of_the_last_note(
    channel: Channel, opened: Callable[[float], BatchSink], tmp_path: Path
) -> None:
    for now in (1.0, 2.0, 3.0):
        drain(opened(now))
        channel.drop_group("default")
        if now > 1:
            channel.consumer("default")
    assert lines(tmp_path / "out") == [b"1", b"2"] * 3


def test_a_crash_amid_the_first_batch_behind_a_seek_repeats_nothing(
    channel: Channel, opened: Callable[[float], BatchSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(opened(1.0))
    channel.seek("default", 1)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="no space"):
        patch.setattr(TakeTransaction, "commit", refuse)
        opened(2.0).process()
    drain(opened(3.0))
    assert lines(tmp_path / "out") == [b"1", b"2"] * 2


@contextmanager
def restored_behind_its_note(
    channel: Channel, opened: Callable[..., BatchSink], tmp_path: Path, path: Path
) -> Iterator[Channel]:
    """Open a channel that is restored with its events 1 and 2, after a sink has written 3 and 4 too."""
    ss.backup(channel, tmp_path / "backup")
    put(channel, b"3", b"4")
    drain(opened(1.0))
    channel.close()
    path.rename(tmp_path / "lost")
    ss.restore(tmp_path / "backup", path)
    with Channel(path, minimum_required_space=0) as restored:
        yield restored


@pytest.mark.parametrize("is_open", [False, True])
def test_events_of_a_channel_that_was_restored_are_written_though_the_note_names_later_ones_by_their_ids(
    channel: Channel, opened: Callable[..., BatchSink], tmp_path: Path, path: Path, is_open: bool
) -> None:
    with restored_behind_its_note(channel, opened, tmp_path, path) as restored:
        take(restored, 2)
        sink = opened(2.0, restored) if is_open else None
        put(restored, b"another 3", b"another 4")
        drain(sink or opened(2.0, restored))
    assert lines(tmp_path / "out") == [b"1", b"2", b"3", b"4", b"another 3", b"another 4"]


def test_events_of_a_channel_that_was_restored_from_before_its_first_one_are_written_though_the_note_names_others(
    opened: Callable[..., BatchSink], tmp_path: Path
) -> None:
    def write(now: float, *bodies: bytes) -> None:
        with Channel(tmp_path / "orders", minimum_required_space=0) as channel:
            channel.consumer("default")
            put(channel, *bodies)
            drain(opened(now, channel))

    with Channel(tmp_path / "orders", minimum_required_space=0) as empty:
        ss.backup(empty, tmp_path / "backup")
    write(1.0, b"1", b"2")
    (tmp_path / "orders").rename(tmp_path / "lost")
    ss.restore(tmp_path / "backup", tmp_path / "orders")
    write(2.0, b"another 1", b"another 2")
    assert lines(tmp_path / "out") == [b"1", b"2", b"another 1", b"another 2"]


def test_events_of_a_restored_channel_are_written_though_its_group_is_created_when_all_before_have_left(
    channel: Channel, opened: Callable[..., BatchSink], tmp_path: Path, path: Path
) -> None:
    with restored_behind_its_note(channel, opened, tmp_path, path) as restored:
        restored.drop_group("default")
        take(restored, group="another")
        drain(opened(2.0, restored))
        sink = opened(3.0, restored)
        put(restored, b"another 3", b"another 4")
        drain(sink)
    assert lines(tmp_path / "out") == [b"1", b"2", b"3", b"4", b"another 3", b"another 4"]
