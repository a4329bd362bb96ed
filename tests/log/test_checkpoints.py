from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, CorruptionError, StorageError
from spillable_stream.errors import BackupCheckpointWarning
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.format.packing import pack
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip, log_file, offsets, reboot, trim
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import DeadDirectory, FaultyFileSystem

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


def test_a_checkpoint_that_was_replaced_is_gone_for_good_before_its_data_file(tmp_path: Path) -> None:
    """Else a power cut may bring it back, and take the later ones: the newest would have no file to begin in."""
    path, fs = tmp_path / "channel", FaultyFileSystem()
    with Channel(path, fs=fs, max_file_size=20_000, spare_bytes=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(0, 10))
        channel.checkpoint()
        while channel.stats().data_files < 2:
            put(channel, *numbered(0, 100))
        channel.checkpoint()
        take(channel, channel.stats().channel_size)
        fs.calls.clear()
        channel.checkpoint()  # replaces that of the first file, which nobody needs any more
        assert len(checkpoints(path)) == 2 and not log_file(path).exists()
    unsynced: set[str] = set()
    for name, file in fs.calls:
        if name == "remove" and file.startswith("checkpoint-"):
            unsynced.add(file)
        elif name == "sync_directory" and file == "checkpoint":
            unsynced.clear()
        elif name == "remove" and file.startswith("log-"):
            assert not unsynced, f"{file} is removed, and no power cut may bring back {unsynced}"


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
    wrong = "log-000004 is missing" if restored == "missing" else "the log ends before that"
    with pytest.raises(CorruptionError, match=wrong):
        Channel(path, create=False)


@pytest.mark.parametrize("head", ["kept", "gone"])
@pytest.mark.parametrize(
    "continued",
    [[], [b"%d" % i for i in range(20, 30)], [b"x" * 20_000], [b"y" * 300] * 3],
    ids=["not", "same", "large", "other"],
)
def test_a_restored_log_does_not_believe_a_newer_checkpoint(
    path: Path, tmp_path: Path, open_channel: Open, continued: list[bytes], head: str
) -> None:
    """``checkpointDir`` was elsewhere, and not restored with the rest."""
    with open_channel(checkpoint_dir=str(tmp_path / "images")) as channel:
        put(channel, *numbered(0, 10))
    shutil.copytree(path, tmp_path / "backup")
    with open_channel() as channel:
        put(channel, *numbered(10, 10))
        channel.checkpoint()
    shutil.rmtree(path)
    (tmp_path / "backup").rename(path)
    if continued:  # without the checkpoints, which then come back
        (tmp_path / "images").rename(tmp_path / "kept")
        shutil.copytree(tmp_path / "kept", tmp_path / "images", ignore=shutil.ignore_patterns("checkpoint-*"))
        with open_channel() as channel:
            put(channel, *continued)
        for image in (tmp_path / "kept").glob("checkpoint-*"):
            shutil.copy(image, tmp_path / "images")
    if head == "gone":
        (path / "head").unlink()
    wrong = "the log holds other commits there" if continued else "the log ends before that"
    with pytest.raises(CorruptionError, match=wrong):
        open_channel()
    assert not verify(path).healthy
    repair(path)
    with open_channel() as channel:
        assert peek(channel) == numbered(0, 10) + continued
        assert put(channel, b"next")[0] > 10 + len(continued)


def test_a_checkpoint_makes_up_for_a_frame_before_it_that_is_zeroed(path: Path, open_channel: Open) -> None:
    """What was written after it proves that the log got there."""
    with open_channel() as channel:
        three_checkpoints(channel)
        end = channel.engine().positions.disk.offset
        put(channel, b"later")
    start = max(offset for offset in offsets(path, FrameType.COMMIT) if offset < end)
    with log_file(path).open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    with open_channel() as channel:
        assert channel.stats().last_id == 31


def test_damage_before_a_checkpoint_does_not_make_its_log_another_one(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        three_checkpoints(channel)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[-1] + 50)  # ends where the checkpoint was created
    replayed_from(path)


def test_every_checkpoint_has_a_copy_in_the_backup_directory(path: Path, tmp_path: Path, open_channel: Open) -> None:
    with open_channel(backup_checkpoint_dir=str(tmp_path / "backup")) as channel:
        three_checkpoints(channel)
    assert sorted(f.name for f in (tmp_path / "backup").glob("checkpoint-*")) == checkpoints(path)
    for name in checkpoints(path):
        flip(path / "checkpoint" / name, 100)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[0] + 50)  # so that the log alone would not do
    replayed_from(path)


