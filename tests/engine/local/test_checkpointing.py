"""What checkpoints let go: a drained channel gives its disk space back, whoever asks for it first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, DiskSpaceError, StorageError
from spillable_stream.engine.local import checkpointing
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.integrity.verify import verify
from spillable_stream.log import commit_lock
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.lab.machine import mounted
from tests.support.damage import flip, log_file, reboot
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.full_disk import drain, fill, used_bytes
from tests.support.one_module import replace_in

Open = Callable[..., Channel]
MIB = 1 << 20


# ── who gives the space back ────────────────────────────────────────────────────────────────────


def test_a_checkpoint_of_a_drained_channel_gives_its_space_back(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    fill(channel)
    channel.checkpoint()
    drain(channel)
    channel.checkpoint()
    assert used_bytes(path) < MIB
    put(channel, b"x")
    assert take(channel) == [b"x"]
    assert verify(path).healthy


def test_a_checkpoint_gives_back_every_file_before_the_first_that_is_needed(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_file_size=MIB)
    fill(channel)
    take(channel, 40)
    needed = channel.engine().state.blocks.oldest_data_file()
    assert needed is not None and needed > 2
    channel.checkpoint()
    assert channel.engine().layout.log_files(FileSystem())[0] == needed
    drain(channel)
    assert verify(path).healthy


def test_a_close_gives_it_back(path: Path) -> None:
    with Channel(path) as channel:
        fill(channel)
        drain(channel)
    assert used_bytes(path) < MIB


@pytest.mark.parametrize("timeout_seconds", [0.0, 0.2])
def test_who_finds_nothing_to_take_gives_it_back(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch, timeout_seconds: float
) -> None:
    monkeypatch.setattr(checkpointing, "IDLE_SECONDS", 0.0)
    channel = open_channel()
    fill(channel)
    drain(channel)
    for _ in range(2):  # the first one sees where the log ends
        with channel.take_transaction() as tx:
            assert tx.take(timeout_seconds) is None
    assert used_bytes(path) < MIB


def test_who_takes_as_fast_as_others_put_creates_no_files(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    for _ in range(20):
        put(channel, bytes(64 << 10))
        assert take(channel) != []
        assert take(channel) == []
    assert channel.engine().positions.disk.file_id == 1


def test_a_handle_that_nobody_calls_does_nothing(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "IDLE_SECONDS", 0.0)
    channel, idle = open_channel(), open_channel()
    fill(channel)
    drain(channel)
    before = used_bytes(path)
    idle.stats()
    put(idle, b"x")
    assert used_bytes(path) == before


def test_an_idle_give_back_that_finds_another_checkpoint_is_tried_again(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "IDLE_SECONDS", 0.0)
    channel = open_channel()
    fill(channel)
    drain(channel)
    lock = FileLock.open(FileSystem(), channel.engine().layout.checkpoint_lock)
    assert lock.try_acquire()
    for _ in range(3):
        assert take(channel) == []
    assert used_bytes(path) > 4 * MIB
    lock.close()
    for _ in range(2):
        assert take(channel) == []
    assert used_bytes(path) < MIB


def until_full(channel: Channel, body: bytes) -> None:
    """Put until the disk is full, and nothing fits any more, however small."""
    put(channel, b"the group's first")
    assert take(channel) == [b"the group's first"]
    while body:
        with pytest.raises(
            DiskSpaceError, match=r"No space left on device .*: what is left of log-\d+ is kept for takes"
        ):
            for _ in range(100_000):
                put(channel, body)
        body = body[: len(body) // 2]


def drain_one_by_one(channel: Channel) -> None:
    """Take hundreds of events, each in a transaction of its own."""
    events = channel.stats().channel_size
    assert events > 700
    for _ in range(events):
        assert len(take(channel, 1)) == 1


def test_a_disk_that_is_full_to_the_last_block_drains(tmp_path: Path) -> None:
    with mounted(tmp_path, 16 * MIB) as disk, Channel(disk / "channel", minimum_required_space=0) as channel:
        until_full(channel, bytes(64 << 10))
        drain(channel)
        fill(channel, 8 * MIB)
        drain(channel)
        assert verify(channel.path).healthy


@pytest.mark.parametrize("max_file_size", [64 * MIB, MIB])
@pytest.mark.parametrize("is_closed", [False, True])
def test_takes_one_by_one_drain_a_disk_that_is_full_of_the_channels_events(
    tmp_path: Path, max_file_size: int, is_closed: bool
) -> None:
    """It has no room for a checkpoint, nor for another file: files are freed without one."""
    options = {"minimum_required_space": 0, "max_file_size": max_file_size}
    with mounted(tmp_path, 16 * MIB) as disk:
        with Channel(disk / "channel", **options) as channel:
            until_full(channel, bytes(20_000))
            if not is_closed:
                drain_one_by_one(channel)
        with Channel(disk / "channel", **options) as channel:
            if is_closed:
                drain_one_by_one(channel)
            fill(channel, 8 * MIB)
        assert verify(disk / "channel").healthy


def test_a_close_on_a_full_disk_that_has_no_room_for_a_checkpoint_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mounted(tmp_path, 16 * MIB) as disk:
        with Channel(disk / "channel", minimum_required_space=0) as channel:
            with Channel(disk / "channel", minimum_required_space=0) as other:
                until_full(other, bytes(64 << 10))
            assert caplog.text.count("no checkpoint was created; the next open takes longer") == 1
            assert not checkpoints(disk)
            events = channel.stats().channel_size
        assert checkpoints(disk), "in what was kept for takes: no handle is left to take"
        assert caplog.text.count("no checkpoint was created") == 1, "the second try of the last handle had room"
        with Channel(disk / "channel") as channel:
            assert channel.stats().channel_size == events


class NoRoomForCheckpoints(FileSystem):
    """A file system that is full when a checkpoint is written."""

    def open(self, path: Path, **how: Any) -> File:
        if how.get("create") and path.name.startswith("checkpoint-"):
            raise DiskSpaceError(f"{path} has no room")
        return super().open(path, **how)


def test_a_commit_and_a_close_without_room_for_a_checkpoint_warn_once_an_interval(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [2_000_000_000.0]
    replace_in(monkeypatch, checkpointing, "time", time=lambda: now[0], monotonic=lambda: now[0])
    Channel(path, minimum_required_space=0).close()
    for commits in (1, 2):
        caplog.clear()
        with Channel(path, fs=NoRoomForCheckpoints()) as channel:
            for _ in range(commits):
                now[0] += 31  # the interval is 30 s
                put(channel, b"x")
        assert caplog.text.count("no checkpoint was created") == commits


def checkpoints(disk: Path) -> list[Path]:
    """Return the checkpoints of the channel on a disk."""
    return list((disk / "channel" / "checkpoint").glob("checkpoint-*"))


# ── what stays possible ─────────────────────────────────────────────────────────────────────────


def given_back(open_channel: Open, path: Path) -> None:
    """Drain a channel of 10 events and much else, give the space back, and put 5 more."""
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        fill(channel)
        channel.checkpoint()
        drain(channel)
        channel.checkpoint()
        put(channel, *numbered(10, 5))
    assert not log_file(path, 1).exists()


@pytest.mark.parametrize("damage", ["none", "flipped", "removed"])
def test_a_replay_can_begin_at_the_header_of_the_file_that_is_left(open_channel: Open, path: Path, damage: str) -> None:
    given_back(open_channel, path)
    for file in (path / "checkpoint").glob("checkpoint-*"):
        if damage == "flipped":
            flip(file, 100)
        elif damage == "removed":
            file.unlink()
    reboot(path)
    with open_channel(create=False) as channel:
        assert channel.stats().groups["default"].position == 10 + 64
        assert peek(channel) == numbered(10, 5)
    assert not verify(path).damaged


def test_no_checkpoint_is_left_of_a_file_that_went(open_channel: Open, path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with open_channel(backup_checkpoint_dir=str(backup)):
        pass
    given_back(open_channel, path)
    for directory in (path / "checkpoint", backup):
        assert [name.name.split("-")[1] for name in directory.glob("checkpoint-*")] == ["000002"]


def test_a_file_whose_header_is_damaged_does_not_stand_for_those_before_it(open_channel: Open, path: Path) -> None:
    with open_channel(max_file_size=MIB) as channel:
        fill(channel, 2 * MIB)
        take(channel, 20)
        first_needed = channel.engine().state.blocks.oldest_data_file()
        assert first_needed == 2
        flip(log_file(path, first_needed), 50)
        channel.checkpoint()
        assert log_file(path, 1).exists()


def test_where_no_file_can_be_created_the_space_stays_for_the_next_checkpoint(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    with Channel(path, minimum_required_space=0, fs=fs) as channel:
        fill(channel)
        drain(channel)
        with fs.failing(lambda call: call.name == "create" and call.file.startswith("log-")):
            channel.checkpoint()
        assert "keep their disk space until the next checkpoint" in caplog.text
        assert used_bytes(path) > 4 * MIB
        put(channel, b"x")
        assert take(channel) == [b"x"]
        channel.checkpoint()
        assert used_bytes(path) < MIB


def test_events_in_memory_need_no_file_that_was_given_back(open_channel: Open, path: Path) -> None:
    channel = open_channel(memory_capacity=50, overflow_timeout=0)
    fill(channel)
    drain(channel)
    put(channel, *numbered(0, 20))
    channel.checkpoint()
    assert not log_file(path, 1).exists()
    channel.close(flush=False)
    with open_channel(create=False) as channel:
        assert peek(channel) == numbered(0, 20)


def test_takes_that_are_prepared_outlive_the_file_that_they_were_written_in(open_channel: Open, path: Path) -> None:
    with open_channel() as channel:
        fill(channel)
        put(channel, *numbered(0, 10))
        take(channel, 64)
        channel.consumer("default").prepare([(65, 74)])
        channel.consumer("slow", starting="latest")
        channel.checkpoint()
        assert log_file(path, 1).exists()
        for tx, ranges in channel.consumer("default").prepared().items():
            channel.consumer("default").commit(ranges, tx)
        channel.checkpoint()
        assert not log_file(path, 1).exists()


# ── when one is due ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("interval_ms", [100, 999, 30_000])
def test_a_checkpoint_is_due_when_the_last_one_is_as_old_as_the_interval(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, interval_ms: int
) -> None:
    channel, other = open_channel(checkpoint_interval=interval_ms), open_channel()
    now = [1_700_000_000.7]
    replace_in(monkeypatch, checkpointing, "time", time=lambda: now[0])
    replace_in(monkeypatch, commit_lock, "time", time_ns=lambda: int(now[0] * 1e9))
    channel.checkpoint()
    for handle in (channel, other):
        now[0] = 1_700_000_000.7 + (interval_ms - 2) / 1000
        assert not handle.engine().checkpointing._is_due()
        now[0] += 0.004
        assert handle.engine().checkpointing._is_due()


def test_a_committed_put_does_not_fail_where_nobody_can_say_whether_one_is_due(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(checkpoint_interval=1)

    def unreadable(_: object) -> int:
        raise StorageError("reading the head failed")

    monkeypatch.setattr(LocalLog, "checkpoint_ms", property(unreadable))
    put(channel, b"x")
    assert take(channel) == [b"x"]
