"""How memory is moved to disk and closed: what is there then, and what may happen meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.channel.open_channel import OpenChannel
from spillable_stream.engine.local.leaving import Leaving
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import ChannelClosedError, MemoryLossWarning, StorageError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import Tier
from spillable_stream.log.event_reader import EventReader, ReadBatch
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.log.wal import WriteAheadLog
from tests.support.damage import kill, lose_memory, memory_of
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.two_tiers import switching

Open = Callable[..., Channel]


def test_a_commit_that_is_under_way_when_the_channel_is_closed_is_moved_or_refused(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    engine, flushed, outcome = channel.engine(), [0], []
    real = Leaving.flush

    def overtaken(leaving: Leaving) -> int:
        moved = real(leaving)
        flushed[0] += 1
        if flushed[0] == 1:  # as a commit would that is under way in spite of all
            engine.active_calls.ended = False
            put(channel, b"2")
            engine.active_calls.ended = True
            with pytest.raises(ChannelClosedError):
                put(channel, b"3")
            outcome.append("refused")
        return moved

    monkeypatch.setattr(Leaving, "flush", overtaken)
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


def test_a_take_is_committed_though_its_position_cannot_be_noted(path: Path) -> None:
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


def test_a_file_of_memory_that_was_being_created_is_not_the_newest(
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


def test_the_last_close_moves_memory_to_disk_in_order_and_removes_it(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    other = open_channel()
    directory = memory_of(path)
    channel.close()
    assert directory.exists()
    other.close()
    assert not directory.exists() and not os.path.lexists(path / "memory")
    again = open_channel()
    assert (again.stats().drain_order, take(again)) == ([-115], bodies)


def test_moved_events_keep_their_ids_transactions_and_times(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    switching(channel)

    def seen() -> list[tuple[int | None, int | None, object]]:
        with channel.take_transaction() as tx:
            found = [(e.write_order_id, e.transaction_id, e.timestamp) for e in tx.take_many(10_000)]
            tx.rollback()
            return found

    before = seen()
    assert channel.flush() == 15
    assert channel.stats().drain_order == [-115]
    assert seen() == before


def test_without_flush_on_close_memory_stays_until_somebody_opens_the_channel(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=10, flush_on_close=False) as channel:
        put(channel, b"x")
    assert memory_of(path).exists()
    assert open_channel().stats().drain_order == [1]


def test_a_handle_that_saw_neither_the_puts_nor_the_move_sees_the_move_last(open_channel: Open) -> None:
    """A moved event has its transaction's ID in both logs, and both commits are read together."""
    behind = open_channel(memory_capacity=10)
    channel = open_channel()
    put(channel, *numbered(0, 4))
    channel.flush()
    assert (behind.stats().drain_order, peek(behind)) == ([-4], numbered(0, 4))


def test_a_flush_while_a_take_reads_moves_the_reader_along(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=64 << 20)
    for i in range(40):
        put(channel, *[bytes([i]) * 100_000] * 5)
    consumer = channel.consumer("default")
    ranges = consumer.claim(200)
    real, extents = EventReader.read, [0]

    def read(self: EventReader, extent: Extent) -> Iterator[ReadBatch]:
        for found in real(self, extent):
            extents[0] += 1
            if extents[0] == 3:
                open_channel().flush()
            yield found

    monkeypatch.setattr(EventReader, "read", read)
    found = [b[0] for read in consumer.read(ranges) for b in read.batch.column("body").to_pylist()]
    assert extents[0] > 3 and channel.stats().memory.events == 0
    assert found == [i for i in range(40) for _ in range(5)]


def test_a_moved_tier_survives_the_loss_of_the_head(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=19, overflow_timeout=0) as channel:
        bodies = switching(channel)
        take(channel, 10)
    (path / "head").unlink()
    channel = open_channel()
    assert (channel.stats().drain_order, take(channel)) == ([-105], bodies[10:])


def test_a_take_prepared_in_memory_and_committed_on_disk_never_comes_back(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    ranges = consumer.claim(5)
    tx = consumer.prepare(ranges)
    channel.flush()
    consumer.commit(ranges, tx)
    put(channel, b"in memory")
    (path / "groups" / "g.position").unlink()
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert peek(channel, 10, "g") == numbered(5, 5)


def test_a_prepared_take_outlives_the_memory_tier(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=10) as channel:
        put(channel, *numbered(0, 10))
        tx = channel.consumer("g").prepare([(1, 5)])
    (path / "head").unlink()
    with open_channel() as channel:
        assert channel.consumer("g", resume=True).prepared() == {tx: [(1, 5)]}
    assert take(open_channel(), 10, "g") == numbered(0, 10)  # who does not resume rolls it back


def test_moved_events_between_others_are_found(open_channel: Open) -> None:
    """What is moved lies behind what was on disk before, whatever its IDs."""
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    assert take(channel, 24) == bodies[:24]
    channel.flush()
    put(channel, b"in memory again")
    channel.flush()
    assert take(channel) == [*bodies[24:], b"in memory again"]


def test_a_flush_that_fails_loses_nothing(path: Path) -> None:
    fs = FaultyFileSystem()
    options = {"minimum_required_space": 0, "checkpoint_on_close": False}
    channel = Channel(path, fs=fs, memory_capacity=10, **options)
    put(channel, *numbered(0, 10))
    with fs.failing(lambda call: call.name == "sync" and call.file.startswith("log-")), pytest.raises(StorageError):
        channel.close()
    with Channel(path, **options) as again:
        assert take(again) == numbered(0, 10)


def test_a_flush_of_a_closed_handle_is_refused(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, b"x")
    channel.close()
    with pytest.raises(ChannelClosedError):
        channel.flush()
