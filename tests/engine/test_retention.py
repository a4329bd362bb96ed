"""What leaves by age, by size and for want of space; what stays; in which files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.group_owners import OwnerSeen
from spillable_stream.engine.local.local_log import FILES_OF_A_LIMIT
from spillable_stream.engine.requests import Control
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.state.wall_clock import ClockReading
from tests.support.clocks import by_hand
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]

HOUR_MS = 3_600_000
MIB = 1 << 20


def kept(channel: Channel) -> tuple[int, int]:
    """Return the first kept event and the floor."""
    state = channel.engine().follow()
    return state.first_kept, state.floor


def sized(channel: Channel, count: int, size_bytes: int = 64 << 10) -> None:
    """Put and take so many events, each in a transaction of its own."""
    for _ in range(count):
        put(channel, bytes(size_bytes))
        take(channel)


def test_taken_events_stay_until_they_are_older_than_the_limit(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    clocks.pass_by(HOUR_MS - 1000)
    assert (retention.look(), kept(channel)) == (False, (1, 4))
    clocks.pass_by(2000)
    assert (retention.look(), kept(channel)) == (True, (4, 4))


def test_the_last_events_leave_in_time_though_others_take_and_seek(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel, monkeypatch)
    put(channel, *numbered(0, 3))
    clocks.pass_by(1000)
    put(channel, *numbered(3, 3))
    clocks.pass_by(HOUR_MS - 1000)
    take(channel)
    channel.checkpoint()
    assert (retention.look(), kept(channel)) == (False, (1, 7))
    clocks.pass_by(2000)
    assert (retention.look(), kept(channel)) == (True, (7, 7))


def test_events_before_a_pause_leave_in_time(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel, monkeypatch)
    put(channel, *numbered(0, 3))
    clocks.pass_by(HOUR_MS // 2)
    retention.look()  # begins a file
    put(channel, *numbered(3, 3))
    take(channel)
    clocks.pass_by(HOUR_MS // 2 + 1000)
    assert (retention.look(), kept(channel)) == (True, (4, 7))


def test_events_of_before_their_age_mattered_leave_an_hour_after_it_does(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=MIB)
    retention, clocks = by_hand(channel, monkeypatch)
    put(channel, *numbered(0, 3))
    clocks.pass_by(HOUR_MS)
    channel.engine().commit(Control(FrameType.OPTIONS, {"retention_ms": HOUR_MS}))
    clocks.pass_by(HOUR_MS - 1000)
    take(channel)
    assert (retention.look(), kept(channel)) == (False, (1, 4))
    clocks.pass_by(2000)
    assert (retention.look(), kept(channel)) == (True, (4, 4))


def test_untaken_events_never_leave_by_age_or_size(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS, retention_bytes=MIB)
    retention, clocks = by_hand(channel)
    take(channel)
    for _ in range(40):
        put(channel, bytes(64 << 10))
    clocks.pass_by(10 * HOUR_MS)
    assert not retention.look()
    assert len(take(channel)) == 40


def test_what_one_group_has_yet_to_take_stays_for_it(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 5))
    take(channel, 2, "slow")
    take(channel)
    clocks.pass_by(2 * HOUR_MS)
    retention.look()
    assert take(channel, group="slow") == numbered(2, 3)


def test_what_a_group_went_back_to_stays_for_it(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 5))
    take(channel)
    channel.consumer("default").seek(1)
    clocks.pass_by(2 * HOUR_MS)
    retention.look()
    assert take(channel) == numbered(1, 4)
    assert (retention.look(), kept(channel)) == (True, (6, 6))


def test_the_oldest_leave_when_more_than_the_limit_is_kept_and_the_limit_stays(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    retention, _ = by_hand(channel)
    sized(channel, 64)
    assert retention.look()
    size_bytes = channel.engine().state.kept().payload_bytes
    assert MIB <= size_bytes <= MIB + 2 * MIB // FILES_OF_A_LIMIT
    assert not retention.look()


def test_files_go_whole_and_the_disk_stays_flat(open_channel: Open, path: Path) -> None:
    channel = open_channel(retention_bytes=MIB)
    retention, _ = by_hand(channel)
    for _ in range(6):
        sized(channel, 32)
        retention.look()
        channel.checkpoint()
        engine = channel.engine()
        files = engine.layout.log_files(engine.fs)
        sizes = sum(engine.layout.log_file(i).stat().st_size for i in files)
        assert sizes <= 2 * MIB
        assert engine.state.first_kept > 1


def test_untaken_events_are_dropped_in_time_and_told_to_their_group(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS, retention_untaken="drop")
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 5))
    take(channel, 2)
    clocks.pass_by(HOUR_MS + 1000)
    assert retention.look()
    group = channel.engine().state.groups["default"]
    assert (list(group.removed), group.position) == ([(3, 5)], 5)
    put(channel, b"5")
    assert take(channel) == [b"5"]
    assert list(channel.engine().state.groups["default"].removed) == []


def test_untaken_events_are_dropped_by_size(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB, retention_untaken="drop")
    retention, _ = by_hand(channel)
    take(channel)
    for _ in range(64):
        put(channel, bytes(64 << 10))
    assert retention.look()
    (first, last), *others = channel.engine().state.groups["default"].removed
    assert (first, others) == (1, [])
    assert len(take(channel)) == 64 - last


def test_what_a_live_owner_is_taking_is_not_dropped_meanwhile(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS, retention_untaken="drop")
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 5))
    consumer = channel.consumer("default")
    prepared = consumer.prepare([(1, 5)])
    clocks.pass_by(2 * HOUR_MS)
    assert not retention.look()
    consumer.commit([(1, 5)], prepared)
    assert retention.look()


def test_a_take_of_events_that_were_removed_holds_no_others(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that comes back has the take of a batch in flight that was removed while nobody owned its group."""
    owner = open_channel(retention_ms=HOUR_MS, retention_untaken="drop")
    put(owner, *numbered(0, 5))
    owner.consumer("default").prepare([(1, 5)])
    owner.close()
    channel = open_channel()
    retention, clocks = by_hand(channel)
    clocks.pass_by(2 * HOUR_MS)
    assert retention.look()
    put(channel, *numbered(5, 5))
    monkeypatch.setattr(channel.engine().owners, "look", lambda group: OwnerSeen(is_alive=True, note=""))
    clocks.pass_by(2 * HOUR_MS)
    assert (retention.look(), kept(channel)) == (True, (11, 11))


