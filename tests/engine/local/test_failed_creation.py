"""A creation that fails leaves nothing that is in the way of the next one."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.creation import create_channel
from spillable_stream.errors import ForeignDirectoryError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.format.file_names import CLAIM_LOCK
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import put, take
from tests.support.fake_files import Call, DyingFileSystem, FaultyFileSystem, nth, since

_WAIT_SECONDS = 60  # of a thread that hangs
_NEEDS_ROOM = ("create", "write", "preallocate", "sync", "sync_directory", "rename")


def at(number: int, calls: tuple[str, ...] = _NEEDS_ROOM) -> tuple[FaultyFileSystem, list[Call]]:
    """Return a disk that is full from a call on, and the calls that it has refused."""
    fs, left, refused = FaultyFileSystem(), [number], list[Call]()

    def needs_room(call: Call) -> bool:
        return call.name in calls

    def is_first(call: Call) -> bool:
        left[0] -= needs_room(call)
        return not left[0]

    chosen = since(is_first, needs_room)
    fs._fails = lambda call: chosen(call) and not refused.append(call)
    return fs, refused


@pytest.mark.parametrize("is_there", [True, False])
def test_a_creation_that_finds_the_disk_full_leaves_nothing_and_another_place_is_free_to_choose(
    tmp_path: Path, is_there: bool
) -> None:
    for number in count(1):
        directory = tmp_path / str(number)
        path, elsewhere = directory / "channel", directory / "full"
        (path if is_there else directory).mkdir(parents=True)
        elsewhere.mkdir()
        before = sorted(directory.rglob("*"))
        fs, refused = at(number)
        options = {"data_dirs": [str(elsewhere / "data")], "checkpoint_dir": str(elsewhere / "images")}
        with suppress(StorageError):
            Channel(path, fs=fs, minimum_required_space=0, **options).close()
        if not refused:
            break
        if (path / "channel.json").exists():  # but that may not be durable
            continue
        assert sorted(directory.rglob("*")) == before
        with Channel(path, minimum_required_space=0, data_dirs=[str(directory / "rows")]) as channel:
            put(channel, b"one")
        with Channel(directory / "other", minimum_required_space=0, **options):
            pass
    assert number > 20


def test_what_is_not_the_creations_stays(tmp_path: Path) -> None:
    path, data = tmp_path / "channel", tmp_path / "data"
    path.mkdir()
    data.mkdir()
    (data / "notes").write_text("somebody's")
    other = tmp_path / "other"
    Channel(other, minimum_required_space=0).close()
    with pytest.raises(ForeignDirectoryError):
        Channel(path, data_dirs=[str(data), str(other / "data")])
    fs, _ = at(12)
    with pytest.raises(StorageError):
        Channel(path, fs=fs, data_dirs=[str(data)])
    assert [p.name for p in data.iterdir()] == ["notes"] and not list(path.iterdir())
    with Channel(other, create=False) as channel:
        assert take(channel) == []


@pytest.mark.parametrize(
    ("first", "is_sick", "last"),
    [
        ("first", False, {"data_dirs": ["first"]}),
        ("first", False, {"data_dirs": ["second"]}),
        ("first", False, {}),
        ("first", True, {"data_dirs": ["first"]}),
        ("channel/first/rows", False, {"data_dirs": ["channel/first/rows"]}),
        ("channel/first/rows", False, {}),
    ],
)
def test_what_a_kill_has_left_is_in_no_way_of_the_next_one_where_another_that_continued_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, is_sick: bool, last: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "channel"
    killed(path, data_dirs=[first])
    fs = Keeps(tmp_path / first if is_sick else None)
    with fs.failing(nth("rename", 1, "channel.json")), pytest.raises(StorageError):
        Channel(path, fs=fs, minimum_required_space=0, data_dirs=["second"])
    assert ([p.name for p in tmp_path.rglob("*") if p.is_file()] != ["open.lock"]) == is_sick
    with Channel(path, minimum_required_space=0, **last) as channel:
        put(channel, b"one")
        assert take(channel) == [b"one"]


def test_of_a_creation_that_was_killed_anywhere_nothing_is_left_inside_of_a_channel_with_other_directories(
    tmp_path: Path,
) -> None:
    """A directory stayed, and in it the owner file that was being written."""
    for number in count():
        path = tmp_path / str(number) / "channel"
        with suppress(StorageError):
            fs = DyingFileSystem(number)
            Channel(path, fs=fs, data_dirs=[str(path / "more")], minimum_required_space=0).close(checkpoint=False)
        if (path / "channel.json").exists():
            break
        Channel(path, minimum_required_space=0).close()
        assert not (path / "more").exists()
        assert not [*path.rglob(CLAIM_LOCK), *path.rglob("*.tmp")]
    assert number > 20


@pytest.mark.parametrize("is_mount_point", [False, True])
@pytest.mark.parametrize("second", ["first", "second"])
def test_a_directory_whose_disk_is_away_while_the_next_creation_fails_is_in_no_way_of_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, is_mount_point: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path, first, away = tmp_path / "channel", tmp_path / "first", tmp_path / "away"
    killed(path, data_dirs=["first"])
    first.rename(away)
    if is_mount_point:
        first.mkdir()
    fs = FaultyFileSystem()
    with fs.failing(nth("rename", 1, "channel.json")), pytest.raises(StorageError):
        Channel(path, fs=fs, minimum_required_space=0, data_dirs=[second])
    if is_mount_point:
        first.rmdir()
    away.rename(first)
    with Channel(path, minimum_required_space=0, data_dirs=["first"]) as channel:
        put(channel, b"one")
        assert take(channel) == [b"one"]


@pytest.mark.parametrize("first", ["first", "channel/first/rows"])
def test_a_directory_that_a_killed_creation_had_is_free_once_the_next_one_has_named_another(
    tmp_path: Path, first: str
) -> None:
    path, data = tmp_path / "channel", tmp_path / first
    killed(path, data_dirs=[str(data)])
    with Channel(path, minimum_required_space=0, data_dirs=[str(tmp_path / "second")]) as channel:
        put(channel, b"one")
    assert not list(data.rglob("*")) and not (path / "first").exists()


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_a_directory_that_a_killed_creation_had_and_another_channel_has_since_is_in_no_way_of_the_next_one(
    tmp_path: Path, name: str
) -> None:
    path, data, other = tmp_path / "channel", tmp_path / "first", tmp_path / "other"
    killed(path, data_dirs=[str(data)])
    fs = FaultyFileSystem()  # of one that is killed once it has let go of the first one's directories
    with fs.failing(since(nth("rename", 1, "owner.json"))), pytest.raises(StorageError):
        Channel(path, fs=fs, minimum_required_space=0, data_dirs=[str(tmp_path / "second")])
    with Channel(other, minimum_required_space=0, data_dirs=[str(data)]) as channel:
        put(channel, b"other's")
    options = {"data_dirs": [str(tmp_path / name)], "minimum_required_space": 0}
    if name == "first":
        with pytest.raises(ForeignDirectoryError, match="give every channel directories of its own"):
            Channel(path, **options)
        options = {"minimum_required_space": 0}
    with Channel(path, **options) as channel:
        put(channel, b"one")
        assert take(channel) == [b"one"]
    with Channel(other, create=False, minimum_required_space=0) as channel:
        assert take(channel) == [b"other's"]


def test_a_copy_of_a_creation_that_was_killed_removes_nothing_of_the_original(tmp_path: Path) -> None:
    path, copy, data = tmp_path / "channel", tmp_path / "copy", [str(tmp_path / "first")]
    killed(path, data_dirs=data)
    shutil.copytree(path, copy)
    Channel(path, minimum_required_space=0, data_dirs=data).close()
    Channel(copy, minimum_required_space=0, data_dirs=[str(tmp_path / "second")]).close()
    with Channel(path, create=False, minimum_required_space=0) as channel:
        put(channel, b"one")
        assert take(channel) == [b"one"]


def killed(path: Path, **options: Any) -> None:
    """Create a channel but for its identity, as a process that is killed."""
    fs = FaultyFileSystem()
    with fs.failing(since(nth("rename", 1, "channel.json"))), pytest.raises(StorageError):
        Channel(path, fs=fs, minimum_required_space=0, **options)


class Keeps(FaultyFileSystem):
    """A disk of which one directory can no longer be written."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__()
        self._directory = directory

    def remove(self, path: Path) -> None:
        if path.parent == self._directory:
            raise StorageError(f"{path} is on a disk that can't be written")
        super().remove(path)


