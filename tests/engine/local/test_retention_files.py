"""A log that keeps events begins a new file in time, so that one can always go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.retention_files import RetentionFiles
from spillable_stream.errors import StorageError
from tests.support.clocks import by_hand
from tests.support.events import put, take

Open = Callable[..., Channel]

HOUR_MS = 3_600_000
MIB = 1 << 20


def count_files(channel: Channel) -> int:
    engine = channel.engine()
    return len(engine.layout.log_files(engine.fs))  # type: ignore[attr-defined]


def files_of(channel: Channel) -> RetentionFiles:
    engine = channel.engine()
    return RetentionFiles(engine.log, engine.follower, engine.appender)  # type: ignore[arg-type]


def test_a_slow_channel_begins_a_file_at_an_eighth_of_the_time(open_channel: Open) -> None:
    channel = open_channel(retention_ms=8 * HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, b"1")
    retention.look()
    assert count_files(channel) == 1
    clocks.pass_by(HOUR_MS + 1000)
    retention.look()
    assert count_files(channel) == 2
    retention.look()
    assert count_files(channel) == 2


def test_events_that_were_old_when_they_moved_from_memory_begin_no_file_each(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_ms=8 * HOUR_MS, memory_capacity=1000, byte_capacity=8 * MIB)
    retention, clocks = by_hand(channel, monkeypatch)
    for _ in range(30):
        put(channel, b"1")
        clocks.pass_by(1000)
    clocks.pass_by(2 * HOUR_MS)
    for _ in range(30):
        take(channel, 1)
        assert channel.engine().moving.move_taken()
        retention.look()
        clocks.pass_by(1000)
    assert count_files(channel) <= 2
    clocks.pass_by(HOUR_MS)
    retention.look()
    assert count_files(channel) <= 3


def test_a_file_without_events_is_not_followed_by_another(open_channel: Open) -> None:
    channel = open_channel(retention_ms=8 * HOUR_MS)
    _, clocks = by_hand(channel)
    files = files_of(channel)
    for _ in range(5):
        clocks.pass_by(8 * HOUR_MS)
        files.begin_if_old(clocks.wall_us)
    assert count_files(channel) == 1


def test_a_log_whose_events_do_not_leave_by_age_begins_no_file_for_it(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    _, clocks = by_hand(channel)
    put(channel, b"1")
    clocks.pass_by(1000 * HOUR_MS)
    files_of(channel).begin_if_old(clocks.wall_us)
    assert count_files(channel) == 1


def test_of_two_handles_that_find_a_file_old_one_begins_the_next(open_channel: Open) -> None:
    channel, other = open_channel(retention_ms=8 * HOUR_MS), open_channel()
    _, clocks = by_hand(channel)
    by_hand(other)
    put(channel, b"1")
    clocks.pass_by(HOUR_MS + 1000)
    for handle in (channel, other, channel):
        files_of(handle).begin_if_old(clocks.wall_us)
    assert count_files(channel) == 2


def test_a_file_that_could_not_be_begun_is_begun_at_the_next_look(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_ms=8 * HOUR_MS)
    _, clocks = by_hand(channel)
    files = files_of(channel)
    put(channel, b"1")
    clocks.pass_by(HOUR_MS + 1000)

    def refuse(*_: object) -> None:
        raise StorageError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(channel.engine().log.tiers.disk, "roll", refuse)  # type: ignore[attr-defined]
        with pytest.raises(StorageError):
            files.begin_if_old(clocks.wall_us)
    files.begin_if_old(clocks.wall_us)
    assert count_files(channel) == 2