def test_a_failing_backup_is_said_and_harms_nothing(tmp_path: Path, open_channel: Open) -> None:
    fs = FaultyFileSystem()
    with open_channel(backup_checkpoint_dir=str(tmp_path / "backup"), fs=fs) as channel:
        put(channel, b"x")
        with (
            fs.failing(lambda call: call.name == "rename" and fs.count("rename") % 2 == 1),
            pytest.warns(BackupCheckpointWarning, match="rename"),
        ):
            channel.checkpoint()  # the channel's identity was rename 1, the backup's is number 3
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


def test_commits_create_checkpoints_when_they_are_due(path: Path, open_channel: Open) -> None:
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
    assert "for another position than its name says" in caplog.text


# ── a backup directory that is dead ─────────────────────────────────────────────────────────

DEATHS = ["missing", "replaced by a file", "failing", "read-only or full"]


@dataclass
class Backup:
    """A channel's second place for checkpoints."""

    path: Path
    options: dict[str, Any] = field(default_factory=dict)

    def die(self, how: str) -> FileSystem:
        """Let the directory fail, and return the file system that sees it."""
        if how == "missing":
            self.path.rename(self.path.with_name("unmounted"))
        elif how == "replaced by a file":
            self.path.rename(self.path.with_name("unmounted"))
            self.path.write_text("not a directory")
        else:
            return DeadDirectory(self.path, readable=how == "read-only or full")
        return FileSystem()


