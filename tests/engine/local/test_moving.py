"""Taken events that are kept go from memory to disk before they are let go, in order, and never make a put wait."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from spillable_stream import Channel
from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.log.wal import WriteAheadLog
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]

MIB = 1 << 20


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel that keeps, with a small memory tier; nothing happens in the background."""
    channel = open_channel(
        retention_bytes=64 * MIB, memory_capacity=1000, byte_capacity=4 * MIB, overflow_timeout=60.0, keep_alive=60.0
    )
    channel.engine().upkeep.stop()
    return channel


def where(channel: Channel) -> tuple[int, int]:
    """Return how many events are kept in memory, and how many on disk."""
    blocks = channel.engine().follow().blocks
    return blocks.memory.kept_events, blocks.disk.kept_events


def test_taken_events_move_to_disk_and_stay_readable(channel: Channel) -> None:
    put(channel, *numbered(0, 10))
    take(channel)
    assert where(channel) == (10, 0)
    assert channel.engine().moving.move_taken()
    assert where(channel) == (0, 10)
    channel.consumer("default").seek(0)
    assert take(channel) == numbered(0, 10)


@pytest.mark.usefixtures("one_block")
def test_events_that_move_a_few_at_a_time_share_a_block(channel: Channel) -> None:
    for i in range(100):
        put(channel, *numbered(i, 1))
        take(channel)
        assert channel.engine().moving.move_taken()
    assert where(channel) == (0, 100)
    assert len(channel.engine().state.blocks.disk) < 50
    channel.consumer("default").seek(0)
    assert take(channel) == numbered(0, 100)


def test_events_taken_ahead_of_one_that_is_not_make_no_put_wait(channel: Channel) -> None:
    put(channel, b"slow")
    consumer = channel.consumer("default")
    slow = consumer.claim(1)
    for _ in range(40):
        put(channel, bytes(256 << 10))
        consumer.commit(consumer.claim(1))
    assert channel.stats().spilled_transactions == 0
    channel.engine().moving.move_taken()
    assert channel.stats().drain_order == [1]
    consumer.commit(slow)
    consumer.seek(0)
    assert len(take(channel)) == 41


def test_a_move_ends_though_others_put_and_take_meanwhile(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = channel.engine().appender
    committing = appender.committing

    def after_others() -> AbstractContextManager[None]:
        with monkeypatch.context() as others:
            others.setattr(appender, "committing", committing)
            put(channel, bytes(300 << 10))  # a block of its own
            take(channel)
        return committing()

    put(channel, bytes(300 << 10))
    take(channel)
    monkeypatch.setattr(appender, "committing", after_others)
    assert channel.engine().moving.move_taken() == 1
    assert where(channel) == (1, 1)


def test_untaken_events_stay_in_memory(channel: Channel) -> None:
    put(channel, bytes(300 << 10))  # a block of its own
    put(channel, *numbered(0, 2))
    take(channel, 1)
    assert channel.engine().moving.move_taken()
    assert not channel.engine().moving.move_taken()
    assert channel.stats().drain_order == [2]


def test_without_retention_nothing_is_moved(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 2))
    take(channel)
    assert not channel.engine().moving.move_taken()
    assert len(channel.engine().state.blocks) == 0


def test_a_put_that_finds_memory_full_of_kept_events_moves_them_and_does_not_wait(channel: Channel) -> None:
    for _ in range(40):
        put(channel, bytes(256 << 10))
        take(channel)
    assert channel.stats().spilled_transactions == 0
    in_memory, on_disk = where(channel)
    assert (in_memory + on_disk, on_disk > 0) == (40, True)


def test_kept_events_that_the_disk_refuses_leave_rather_than_make_a_put_wait(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(channel, bytes(256 << 10))
    real = WriteAheadLog.append

    def append(self: WriteAheadLog, at, entries, *args):  # type: ignore[no-untyped-def]
        if self.tier is Tier.DISK and len(entries) > 2:
            raise StorageError("no space") from OSError(errno.ENOSPC, "no space")
        return real(self, at, entries, *args)

    monkeypatch.setattr(WriteAheadLog, "append", append)
    for _ in range(40):
        take(channel)
        put(channel, bytes(256 << 10))
    state = channel.engine().state
    assert state.first_kept > 1
    assert "kept no longer" in caplog.text
    assert channel.stats().spilled_transactions == 0


def test_a_move_has_as_many_blocks_as_one_append_may_have(channel: Channel) -> None:
    for _ in range(3):
        put(channel, bytes(64 << 10))
    blocks = list(channel.engine().state.blocks.memory)
    first_of = channel.engine().moving._first_of
    assert first_of(blocks) == blocks
    blocks[0].payload_bytes = 64 * MIB
    assert first_of(blocks) == blocks[:1]
    assert first_of([]) == []


def test_a_late_move_fills_no_file_beyond_what_retention_lets_go_at_once(open_channel: Open) -> None:
    """Upkeep may be held up while gigabytes wait in memory: they still go to files of an eighth of the limit."""
    channel = open_channel(retention_bytes=8 * MIB, memory_capacity=1000, byte_capacity=64 * MIB, overflow_timeout=60.0)
    channel.engine().upkeep.stop()
    for _ in range(40):
        put(channel, bytes(256 << 10))
        take(channel)
    channel.engine().upkeep.look()
    kept = channel.engine().follow().kept()
    assert 8 * MIB <= kept.payload_bytes <= 9 * MIB


def test_a_close_moves_kept_events_too(channel: Channel, open_channel: Open) -> None:
    put(channel, *numbered(0, 10))
    take(channel)
    channel.close()
    again = open_channel()
    again.consumer("default").seek(0)
    assert take(again) == numbered(0, 10)
