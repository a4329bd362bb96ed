"""Creating a channel: what a crash in the middle leaves, and what then is durable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event, StorageError
from spillable_stream.engine.local import creation
from spillable_stream.engine.local.creation import create_channel
from spillable_stream.errors import ForeignDirectoryError, NotAChannelError, OptionError
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.log.layout import Layout
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.storage import lock
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import put, take
from tests.support.fake_files import FaultyFileSystem, InMemory, PausingFileSystem, nth, since
from tests.support.interleaving import Interleaving


def test_directories_that_a_killed_creation_left_unsynced_are_synced(tmp_path: Path) -> None:
    """Else a power cut takes the channel away, with all that was acknowledged since."""
    (tmp_path / "above" / "channel" / "data").mkdir(parents=True)
    fs = FaultyFileSystem()
    with Channel(tmp_path / "above" / "channel", fs=fs, minimum_required_space=0):
        pass
    assert fs.count("sync_directory", tmp_path.name) >= 1  # holds the name of `above`
    assert fs.count("sync_directory", "above") >= 1
    assert fs.count("sync_directory", "channel") >= 1


def test_what_a_failed_creation_did_not_sync_is_synced_before_anything_is_acknowledged(tmp_path: Path) -> None:
    made = False
    for number in range(1, 20):
        path, fs = tmp_path / str(number) / "channel", FaultyFileSystem()
        with fs.failing(since(nth("sync_directory", number, "channel"))), pytest.raises(StorageError):
            Channel(path, fs=fs, minimum_required_space=0)
        made = (path / "channel.json").exists()
        synced = {c.file for c in fs.calls[:-1] if c.name == "sync_directory"}
        fs = FaultyFileSystem()
        with Channel(path, fs=fs, minimum_required_space=0) as channel, channel.put_transaction() as tx:
            tx.put(Event(b"one"))
            again = {c.file for c in fs.calls if c.name == "sync_directory"}
            assert "channel" in again and str(number) in synced | again
        if made:
            break
    assert made, "the last sync of a creation is the identity's"


@pytest.mark.parametrize("name", ["images", "rows-0"])
def test_an_owner_file_that_a_failed_creation_did_not_sync_is_synced_before_anything_is_acknowledged(
    tmp_path: Path, name: str
) -> None:
    """Else a power cut takes it away, and the channel is refused for a directory that is not proven to be its own."""
    options = {
        "checkpoint_dir": str(tmp_path / "images"),
        "data_dirs": [str(tmp_path / "rows-0"), str(tmp_path / "rows-1")],
        "minimum_required_space": 0,
    }
    fs = FaultyFileSystem()
    with fs.failing(since(nth("sync_directory", 1, name))), pytest.raises(StorageError):
        Channel(tmp_path / "channel", fs=fs, **options)
    assert (tmp_path / name / "owner.json").exists()
    fs = FaultyFileSystem()
    with Channel(tmp_path / "channel", fs=fs, **options):
        assert fs.count("sync_directory", name)


def test_a_creation_that_was_cut_short_is_done_again_with_directories_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    options = {
        "checkpoint_dir": str(path / "images"),
        "backup_checkpoint_dir": str(path / "copies"),
        "data_dirs": [str(path / "rows")],
        "minimum_required_space": 0,
    }
    for number in range(1, 30):
        fs = FaultyFileSystem()
        try:
            with fs.failing(since(nth("rename", number, ""))):
                Channel(path, fs=fs, **options).close(checkpoint=False)
        except StorageError:
            assert not (path / "channel.json").exists()
        else:
            break
    assert number > 3
    with Channel(path, minimum_required_space=0) as channel:
        assert put(channel, b"one")[0] == 1


def test_a_creation_that_was_cut_short_is_not_done_again_with_directories_in_another_order(tmp_path: Path) -> None:
    path, fs, data = tmp_path / "channel", FaultyFileSystem(), [str(tmp_path / "one"), str(tmp_path / "two")]
    with fs.failing(since(nth("rename", 5, ""))), pytest.raises(StorageError):
        Channel(path, fs=fs, data_dirs=data)
    with pytest.raises(ForeignDirectoryError, match="give the same directories as then, in that order"):
        Channel(path, data_dirs=data[::-1])
    with Channel(path, data_dirs=data, minimum_required_space=0) as channel:
        assert put(channel, b"one")[0] == 1


@pytest.mark.parametrize("trace", ["checkpoint", "head"])
def test_a_channel_whose_identity_and_data_are_out_of_sight_is_not_created_anew(tmp_path: Path, trace: str) -> None:
    """The identity was removed, and the disk of the data is not mounted."""
    path, data = tmp_path / "channel", tmp_path / "disk" / "data"
    with Channel(path, data_dirs=[str(data)], minimum_required_space=0) as channel:
        put(channel, b"one")
        channel.checkpoint()
    for name in ("channel.json", "owner.json", "checkpoint/owner.json"):
        (path / name).unlink()
    data.parent.rename(tmp_path / "unmounted")
    data.mkdir(parents=True)
    if trace == "head":
        shutil.rmtree(path / "checkpoint")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "open.lock"}
    with pytest.raises(NotAChannelError, match=f"{trace}.* says that a channel was used here"):
        Channel(path, data_dirs=[str(data)], minimum_required_space=0)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "open.lock"} == before


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"data_dirs": ["{0}/new", "{0}/file"]}, StorageError, "file failed: .*file is a file"),
        ({"data_dirs": ["{0}/new", "{0}/file/data"]}, StorageError, "file/data failed: .*file is a file"),
        ({"checkpoint_dir": "{0}/file"}, StorageError, "file failed: .*file is a file"),
        ({"data_dirs": ["{0}/new", "{0}/other"]}, ForeignDirectoryError, "is home of the channel"),
        ({"data_dirs": ["{0}/new", "{0}/other/data"]}, ForeignDirectoryError, "is data-0 of the channel"),
        ({"checkpoint_dir": "{0}/other/checkpoint"}, ForeignDirectoryError, "is checkpoint of the channel"),
        ({"data_dirs": ["{0}/new", "{0}/../{1}/new"]}, OptionError, "are the same directory"),
        ({"data_dirs": ["{0}/new", "{0}/readonly/data"]}, StorageError, "Permission denied"),
    ],
)
def test_a_channel_that_can_be_seen_to_be_impossible_leaves_nothing(
    tmp_path: Path,
    options: dict[str, str | list[str]],
    error: type[Exception],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "readonly").mkdir()
    Channel(tmp_path / "other", minimum_required_space=0).close()
    real = os.access  # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **_: "readonly" not in str(path) and real(path, mode))

    def placed(value: str | list[str]) -> str | list[str]:
        return [str(placed(v)) for v in value] if isinstance(value, list) else value.format(tmp_path, tmp_path.name)

    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=words):
        Channel(tmp_path / "above" / "channel", **{name: placed(value) for name, value in options.items()})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_creation_beside_another_one_is_judged_when_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins after this one has looked whether there is one, and puts before it looks any further."""
    path, original, others = tmp_path / "channel", creation.require_unowned, [1]

    def after_another(fs: FileSystem, layout: Layout) -> None:
        if others:
            others.clear()
            with Channel(path, minimum_required_space=0) as other:
                put(other, b"one")
        original(fs, layout)

    monkeypatch.setattr(creation, "require_unowned", after_another)
    with Channel(path, minimum_required_space=0) as channel:
        assert take(channel) == [b"one"]