@pytest.fixture
def backup(path: Path, tmp_path: Path, open_channel: Open) -> Backup:
    """The backup directory of a channel with 24 events left, and two checkpoints in each place."""
    found = Backup(tmp_path / "backup")
    with open_channel(backup_checkpoint_dir=str(found.path)) as channel:
        three_checkpoints(channel)
    return found


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_backup_directory_stops_no_opening(
    path: Path, open_channel: Open, backup: Backup, how: str, rebooted: bool
) -> None:
    fs = backup.die(how)
    if rebooted:
        reboot(path)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with open_channel(fs=fs) as channel:
            assert peek(channel) == numbered(6, 24)


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_backup_directory_stops_no_checkpoint_and_is_said_once_per_handle(
    path: Path, open_channel: Open, backup: Backup, how: str
) -> None:
    kept = checkpoints(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_channel(fs=backup.die(how)) as channel:
            for start in (30, 40):
                put(channel, *numbered(start, 10))
                channel.checkpoint()
    assert len(checkpoints(path)) == 2
    assert set(kept).isdisjoint(checkpoints(path))
    (warning,) = [w.message for w in caught if isinstance(w.message, BackupCheckpointWarning)]
    assert str(backup.path) in str(warning)
    assert "mount its disk, or make room" in str(warning)


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_backup_directory_stops_no_deletion_of_data_files(
    path: Path, tmp_path: Path, open_channel: Open, how: str
) -> None:
    backup = Backup(tmp_path / "backup")
    with open_channel(backup_checkpoint_dir=str(backup.path), max_file_size=2000) as channel:
        put(channel, b"x")
    fs = backup.die(how)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with open_channel(fs=fs) as channel:
            for _ in range(6):
                put(channel, *[bytes(200)] * 10)
                take(channel)
                channel.checkpoint()
    assert not log_file(path, 1).exists()
    assert len(list((path / "data").glob("log-*"))) <= 3


@pytest.mark.parametrize("how", ["replaced by a file", "failing", "read-only or full"])
def test_a_channel_is_created_though_its_backup_directory_is_dead(tmp_path: Path, open_channel: Open, how: str) -> None:
    backup = Backup(tmp_path / "backup")
    backup.path.mkdir()
    fs = backup.die(how)
    with (
        pytest.warns(BackupCheckpointWarning),
        open_channel(backup_checkpoint_dir=str(backup.path), fs=fs) as channel,
    ):
        put(channel, b"x")
        channel.checkpoint()
    assert len(checkpoints(tmp_path / "channel")) == 1


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_backup_directory_is_a_note_of_verify(path: Path, backup: Backup, how: str) -> None:
    report = verify(path, fs=backup.die(how))
    assert report.healthy
    notes = [f.text for f in report.findings if f.path == backup.path]
    assert how == "read-only or full" or len(notes) == 1


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_backup_directory_stops_no_repair_and_what_it_holds_is_passed_over_when_it_is_back(
    path: Path, backup: Backup, open_channel: Open, how: str
) -> None:
    (offset, *_) = offsets(path, FrameType.PUT)[-1:]
    flip(log_file(path), offset + 60)
    for name in checkpoints(path):
        flip(path / "checkpoint" / name, 100)
    fs = backup.die(how)
    report = repair(path, fs=fs)
    assert (report.quarantine is not None, report.loss.lost) == (True, ((21, 30),))
    if isinstance(fs, DeadDirectory):
        fs.dead = False
    else:
        backup.path.is_file() and backup.path.unlink()
        shutil.rmtree(backup.path, ignore_errors=True)
        backup.path.with_name("unmounted").rename(backup.path)
    assert verify(path).healthy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with open_channel() as channel:
            assert peek(channel) == numbered(6, 14)
            channel.checkpoint()
            put(channel, b"x")
            channel.checkpoint()
    assert sorted(f.name for f in backup.path.glob("checkpoint-*")) == checkpoints(path)


@pytest.mark.parametrize("rebooted", [False, True])
def test_backup_checkpoints_of_deleted_data_files_are_passed_over(
    path: Path, tmp_path: Path, open_channel: Open, rebooted: bool
) -> None:
    """It was not mounted for a while: where the main ones are lost then, the log says all."""
    backup = Backup(tmp_path / "backup")
    with open_channel(backup_checkpoint_dir=str(backup.path), max_file_size=2000) as channel:
        put(channel, b"x")
        channel.checkpoint()
    fs = DeadDirectory(backup.path)
    with warnings.catch_warnings(record=True), open_channel(fs=fs) as channel:
        warnings.simplefilter("always")
        for _ in range(6):
            put(channel, *[bytes(200)] * 10)
            take(channel, 10)
            channel.checkpoint()
    assert not log_file(path, 1).exists()
    shutil.rmtree(path / "checkpoint")
    if rebooted:
        reboot(path)
    assert verify(path).healthy
    with open_channel() as channel:
        assert peek(channel) == [bytes(200)]


def test_another_channels_checkpoints_are_passed_over_and_never_removed(
    path: Path, tmp_path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier releases took one directory for two channels: names are of positions, which may be the same in both."""
    shared, other = tmp_path / "shared", tmp_path / "other"
    with Channel(other, minimum_required_space=0) as channel:
        for start in range(0, 100, 10):
            put(channel, *numbered(start, 10))
            channel.checkpoint()
    shared.mkdir()
    for file in (other / "checkpoint").glob("checkpoint-*"):
        shutil.copy(file, shared)
    theirs = {f: f.read_bytes() for f in shared.iterdir()}
    with open_channel(checkpoint_dir=str(shared), max_file_size=2000) as channel:
        for _ in range(6):
            put(channel, *[bytes(200)] * 10)
            take(channel, 10)
            channel.checkpoint()
        assert not log_file(path, 1).exists()  # what is kept for replay are this channel's own
        assert log_file(other, 1).exists()
        newest = channel.engine().positions.disk.file_id
    own = [name.name.split("-")[1] for name in shared.glob("checkpoint-*") if name not in theirs]
    assert own == [f"{newest:06}"]
    assert {f: f.read_bytes() for f in theirs} == theirs
    for file in set(shared.glob("checkpoint-*")) - set(theirs):
        flip(file, 100)
    for _ in range(2):
        with open_channel(create=False) as channel:
            assert channel.stats().channel_size == 0
        reboot(path)
    found = verify(path).findings
    assert {f.path for f in found if "belongs to another channel" in f.text} == set(theirs)
    repair(path)
    assert verify(path).healthy
    assert {f: f.read_bytes() for f in shared.glob("checkpoint-*")} == theirs


def test_a_checkpoint_does_not_take_the_place_of_another_channels(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"x")
        channel.checkpoint()
        (theirs,) = (path / "checkpoint").glob("checkpoint-*")
        frame = Frame.of(FrameType.CHECKPOINT, pack({"position": [1, 2], "state": {}}))
        theirs.write_bytes(b"".join(encode(frame, file_seed("another", "checkpoint"))))
        before = theirs.read_bytes()
        with pytest.raises(StorageError, match="is a checkpoint of another channel; give every channel a directory"):
            channel.checkpoint()
        assert theirs.read_bytes() == before
        put(channel, b"y")
        channel.checkpoint()
