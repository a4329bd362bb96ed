"""The log on this host, as one handle has it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelClosedError, CorruptionError, DataLossError, LockTimeoutError
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.errors import ReadonlyChannelError
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import log_file
from tests.support.events import peek, put, take

Open = Callable[..., Channel]


def test_a_lock_that_is_held_too_long_is_named(open_channel: Open) -> None:
    channel = open_channel(lock_timeout=0.05)
    blocker = FileLock.open(FileSystem(), channel.engine().layout.lock)
    assert blocker.try_acquire()
    with pytest.raises(LockTimeoutError, match=r"has held .*/lock for more than 0\.05 s"):
        put(channel, b"x")
    blocker.close()
    put(channel, b"y")
    assert peek(channel) == [b"y"]


def test_a_head_damaged_under_open_handles_is_corruption_and_heals_when_they_close(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"x")
    with (path / "head").open("r+b") as head:
        head.write(b"\xff" * 200)
    with pytest.raises(CorruptionError, match="the head is damaged; open the channel again"):
        put(channel, b"y")
    channel.engine().close()
    assert peek(open_channel()) == [b"x"]


def test_a_channel_whose_files_were_removed_says_so(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    log_file(path).unlink()
    with pytest.raises(DataLossError, match="log-000001, the newest data file, is missing"):
        put(channel, b"x")


def test_a_channel_that_was_removed_and_created_again_is_not_the_old_one(path: Path, open_channel: Open) -> None:
    """A handle of the old one would publish what no process sees."""
    old = open_channel()
    put(old, b"x")
    shutil.rmtree(path)
    new = open_channel()
    for use in (lambda: put(old, b"y"), lambda: peek(old), old.stats):
        with pytest.raises(ChannelClosedError, match=r"was moved, removed or replaced|or its head was removed"):
            use()
    put(new, b"z")
    assert peek(new) == [b"z"]
    old.engine().close()


MEMORY = {"memory_capacity": 1000, "byte_capacity": 1 << 20}


def test_what_was_appended_between_two_positions_is_applied(open_channel: Open) -> None:
    channel = open_channel(max_file_size=1000, **MEMORY)
    log = channel.engine().log
    state, start = log.load()
    for i in range(5):
        put(channel, b"%d" % i * 300)
    channel.flush()
    take(channel, 2)
    log.follow(state, start, channel.engine().positions)
    assert state.image() == channel.engine().state.image()


def test_it_is_written_as_the_options_say(open_channel: Open) -> None:
    channel = open_channel(max_file_size=12345, minimum_required_space=77, **MEMORY)
    tiers = channel.engine().log.tiers
    put(channel, b"x")
    assert tiers.disk.max_file_size_bytes == 12345
    assert tiers.disk.preallocation.minimum_required_space == 77
    before = tiers.memory.max_file_size_bytes
    open_channel(max_file_size=23456, byte_capacity=1 << 30)
    channel.stats()
    assert tiers.disk.max_file_size_bytes == 23456
    assert tiers.memory.max_file_size_bytes > before


def test_a_file_of_memory_begins_with_the_whole_state_and_where_the_disk_is(open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, b"x")
    engine = channel.engine()
    image = engine.log.memory_image(engine.follower)
    assert {k: v for k, v in image.items() if k not in ("disk", "boot")} == engine.state.image()
    assert (image["disk"], image["boot"]) == (engine.positions.disk, engine.log.lock.head.boot)


def test_nothing_goes_to_memory_where_the_data_file_is_gone(path: Path, open_channel: Open) -> None:
    """Nobody could read what is in memory without it."""
    channel = open_channel(**MEMORY)
    put(channel, b"x")
    log_file(path).rename(path / "elsewhere")
    with pytest.raises(DataLossError, match="log-000001, the newest data file"):
        put(channel, b"y")
    (path / "elsewhere").rename(log_file(path))


def test_of_two_handles_that_close_at_once_one_is_last(open_channel: Open) -> None:
    one, two = open_channel().engine().log, open_channel().engine().log
    assert [one.become_last(), two.become_last()] == [False, True]


def test_a_parked_handle_counts_as_closed_until_it_resumes(open_channel: Open) -> None:
    parked, other = open_channel(), open_channel()
    positions = parked.engine().positions
    parked.engine().log.park()
    assert other.engine().log.become_last()
    assert not parked.engine().log.resume(positions), "the other one keeps it from that"


def fail(path: Path, log: LocalLog) -> None:
    log.lock.failed = "a sync failed"


def close(path: Path, log: LocalLog) -> None:
    log.close()


def replace_head(path: Path, log: LocalLog) -> None:
    data = (path / "head").read_bytes()
    (path / "head").unlink()
    (path / "head").write_bytes(data)


def damage_head(path: Path, log: LocalLog) -> None:
    with (path / "head").open("r+b") as head:
        head.write(b"\xff" * 200)


def move(path: Path, log: LocalLog) -> None:
    path.rename(path.with_name("moved"))


@pytest.mark.parametrize("harm", [fail, close, replace_head, damage_head, move])
def test_a_parked_handle_does_not_resume_where_it_would_not_be_the_channels(
    path: Path, open_channel: Open, harm: Callable[[Path, LocalLog], None]
) -> None:
    channel = open_channel()
    log, positions = channel.engine().log, channel.engine().positions
    log.park()
    assert log.resume(positions)
    log.park()
    harm(path, log)
    assert not log.resume(positions)
    log.close()
    if not path.exists():
        path.with_name("moved").rename(path)


def test_a_parked_handle_does_not_resume_with_another_memory_tier(open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, b"x")
    log, positions = channel.engine().log, channel.engine().positions
    log.park()
    open_channel().close()  # the last one moves memory to disk
    assert not log.resume(positions)


def test_a_view_holds_nothing_and_refuses_to_append(path: Path, open_channel: Open) -> None:
    open_channel().close()
    layout = read_identity(FileSystem(), path)
    view = LocalLog(FileSystem(), layout, readonly=True)
    assert view.is_view and not view.become_last()
    with pytest.raises(ReadonlyChannelError), view.hold(1):
        raise AssertionError
    assert view.is_current()
    writer = LocalLog(FileSystem(), layout, 1)
    assert writer.recovered, "nobody was in the way"
    assert not view.is_current()
    view.renew()
    assert view.is_current()
    writer.close()
    view.close()


def test_no_use_is_allowed_after_a_close_or_a_failure(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    log = channel.engine().log
    log.require_open()
    log.lock.failed = "a sync failed"
    log.require_not_closed()
    with pytest.raises(ChannelClosedError, match="failed and must be opened again: a sync failed"):
        log.require_open()
    log.lock.failed = None
    (path / "head").unlink()
    with pytest.raises(ChannelClosedError, match="or its head was removed; open it again"):
        log.require_open()
    log.close()
    for refuse in (log.require_open, log.require_not_closed):
        with pytest.raises(ChannelClosedError, match="is closed; open it again"):
            refuse()


def test_nothing_is_staged_in_a_directory_that_was_moved(path: Path, open_channel: Open) -> None:
    log = open_channel().engine().log
    (path / "data").rename(path / "elsewhere")
    (path / "data").mkdir()
    with pytest.raises(ChannelClosedError, match="data was moved, removed or replaced"):
        log.stage()
    assert list((path / "data").iterdir()) == []
    (path / "data").rmdir()
    (path / "elsewhere").rename(path / "data")
