"""What the disk tier knows once the memory tier is closed, and what may happen meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.channel.open_channel import OpenChannel
from spillable_stream.engine.local_engine import LocalEngine
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import ChannelClosedError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.file_names import Tier
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.log.wal import WriteAheadLog
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def test_a_commit_that_is_under_way_when_the_channel_is_closed_is_moved_or_refused(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    engine, flushed, outcome = channel.engine(), [0], []
    real = LocalEngine.flush

    def overtaken(engine: LocalEngine) -> int:
        moved = real(engine)
        flushed[0] += 1
        if flushed[0] == 1:  # as a commit would that is under way in spite of all
            engine.active_calls.ended = False
            put(channel, b"2")
            engine.active_calls.ended = True
            with pytest.raises(ChannelClosedError):
                put(channel, b"3")
            outcome.append("refused")
        return moved

    monkeypatch.setattr(LocalEngine, "flush", overtaken)
    monkeypatch.setattr(OpenChannel, "engine", lambda self, to_write="": self._engine)
    channel.close()
    monkeypatch.undo()
    assert (flushed, outcome, engine.closed) == ([2], ["refused"], True)
    again = open_channel()
    assert (again.stats().drain_order, take(again)) == ([-2], [b"1", b"2"])


def test_a_group_that_was_dropped_took_what_it_took(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=100) as channel:
        put(channel, *numbered(0, 10))
        take(channel)
        channel.drop_group("default")
    (path / "head").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        channel = open_channel()
    assert (channel.stats().channel_size, put(channel, b"x")) == (0, (11, 11))


def test_a_batch_of_a_sink_is_stored_once_though_the_memory_tier_was_closed(path: Path, open_channel: Open) -> None:
    def commit(channel: Channel) -> None:
        put(channel, b"x")
        with channel.take_transaction("source") as tx:
            table = tx.take_batch(1)
        assert table is not None
        (batch,) = table.drop_columns("write_order_id").to_batches()
        channel.engine().commit(Put(list(encode_batch(batch)), [], ("query", 5)))

    with open_channel(memory_capacity=100) as channel:
        commit(channel)
        size = channel.stats().channel_size
    (path / "head").unlink()
    channel = open_channel()
    assert channel.stats().sinks == {"query": 5}
    commit(channel)
    assert channel.stats().channel_size == size  # another plain event was put and taken, and no batch


def test_a_prepared_take_that_was_committed_is_not_prepared_any_more(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=100) as channel:
        put(channel, *numbered(0, 10))
        consumer = channel.consumer("g")
        ranges = consumer.claim(5)
        tx = consumer.prepare(ranges)
        channel.checkpoint()
        consumer.commit(ranges, tx)
    (path / "head").unlink()
    channel = open_channel()
    assert channel.consumer("g", resume=True).prepared() == {}
    assert peek(channel, 10, "g") == numbered(5, 5)


def test_a_take_is_committed_though_its_position_can_not_be_noted(path: Path) -> None:
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, memory_capacity=10, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        peek(channel, 1)
        with fs.failing(lambda call: call.file.endswith(".position")):
            assert take(channel, 4) == numbered(0, 4)
        assert take(channel) == numbered(4, 6)


def test_the_image_of_a_long_backlog_is_written_seldom(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(memory_capacity=100_000, byte_capacity=16 << 20)
    put(channel, b"x")
    image = channel.engine().log.memory_image
    monkeypatch.setattr(channel.engine().log, "memory_image", lambda at: {**image(at), "padding": bytes(1 << 20)})
    channel.checkpoint()
    log = channel.engine().log.tiers.memory
    before = log.published().file_id
    for _ in range(20):
        put(channel, bytes(50_000))
    assert log.published().file_id == before


def test_a_file_of_memory_that_was_being_made_is_not_the_newest(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 10))
    (path / "memory" / "memory-000001-000002").write_bytes(bytes(100))
    channel.engine().close()
    (path / "head").unlink()
    channel = open_channel()
    assert (channel.stats().drain_order, peek(channel)) == ([10], numbered(0, 10))


def test_a_copy_that_followed_the_link_is_a_channel_without_that_memory(
    path: Path, tmp_path: Path, open_channel: Open
) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 5))
    shutil.copytree(path, tmp_path / "copy")
    with pytest.warns(UserWarning, match="10 events are lost"):
        copy = Channel(tmp_path / "copy", minimum_required_space=0)
    with copy:
        put(copy, b"x")
        assert copy.stats().drain_order == [-5, 1]
    assert not os.path.lexists(tmp_path / "copy" / "memory")
    assert take(channel) == numbered(0, 15)


def test_a_recovery_that_is_killed_before_it_records_the_loss_forgets_nothing(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    channel = open_channel(memory_capacity=100, memory_dir=str(tmp_path / "disk"))
    put(channel, *numbered(0, 20))
    channel.engine().close()
    (file,) = (path / "memory").glob("memory-*")
    file.write_bytes(bytes(file.stat().st_size))
    with monkeypatch.context() as patch:
        patch.setattr("spillable_stream.log.head.boot_id", lambda: bytes(16))

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(WriteAheadLog, "append_unpublished", killed)
        with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="20 events are lost"):
            Channel(path, minimum_required_space=0)
        patch.undo()
        patch.setattr("spillable_stream.log.head.boot_id", lambda: bytes(16))
        with pytest.warns(UserWarning, match="20 events are lost"), Channel(path, minimum_required_space=0) as again:
            assert again.stats().lost == ((1, 20),)
            assert put(again, b"x")[0] > 20


def test_memory_that_a_writer_only_begins_to_stage_in_is_not_broken_by_a_look(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, b"x")
    errors: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            channel.engine().memory.is_being_staged_in()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            StagedFileWriter(channel.engine().fs, channel.engine().layout, memory_bytes=1 << 20).discard()
    except BaseException as e:
        errors.append(e)
    finally:
        done.set()
        looking.join()
    assert errors == []
    assert channel.engine().layout.log_files(channel.engine().fs, Tier.MEMORY)
