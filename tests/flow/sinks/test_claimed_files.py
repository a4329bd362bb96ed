from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import GroupOwnedError, StorageError
from spillable_stream.flow.sinks import destinations
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.sources.base import Status
from tests.support.bucket_sinks import Bracketed, sink
from tests.support.events import numbered, put, take


def test_a_file_that_fails_after_it_has_its_name_is_removed_and_its_events_come_once(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path) -> None:
        monkeypatch.undo()
        raise StorageError(f"can't sync {directory}")

    channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=False)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"0"), Event(b"1")])
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    monkeypatch.setattr(destinations, "sync_directory", refuse)
    with pytest.raises(StorageError, match="can't sync"):
        made.close()
    made.process()
    made.close()
    assert [p.read_bytes() for p in (tmp_path / "out").glob("f.*")] == [b"[01]"]
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_the_events_of_a_file_that_failed_are_not_written_again_before_it_is_removed(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("the store does not answer")

    channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=False)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"0"), Event(b"1")])
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    with monkeypatch.context() as away:
        # It has its name, and the answer is lost.
        away.setattr(destinations, "sync_directory", refuse)
        away.setattr(destinations.LocalFiles, "remove", refuse)
        with pytest.raises(StorageError):
            made._finish(next(iter(made._open)))
        for _ in range(2):
            with pytest.raises(StorageError):
                made.process()
        if restarts:
            with pytest.raises(StorageError):
                made.close()
    if restarts:
        made.open(channel)
    while made.process() is Status.READY:
        pass
    made.close()
    assert [p.read_bytes() for p in (tmp_path / "out").glob("f.*")] == [b"[01]"]
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize("error", [StorageError("the disk is full"), pa.ArrowInvalid("the file is closed")], ids=repr)
def test_the_events_behind_a_full_file_that_cannot_be_closed_come_again_without_a_restart(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """They are in the batch that filled the file, and none of them is in another one yet."""

    def refuse(*_: object) -> bytes:
        raise error

    channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=False, roll_count=3)
    put(channel, *numbered(0, 6))
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    with monkeypatch.context() as full, pytest.raises(type(error)):
        full.setattr(Bracketed, "end", refuse)
        full.setattr(destinations.FileStream, "close", refuse)
        made.process()
    while made.process() is Status.READY:
        pass
    made.close()
    found = b"".join(p.read_bytes() for p in sorted((tmp_path / "out").glob("f.*")))
    assert bytes(sorted(found)) == b"012345[[]]"
    assert channel.stats().channel_size == 0


def test_a_sink_that_lost_its_group_gives_up_what_it_has_not_named_and_owns_the_group_again(
    open_channel: Callable[..., Channel], tmp_path: Path, path: Path
) -> None:
    channel, other, made = open_channel(), open_channel(), sink(str(tmp_path / "out" / "%{app}"), can_be_cut=False)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i, {"app": "ab"[i % 2]}) for i in range(6)])
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    (path / "groups" / "default.lock").unlink()
    assert take(other, 4) == numbered(0, 4)
    other.close()
    with pytest.raises(GroupOwnedError):
        made._finish(next(iter(made._open)))
    assert made.process() is Status.READY
    made.close()
    assert sorted(p.read_bytes() for p in (tmp_path / "out").glob("?/f.*")) == [b"[4]", b"[5]"], "the rest was taken"
    assert channel.stats().channel_size == 0


def closed_without_a_commit(made: BucketSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commit of a sink's file fail when that has its name."""

    def refuse(*_: object) -> None:
        raise StorageError("the disk of the channel is away")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="the disk of the channel"):
        patch.setattr(Consumer, "commit", refuse)
        made._finish(next(iter(made._open)))


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_events_of_a_file_whose_commit_failed_come_again_and_are_skipped(
    open_channel: Callable[..., Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_moved: bool,
    restarts: bool,
    batch_size: int,
) -> None:
    """Whoever reads the files may have moved it by then, and the takes that follow have other events."""
    channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=False)
    put(channel, *numbered(0, 2))
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    closed_without_a_commit(made, monkeypatch)
    if is_moved:
        (tmp_path / "out" / "read").mkdir()
        for file in (tmp_path / "out").glob("f.*"):
            file.rename(tmp_path / "out" / "read" / file.name)
    put(channel, *numbered(2, 2))
    if restarts:
        made._notes.close()  # as a kill does
        channel.close()
        channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=False)
        made.name = "a1.k1"
        made.open(channel)
    made.batch_size = batch_size
    while made.process() is Status.READY:
        pass
    made.close()
    assert sorted(p.read_bytes() for p in (tmp_path / "out").rglob("f.*")) == [b"[01]", b"[23]"]
    assert channel.stats().channel_size == 0


def test_files_that_cannot_be_closed_at_the_end_are_not_left_to_whoever_forgets_their_streams(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("the disk of the channel is away")

    channel, made = open_channel(), sink(str(tmp_path / "out" / "%{app}"), can_be_cut=False)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i, {"app": "ab"[i % 2]}) for i in range(2)])
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    streams = [file.stream for file in made._open]
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="the disk of the channel"):
        patch.setattr(Consumer, "require_owner", refuse)
        made.close()
    assert all(stream is not None and stream.raw.closed for stream in streams)
    assert list((tmp_path / "out").rglob("f.*")) == []
    made.open(channel)
    made.process()
    made.close()
    assert sorted(p.read_bytes() for p in (tmp_path / "out").rglob("f.*")) == [b"[0]", b"[1]"]


def test_the_events_of_a_file_that_was_interrupted_when_it_had_its_name_are_skipped_where_the_group_is_owned_anew(
    open_channel: Callable[..., Channel], tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    channel, other, made = open_channel(), open_channel(), sink(str(tmp_path / "out"), can_be_cut=False)
    put(channel, *numbered(0, 2))
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(WrittenEvents, "add", interrupt)
        made._finish(next(iter(made._open)))
    (path / "groups" / "default.lock").unlink()
    other.consumer("default").claim(2)
    other.close()
    assert made._claimed._consumer is not None
    with pytest.raises(GroupOwnedError):
        made._claimed._consumer.require_owner()
    while made.process() is Status.READY:
        pass
    made.close()
    assert [p.read_bytes() for p in (tmp_path / "out").glob("f.*")] == [b"[01]"]
    assert channel.stats().channel_size == 0
