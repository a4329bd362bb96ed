"""Channels in directories that are created from backups."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import Channel, ChannelError, CorruptionError, Progress, SpillableError, StorageError
from spillable_stream.archive import directory_restore
from spillable_stream.storage.file_identity import FileIdentity
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.command_line import start
from tests.support.damage import flip
from tests.support.delays import clock_of, deliveries_of, put_late
from tests.support.events import numbered, peek, put, take


def test_a_second_channel_is_another_one_from_the_first_frame_on(copy: Path, path: Path, tmp_path: Path) -> None:
    report = ss.restore(copy, tmp_path / "r", new_identity=True)
    with Channel(path, create=False) as one, Channel(tmp_path / "r", create=False) as other:
        assert other.uuid == report.channel != one.uuid
        put(one, b"mine")
        put(other, b"its own")
        assert peek(one)[-1] == b"mine" and peek(other)[-1] == b"its own"
    assert ss.verify(path).healthy and ss.verify(tmp_path / "r").healthy


def test_a_restored_channel_gives_its_space_back_and_opens_again(copy: Path, tmp_path: Path) -> None:
    ss.restore(copy, tmp_path / "r", new_identity=True)
    for first in (2, 5):
        with Channel(tmp_path / "r", create=False) as channel:
            assert take(channel, 3) == numbered(first, 3)
    with Channel(tmp_path / "r", create=False) as channel:
        take(channel)
        put(channel, b"x" * 300_000)
        take(channel)
        channel.checkpoint()
        assert channel.stats().data_files <= 2
    assert ss.verify(tmp_path / "r").healthy


def test_many_events_are_in_files_of_the_channels_size(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_file_size=20_000) as channel:
        for i in range(100):
            put(channel, b"%d" % i * 400)
        ss.backup(channel, tmp_path / "copy")
    ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True)
    with Channel(tmp_path / "r", create=False) as channel:
        assert channel.stats().data_files > 3
        assert peek(channel) == [b"%d" % i * 400 for i in range(100)]
        take(channel, 90)
        channel.checkpoint()
        assert channel.stats().data_files < 4, "files of events go as any others"


def test_nothing_is_ever_overwritten(copy: Path, path: Path, tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="is there: move it away"):
        ss.restore(copy, path, new_identity=True)
    (tmp_path / "file").touch()
    with pytest.raises(ChannelError, match="is there"):
        ss.restore(copy, tmp_path / "file", new_identity=True)
    (tmp_path / "empty").mkdir()
    assert ss.restore(copy, tmp_path / "empty", new_identity=True).events == 9


@pytest.mark.parametrize("name", ["r" * 255, "é" * 127])
def test_a_channel_is_restored_to_a_name_as_long_as_names_can_be(copy: Path, tmp_path: Path, name: str) -> None:
    ss.restore(copy, tmp_path / name, new_identity=True)
    assert ss.verify(tmp_path / name).healthy
    assert not list(tmp_path.glob(".*"))


def test_a_channel_is_restored_to_where_a_link_leads(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    report = ss.restore(copy, tmp_path / "link", new_identity=True)
    assert report.path == str(tmp_path / "link")
    with Channel(tmp_path / "disk", create=False) as channel:
        assert channel.uuid == report.channel
    assert (tmp_path / "link").is_symlink()


def test_a_place_that_can_be_seen_to_be_impossible_is_refused_before_anything_is_built(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "mount").mkdir()
    real = FileSystem.identity

    def identity(fs: FileSystem, path: Path) -> FileIdentity:
        return real(fs, path)._replace(device=0) if path.name == "mount" else real(fs, path)

    monkeypatch.setattr(FileSystem, "identity", identity)
    monkeypatch.setattr(directory_restore, "_building_place", pytest.fail)
    for name, why in (("dangling", "leads nowhere"), ("loop", "leads nowhere"), ("mount", "a file system is mounted")):
        with pytest.raises(SpillableError, match=why):
            ss.restore(copy, tmp_path / name, new_identity=True)


@pytest.mark.parametrize("folder", ["events", "states"])
def test_a_damaged_backup_creates_no_channel(copy: Path, tmp_path: Path, folder: str) -> None:
    no_damage_makes_a_channel(copy, next((copy / folder).iterdir()), tmp_path)


def no_damage_makes_a_channel(copy: Path, file: Path, tmp_path: Path) -> None:
    """Damage a file of a backup in several ways, and see that each is refused and leaves nothing."""
    whole = file.read_bytes()
    for damage in (lambda: flip(file, len(whole) // 2), lambda: file.write_bytes(whole[:-9]), file.unlink):
        file.write_bytes(whole)
        damage()
        with pytest.raises(CorruptionError):
            ss.restore(copy, tmp_path / "r", new_identity=True)
        assert not (tmp_path / "r").exists() and not list(tmp_path.glob(".*"))


def test_a_damaged_copy_of_a_side_file_creates_no_channel(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 10_000, b"late" * 30)
        ss.backup(channel, copy)
    no_damage_makes_a_channel(copy, next((copy / "delays").iterdir()), tmp_path)


@pytest.mark.parametrize("new_identity", [False, True])
def test_side_files_are_spread_over_directories_again_and_appended_to(
    path: Path, tmp_path: Path, new_identity: bool
) -> None:
    with Channel(path, minimum_required_space=0, data_dirs=[str(tmp_path / "d1"), str(tmp_path / "d2")]) as channel:
        clock = clock_of(channel)
        for seconds in (10_000, 1_000_000):
            put_late(channel, seconds, b"%d" % seconds)
        ss.backup(channel, tmp_path / "copy")
    path.rename(tmp_path / "away")
    ss.restore(tmp_path / "copy", path, new_identity=new_identity)
    side_files = sorted((path / "data").glob("delayed-*"))
    assert len(side_files) == 2
    with Channel(path, create=False, minimum_required_space=0) as channel:
        deliveries_of(channel).clock_ms = clock
        put_late(channel, 10_000, b"as late")
        assert sorted((path / "data").glob("delayed-*")) == side_files
        clock.pass_by(20_000)
        assert take(channel) == [b"10000", b"as late"]
    assert ss.verify(path).healthy


def test_a_hole_of_a_side_file_stays_one(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        clock_of(channel).begin_stretch(10_000)
        for body in (b"a" * 100, b"b" * 100, b"c" * 100):
            put_late(channel, 10_000, body)
    (file,) = (path / "data").glob("delayed-*")
    flip(file, file.read_bytes().index(b"b" * 100))
    ss.repair(path)
    ss.backup(path, tmp_path / "copy")
    assert ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True).delayed_events == 2
    with Channel(tmp_path / "r", create=False, minimum_required_space=0) as channel:
        clock_of(channel).pass_by(20_000)
        assert take(channel) == [b"a" * 100, b"c" * 100]


def restored_before_the_signal(place: Path) -> bool:
    """Kill a restore once it has begun; tell whether a busy machine let it be whole before."""
    process = start("restore", place / "copy", place / "r", "--new-identity", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(place.glob(".restoring-*/channel")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not (place / "r").exists():
        return False
    with Channel(place / "r", create=False) as channel:
        assert channel.stats().channel_size == 10_000, "what is there is whole"
    return True


def test_a_restore_that_is_killed_leaves_no_channel_and_is_done_again(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        for i in range(20):
            put(channel, *[b"%d" % i * 2000] * 500)
        ss.backup(channel, tmp_path / "copy")
    while restored_before_the_signal(tmp_path):
        shutil.rmtree(tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True).events == 10_000
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("what", ["restore", "verify"])
def test_of_two_restores_to_one_path_at_once_one_fails_and_leaves_the_other_alone(
    copy: Path, tmp_path: Path, what: str
) -> None:
    other: list[str] = []

    def let_another_overtake(progress: Progress) -> None:
        if progress.what == what and not other:
            other.append("")
            other[0] = ss.restore(copy, tmp_path / "r", new_identity=True).channel

    with pytest.raises(ChannelError, match=f"{tmp_path / 'r'} is there: move it away"):
        ss.restore(copy, tmp_path / "r", new_identity=True, progress=let_another_overtake)
    assert not list(tmp_path.glob(".*")) and ss.verify(tmp_path / "r").healthy
    with Channel(tmp_path / "r", create=False) as channel:
        assert channel.uuid == other[0] and peek(channel) == numbered(2, 9)


def test_a_channel_whose_name_may_not_be_durable_is_said_to_be_there(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_directory, place = FileSystem.sync_directory, tmp_path / "r"

    def fail_at_the_end(self: FileSystem, path: Path) -> None:
        if path == tmp_path and place.exists():
            raise StorageError("no sync")
        sync_directory(self, path)

    monkeypatch.setattr(FileSystem, "sync_directory", fail_at_the_end)
    with pytest.raises(StorageError, match=rf"was created at {place}, and is whole, but a power cut .*: no sync"):
        ss.restore(copy, place, new_identity=True)
    assert ss.verify(place).healthy


def test_a_restore_that_cannot_lock_where_it_builds_leaves_nothing(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory and, if only the lock was refused, its file stayed on the full disk until the next restore."""
    before, refused = {*tmp_path.iterdir()}, list[Path]()

    def refuse(lock: FileLock, **_: object) -> bool:
        refused.append(lock.path)
        raise StorageError("no lock")

    with monkeypatch.context() as broken:
        broken.setattr(FileLock, "try_acquire", refuse)
        with pytest.raises(StorageError, match="no lock"):
            ss.restore(copy, tmp_path / "r", new_identity=True)
    assert [path.name for path in refused] == ["lock"] and {*tmp_path.iterdir()} == before
    assert ss.restore(copy, tmp_path / "r", new_identity=True).is_new