class Meets(FaultyFileSystem):
    """A disk that refuses the first data file, when another thread has come to create the same channel."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.other = threading.Thread(target=lambda: Channel(path, minimum_required_space=0).close())

    def before(self, name: str, path: Path) -> None:
        super().before(name, path)
        if name == "write" and path.name == "log-000001":
            self.other.start()
            raise StorageError("the disk is full")


def test_whoever_waits_for_a_creation_that_fails_creates_the_channel(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    fs = Meets(path)
    with pytest.raises(StorageError, match="the disk is full"):
        Channel(path, fs=fs, minimum_required_space=0)
    fs.other.join(_WAIT_SECONDS)
    assert not fs.other.is_alive()
    with Channel(path, create=False) as channel:
        put(channel, b"one")
        assert channel.engine().log.directories.are_in_place()  # type: ignore[attr-defined]
        assert take(channel) == [b"one"]


def test_an_open_right_after_the_creation_needs_no_room(tmp_path: Path) -> None:
    """It would fail, and the channel would be there: the next creation would find one."""
    path = tmp_path / "channel"
    create_channel(FileSystem(), path, ChannelOptions(), CreationOptions(), [encode_schema(EVENT_SCHEMA)])
    before = blocks_in(path)
    with Channel(path, create=False):
        assert blocks_in(path) == before


def blocks_in(path: Path) -> dict[Path, int]:
    """Return how much of the disk each file takes, but for the one whose record an open can do without."""
    return {p: p.stat().st_blocks for p in path.rglob("*") if p.is_file() and p.name != "open.lock"}