def test_one_directory_is_not_given_twice_by_links(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(OptionError, match=r"/data and .*/link are the same directory"):
        Channel(tmp_path / "channel", data_dirs=[str(tmp_path / "data"), str(tmp_path / "link")])


def test_an_identity_that_was_removed_from_under_handles_is_not_made_again(tmp_path: Path) -> None:
    with Channel(tmp_path / "channel", minimum_required_space=0) as channel:
        put(channel, b"one")
        (tmp_path / "channel" / "channel.json").unlink()
        with pytest.raises(NotAChannelError, match="but handles have the channel open"):
            Channel(tmp_path / "channel")


@pytest.mark.parametrize("torn", [1, 2, 3], ids=["the end", "the beginning", "the middle"])
def test_a_creation_whose_first_file_was_torn_is_done_again(tmp_path: Path, torn: int) -> None:
    """A power cut loses any sectors of what was not synced."""
    path = tmp_path / "channel"
    Channel(path, minimum_required_space=0).close(checkpoint=False)
    (path / "channel.json").unlink()
    (path / "head").unlink()
    log = path / "data" / "log-000001"
    data = log.read_bytes().rstrip(b"\0")
    assert len(data) > 700
    log.write_bytes({1: data[:512], 2: bytes(512) + data[512:], 3: data[:60] + bytes(400) + data[460:]}[torn])
    with Channel(path, minimum_required_space=0) as channel:
        assert put(channel, b"one")[0] == 1


def test_a_data_file_of_nobody_known_is_not_taken_for_a_creation_that_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, b"one")
    for name in ("channel.json", "owner.json", "head", "data/owner.json", "checkpoint/owner.json"):
        (path / name).unlink()
    before = (path / "data" / "log-000001").read_bytes()
    with pytest.raises(NotAChannelError, match=r"either its channel\.json was removed"):
        Channel(path, minimum_required_space=0)
    assert (path / "data" / "log-000001").read_bytes() == before


@pytest.mark.parametrize("data", ["a channel's", "somebody's"])
def test_a_creation_that_is_done_again_takes_no_file_for_its_own(tmp_path: Path, data: str) -> None:
    """A data directory of a first release has no owner file; nor has what is no channel's at all."""
    path, other, found = tmp_path / "channel", tmp_path / "other", tmp_path / "found"
    fs = FaultyFileSystem()
    with fs.failing(since(nth("rename", 4, ""))), pytest.raises(StorageError):
        Channel(path, fs=fs, minimum_required_space=0)
    assert (path / "owner.json").exists() and not (path / "channel.json").exists()
    with Channel(other, minimum_required_space=0) as channel:
        put(channel, b"one")
    (other / "data").rename(found)
    (found / "owner.json").unlink()
    if data == "somebody's":
        (found / "log-000001").write_text("what I want to remember: " + "something; " * 100)
    before = (found / "log-000001").read_bytes()
    with pytest.raises(NotAChannelError, match="nothing was changed"):
        Channel(path, data_dirs=[str(found)], minimum_required_space=0)
    assert (found / "log-000001").read_bytes() == before


