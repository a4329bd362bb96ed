from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, StorageError
from spillable_stream.format.frame import FrameType
from tests.damage import flip, log_file, offsets, reboot, trim
from tests.events import numbered, peek, put, take
from tests.fakes import FaultyFileSystem

Open = Callable[..., Channel]


def checkpoints(path: Path) -> list[str]:
    return sorted(f.name for f in (path / "checkpoint").glob("checkpoint-*"))


def three_checkpoints(channel: Channel) -> None:
    """Put 0 to 29 and take 0 to 5, with a checkpoint after every ten puts; two of the three are kept."""
    for start in (0, 10, 20):
        put(channel, *numbered(start, 10))
        take(channel, 2)
        channel.checkpoint()


def replayed_from(path: Path) -> FaultyFileSystem:
    """Open the channel, check what it holds, and return the file system that saw it."""
    fs = FaultyFileSystem()
    with Channel(path, create=False, fs=fs, checkpoint_on_close=False) as channel:
        assert peek(channel) == numbered(6, 24)
        assert channel.stats().groups["default"].position == 6
    return fs


def test_the_newest_two_are_kept_and_named_by_their_position(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    end = trim(path)
    assert len(checkpoints(path)) == 2
    assert checkpoints(path)[-1] == f"checkpoint-000001-{end:012d}"


def test_replay_begins_at_the_newest(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[0] + 50)  # before the checkpoint: never looked at
    replayed_from(path)


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("bad", [1, 2])
def test_a_damaged_checkpoint_falls_back_to_the_older_and_then_to_the_log(
    path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture, bad: int, rebooted: bool
) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    for name in checkpoints(path)[-bad:]:
        flip(path / "checkpoint" / name, 100)
    if rebooted:
        reboot(path)
    replayed_from(path)
    assert caplog.text.count("passing over a checkpoint: the checkpoint is damaged") >= bad


def test_without_checkpoints_the_log_says_all(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    for name in checkpoints(path):
        (path / "checkpoint" / name).unlink()
    replayed_from(path)


def test_the_newest_is_truncated_at_every_byte(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    newest = path / "checkpoint" / checkpoints(path)[-1]
    whole = newest.read_bytes()
    for size in range(0, len(whole), 7):
        newest.write_bytes(whole[:size])
        replayed_from(path)


@pytest.mark.parametrize("restored", ["shorter", "missing"])
def test_a_log_that_is_older_than_its_checkpoint_is_refused(path: Path, open_channel: Open, restored: str) -> None:
    """The checkpoint proves that there was more: nothing is lost in silence."""
    with open_channel(max_file_size=2000) as channel:
        for i in range(4):
            put(channel, *[b"%d" % i * 100] * 10)
        channel.checkpoint()
    trim(path, 4)
    if restored == "missing":
        log_file(path, 4).unlink()
    else:
        with log_file(path, 4).open("r+b") as file:
            file.truncate(1000)
    reboot(path)
    with pytest.raises(CorruptionError, match="log-000004 is missing" if restored == "missing" else "was cut to 1000"):
        Channel(path, create=False)


def test_every_checkpoint_has_a_copy_in_the_backup_directory(path: Path, tmp_path: Path, open_channel: Open) -> None:
    with open_channel(backup_checkpoint_dir=str(tmp_path / "backup")) as channel:
        three_checkpoints(channel)
    assert sorted(f.name for f in (tmp_path / "backup").glob("checkpoint-*")) == checkpoints(path)
    for name in checkpoints(path):
        flip(path / "checkpoint" / name, 100)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[0] + 50)  # so that the log alone would not do
    replayed_from(path)


def test_a_failing_backup_is_logged_and_harms_nothing(
    tmp_path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    with open_channel(backup_checkpoint_dir=str(tmp_path / "backup"), fs=fs) as channel:
        put(channel, b"x")
        with fs.failing(lambda call: call.name == "rename" and fs.count("rename") % 2 == 1):
            channel.checkpoint()  # the channel's identity was rename 1, the backup's is number 3
    assert "no backup checkpoint was made" in caplog.text
    assert len(checkpoints(tmp_path / "channel")) == 1


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_checkpoint_that_fails_removes_nothing(path: Path, open_channel: Open, call: str) -> None:
    fs = FaultyFileSystem()
    with open_channel(fs=fs, max_file_size=2000) as channel:
        three_checkpoints(channel)
        files, kept = sorted((path / "data").iterdir()), checkpoints(path)
        take(channel)
        put(channel, *numbered(30, 3))
        files = sorted((path / "data").iterdir())
        with fs.failing(lambda c: c.name == call), pytest.raises(StorageError):
            channel.checkpoint()
        assert sorted((path / "data").iterdir()) == files
        assert set(kept) <= set(checkpoints(path))
        channel.checkpoint()
        assert [n for n in checkpoints(path) if n.endswith(".tmp")] == []
        assert peek(channel) == numbered(30, 3)


def test_commits_make_checkpoints_when_they_are_due(path: Path, open_channel: Open) -> None:
    import time

    with open_channel(checkpoint_interval=1) as channel:
        put(channel, b"x")
        time.sleep(1.1)  # the head keeps whole seconds
        put(channel, b"y")
        assert checkpoints(path)
    with open_channel() as channel:
        assert peek(channel) == [b"x", b"y"]


def test_puts_in_flight_at_a_checkpoint_become_visible_if_and_only_if_they_commit(open_channel: Open) -> None:
    from spillable_stream import Event

    with open_channel() as channel:
        kept, undone = channel.put_transaction(), channel.put_transaction()
        for tx in (kept, undone):
            tx.begin()
            tx.put_many([Event(bytes(1000))] * 10)
        channel.checkpoint()
        kept.commit()
        undone.rollback()
    reboot(channel.path)
    with open_channel() as channel:
        assert peek(channel) == [bytes(1000)] * 10


def test_takes_in_flight_at_a_checkpoint_come_back_in_order(open_channel: Open, path: Path) -> None:
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        taken = channel.take_transaction()
        taken.begin()
        taken.take_many(4)
        channel.checkpoint()
        taken.rollback()
    with open_channel() as channel:
        assert peek(channel) == numbered(0, 10)


def test_a_checkpoint_under_another_ones_name_is_passed_over(
    path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Its state is that of another place of the log: replay from the wrong one would forget takes."""
    with open_channel() as channel:
        three_checkpoints(channel)
    older, newer = (path / "checkpoint" / name for name in checkpoints(path))
    newer.write_bytes(older.read_bytes())
    replayed_from(path)
    assert "of another position than its name says" in caplog.text