def test_what_a_dead_owner_was_taking_is_dropped(open_channel: Open) -> None:
    owner = open_channel(retention_ms=HOUR_MS, retention_untaken="drop")
    put(owner, *numbered(0, 5))
    owner.consumer("default").prepare([(1, 5)])
    owner.close()
    channel = open_channel()
    retention, clocks = by_hand(channel)
    clocks.pass_by(2 * HOUR_MS)
    assert retention.look()
    assert list(channel.engine().state.groups["default"].removed) == [(1, 5)]


@pytest.mark.parametrize("hours", [-48, -1, 1, 48])
def test_a_wall_clock_that_jumps_expires_nothing(
    open_channel: Open, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    channel = open_channel(retention_ms=2 * HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    clocks.pass_by(60_000)
    retention.look()
    with caplog.at_level(logging.WARNING):
        clocks.wall_us += hours * HOUR_MS * 1000
        retention.look()
    assert "jumped" in caplog.text
    clocks.pass_by(HOUR_MS)
    retention.look()
    assert kept(channel) == (1, 4)
    clocks.pass_by(HOUR_MS + 1000)
    if hours < 0:  # the newest events may have been put after the jump, until the clock is where it was
        clocks.pass_by(-hours * HOUR_MS)
    retention.look()
    assert kept(channel) == (4, 4)


def test_a_wall_clock_that_jumps_during_a_look_expires_nothing(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, b"1")
    take(channel)
    retention.look()

    def jump_once_read() -> ClockReading:
        read = clocks()
        clocks.wall_us += 10 * HOUR_MS * 1000
        return read

    retention.read_clocks = jump_once_read
    assert (retention.look(), kept(channel)) == (False, (1, 2))


def test_a_jump_that_cannot_be_noted_is_found_again(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    retention.look()
    clocks.pass_by(1000)
    retention.look()
    clocks.wall_us += 48 * HOUR_MS * 1000

    def refuse(*_: object) -> None:
        raise StorageError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "append_alone", refuse)
        with pytest.raises(StorageError):
            retention.look()
    assert (retention.look(), kept(channel)) == (False, (1, 4))
    assert len(channel.engine().state.clock.jumps) == 1


def test_a_jump_that_another_process_saw_counts(open_channel: Open) -> None:
    channel = open_channel(retention_ms=2 * HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, b"1")
    take(channel)
    clocks.pass_by(60_000)
    retention.look()
    clocks.wall_us += 5 * HOUR_MS * 1000
    retention.look()
    channel.close()
    again = open_channel()
    other, _ = by_hand(again)
    other.read_clocks = clocks
    clocks.pass_by(HOUR_MS)
    assert not other.look()
    clocks.pass_by(HOUR_MS + 1000)
    assert other.look()


def test_a_clock_that_is_slewed_does_not_jump(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, b"1")
    for _ in range(100):
        clocks.pass_by(1000)
        clocks.wall_us += 500
        retention.look()
    assert channel.engine().state.clock.jumps == []


def test_another_boot_has_another_clock(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, b"1")
    retention.look()
    clocks.boot, clocks.since_boot_us = "00" * 16, 5
    retention.look()
    clock = channel.engine().state.clock
    assert clock.reading is not None
    assert (clock.reading.boot, clock.jumps) == ("00" * 16, [])


def test_without_retention_nothing_is_looked_at(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"1")
    take(channel)
    retention, _ = by_hand(channel)
    before = channel.engine().positions
    assert (retention.look(), channel.engine().positions) == (False, before)


def test_kept_events_go_for_space_the_oldest_first(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=64 * MIB, max_file_size=256 << 10)
    retention, _ = by_hand(channel)
    sized(channel, 32)
    first, floor = kept(channel)
    assert retention.let_go_for_space(512 << 10)
    assert first < kept(channel)[0] < floor
    while retention.let_go_for_space(512 << 10):
        pass
    assert kept(channel) == (floor, floor)


def test_untaken_events_do_not_go_for_space_though_they_may_be_dropped(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=64 * MIB, retention_untaken="drop")
    retention, _ = by_hand(channel)
    take(channel)
    put(channel, *numbered(0, 3))
    assert not retention.let_go_for_space(MIB)
    assert take(channel) == numbered(0, 3)


def test_what_is_forgotten_is_forgotten_after_the_channel_was_opened_again(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    retention, clocks = by_hand(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    clocks.pass_by(HOUR_MS + 1000)
    retention.look()
    clocks.pass_by(-HOUR_MS)
    put(channel, b"3")
    take(channel)
    channel.close()
    assert kept(open_channel()) == (4, 5)


def test_retention_that_is_turned_off_lets_everything_go_at_once(open_channel: Open) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    put(channel, *numbered(0, 3))
    take(channel)
    assert kept(channel) == (1, 4)
    other = open_channel(retention_ms=0)
    assert kept(other) == kept(channel) == (4, 4)


@pytest.mark.parametrize("options", [{"retention_ms": 999}, {"retention_bytes": MIB - 1}])
def test_a_limit_that_is_too_small_is_refused_and_changes_nothing(open_channel: Open, options: dict[str, int]) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    with pytest.raises(OptionError, match=r"must be (milliseconds|bytes), or a number with"):
        open_channel(**options)
    assert channel.options["retention_ms"] == HOUR_MS


def test_a_record_of_retention_is_durable_at_once(open_channel: Open, path: Path) -> None:
    channel = open_channel(retention_ms=HOUR_MS)
    put(channel, *numbered(0, 3))
    take(channel)
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 2}))
    before = channel.engine().layout.log_file(1).read_bytes()
    assert b"through" in before
    assert kept(channel) == (3, 4)