class At(FaultyFileSystem):
    """The real file system, on which another process acts right before the n-th call.

    Args:
        number: n, counted from 1.
        act: what the other process does.
    """

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._left, self._act = number, act

    def before(self, name: str, path: Path) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()
        super().before(name, path)

    @property
    def has_acted(self) -> bool:
        """Whether there was such a call."""
        return self._left <= 0


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("outer_first", [True, False])
def test_of_two_channels_that_are_created_at_once_one_in_the_other_only_one_is_there(
    tmp_path: Path, outer_first: bool, step: int
) -> None:
    """The second one is created as a whole at any moment of the first one's creation."""
    both_sides = set()
    for number in count(1, step):
        outer = tmp_path / str(number)
        paths = [outer, outer / "data" / "inner"]
        first, second = paths if outer_first else paths[::-1]
        fs = At(number, lambda path=second: created(path))
        created(first, fs=fs)
        if not fs.has_acted:
            break
        (there,) = [path for path in paths if (path / "channel.json").exists()]
        owned = [path.parent for path in outer.rglob("owner.json")]
        assert all(path.is_relative_to(there) for path in owned)
        assert there == paths[1] or paths[1] not in owned
        both_sides.add(there == outer)
    assert both_sides == {True, False}


def created(path: Path, **how: Any) -> None:
    """Create a channel, if it is not refused."""
    with suppress(OptionError, NotAChannelError):
        Channel(path, minimum_required_space=0, **how).close()


@pytest.mark.parametrize("name", ["upkeep.lock", "store", "store.lock"])
def test_a_channel_that_lost_its_identity_is_known_by_its_files_whichever_it_has(path: Path, name: str) -> None:
    """One that kept events, or was a spool, was another program's directory: the advice was to use another one."""
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"one")
    (path / "channel.json").unlink()
    (path / name).touch()
    with pytest.raises(NotAChannelError, match=f"has no channel.json, but .* 'spillable repair {path}' can rebuild it"):
        Channel(path)


@pytest.mark.parametrize("seed", range(12))
def test_of_two_channels_that_are_created_at_once_with_one_data_directory_one_has_it_and_the_other_is_refused(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one wrote over the owner file of the first, and removed its data file with the events in it."""
    paths, fixed = [tmp_path / "one", tmp_path / "two"], CreationOptions(data_dirs=[str(tmp_path / "rows")])
    history, refused = Interleaving(seed), dict[Path, str]()
    monkeypatch.setattr(lock, "time", history)

    def create(path: Path) -> None:
        try:
            create_channel(
                PausingFileSystem(history.pause), path, ChannelOptions(), fixed, [encode_schema(EVENT_SCHEMA)]
            )
        except ForeignDirectoryError as e:
            refused[path] = str(e)

    for path in paths:
        history.client(partial(create, path))
    history.run()
    monkeypatch.undo()
    ((loser, told),) = refused.items()
    assert "rows is data-0 of the channel " in told and "give every channel directories of its own" in told
    assert not loser.exists()
    (winner,) = (path for path in paths if path != loser)
    with Channel(winner, create=False, minimum_required_space=0) as channel:
        put(channel, b"one")
        assert take(channel) == [b"one"]


# ── in memory ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Temporary files are elsewhere; what is warned of."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    return lambda: [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_channel_in_memory_is_warned_of_once_it_is_created(path: Path, warned: Callable[[], list[str]]) -> None:
    for _ in range(2):
        Channel(path, fs=InMemory(path), minimum_required_space=0).close()
    assert warned() == [
        f"the channel {path} has its directory on a file system in memory: its events end with the host, whatever was "
        "committed. Create it on a disk"
    ]


def test_a_data_directory_in_memory_is_warned_of(tmp_path: Path, warned: Callable[[], list[str]]) -> None:
    rows = tmp_path / "rows"
    Channel(tmp_path / "c", fs=InMemory(rows), data_dirs=[tmp_path / "d", rows], minimum_required_space=0).close()
    assert [f"has {rows} on a file system in memory" in text for text in warned()] == [True]


def test_a_channel_among_temporary_files_is_meant_to_end(
    path: Path, warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(path.parent))
    Channel(path, fs=InMemory(path), minimum_required_space=0).close()
    assert warned() == []


def test_a_channel_on_a_disk_is_not_warned_of(path: Path, warned: Callable[[], list[str]]) -> None:
    Channel(path, fs=InMemory(path.parent / "other"), minimum_required_space=0).close()
    assert warned() == []
