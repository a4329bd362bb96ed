"""Directories of a channel that are missing, not mounted, empty, or another channel's; an identity that is lost."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import ChannelError, ForeignDirectoryError, NotAChannelError
from tests.lab.contents import changes, files_that_count
from tests.lab.machine import mounted
from tests.support import pythons
from tests.support.damage import kill, memory_of, reboot
from tests.support.events import numbered, peek, put, take

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
_OPTIONS: dict[str, Any] = {"minimum_required_space": 0, "max_file_size": 4000, "max_inline_bytes": 1 << 20}
# Which option creates a directory elsewhere.
OPTIONS = ("data_dirs", "two data_dirs", "checkpoint_dir", "backup_checkpoint_dir")
HEADS = pytest.mark.parametrize("rebooted", [False, True], ids=["", "rebooted"])


def options_with(option: str, *directories: Path) -> dict[str, Any]:
    """Return the options of a channel that has a directory, or two, elsewhere."""
    if option.endswith("data_dirs"):
        return {**_OPTIONS, "data_dirs": [str(d) for d in directories]}
    return {**_OPTIONS, option: str(directories[0])}


def fill(path: Path, first: int = 0, **options: Any) -> None:
    """Create a channel with 40 events in several data files and with checkpoints, which no group has taken."""
    with Channel(path, **options) as channel:
        for i in range(4):
            put(channel, *(b"%d" % n + b" " * 100 for n in range(first + 10 * i, first + 10 * i + 10)))
            channel.checkpoint()


def held(path: Path) -> list[int]:
    """Return the numbers of the events that a channel holds."""
    with Channel(path, create=False) as channel:
        return [int(body) for body in peek(channel, 1000)]


def everything(*directories: Path) -> dict[str, bytes | None]:
    """Return every file and directory, also locks and heads: who is refused writes nothing."""
    found: dict[str, bytes | None] = {}
    for directory in directories:
        for path in (directory, *directory.rglob("*")):
            found[str(path)] = path.read_bytes() if path.is_file() else None
    return found


def refused(path: Path, named: Path, *watched: Path) -> list[str]:
    """Return what is wrong with how a channel is refused one of whose directories is not what it was.

    Args:
        path: the channel.
        named: the directory that the error must name.
        watched: directories in which nothing may change.
    """
    wrong, before = [], everything(*watched)
    for create in (True, False):
        try:
            Channel(path, create=create).close()
            wrong.append(f"it opened, create={create}")
        except ForeignDirectoryError as e:
            if str(named) not in str(e):
                wrong.append(f"the error does not name {named}: {e}")
        except SpillableError as e:
            wrong.append(f"it raised {e!r}")
        after = everything(*watched)
        wrong += [
            f"{name} was changed"
            for name in sorted(before.keys() | after.keys())
            if before.get(name, 0) != after.get(name, 0)
        ]
    return wrong


def done_without(path: Path, backup: Path) -> list[str]:
    """Return what is wrong with how a channel does without a backup of its checkpoints that is not what it was.

    Args:
        path: the channel.
        backup: where its backup was.
    """
    before = everything(backup) if backup.exists() else {}
    with Channel(path, create=False) as channel:
        channel.checkpoint()
        found = [int(body) for body in peek(channel, 1000)]
    after = everything(backup) if backup.exists() else {}
    return [] if (found, after) == ([*range(40)], before) else [f"it holds {found}, and wrote {after.keys() - before}"]


def refused_or_done_without(option: str, path: Path, gone: Path, *watched: Path) -> list[str]:
    """Return what is wrong with how a channel behaves without a directory that an option made."""
    return done_without(path, gone) if option.startswith("backup") else refused(path, gone, *watched)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("how", ["missing", "empty"])
@HEADS
def test_a_directory_that_is_gone_is_missed_and_nothing_is_created_in_its_place(
    tmp_path: Path, option: str, how: str, rebooted: bool
) -> None:
    path, first, second = (tmp_path / name for name in ("channel", "first", "second"))
    fill(path, **options_with(option, first, second))
    if rebooted:
        reboot(path)
    gone = first if option != "two data_dirs" else max((first, second), key=lambda d: sorted(os.listdir(d))[-1])
    gone.rename(tmp_path / "away")
    if how == "empty":
        gone.mkdir()
    assert refused_or_done_without(option, path, gone, tmp_path) == []
    if how == "empty":
        gone.rmdir()
    (tmp_path / "away").rename(gone)
    assert held(path) == [*range(40)]


@NEEDS_ROOT
@pytest.mark.parametrize("option", OPTIONS)
@HEADS
def test_a_disk_that_is_not_mounted_is_missed_and_nothing_is_created_in_its_place(
    tmp_path: Path, option: str, rebooted: bool
) -> None:
    path, disk, second, image = (tmp_path / name for name in ("channel", "disk", "second", "image"))
    disk.mkdir()
    with mounted(disk, 64 << 20):
        fill(path, **options_with(option, disk, second))
        shutil.copytree(disk, image, symlinks=True)  # of a file system in memory nothing stays
    if rebooted:
        reboot(path)
    assert refused_or_done_without(option, path, disk, tmp_path) == []
    assert os.listdir(disk) == []


@pytest.mark.parametrize("option", OPTIONS)
@HEADS
def test_a_directory_of_another_channel_is_refused_and_left_alone(tmp_path: Path, option: str, rebooted: bool) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    directories = [[tmp_path / f"{name}-{i}" for i in (1, 2)] for name in ("one", "two")]
    for i in (0, 1):
        fill(paths[i], 100 * i, **options_with(option, *directories[i]))
        if rebooted:
            reboot(paths[i])
    spare, mine, other = tmp_path / "spare", directories[0][0], directories[1][0]
    for source, target in (mine, spare), (other, mine), (spare, other):
        source.rename(target)
    assert refused_or_done_without(option, paths[0], mine, tmp_path) == []
    if not option.startswith("backup"):
        assert refused(paths[1], other, tmp_path) == []
    for source, target in (mine, spare), (other, mine), (spare, other):
        source.rename(target)
    assert [held(path) for path in paths] == [[*range(40)], [*range(100, 140)]]


def test_two_data_directories_that_changed_places_are_refused(tmp_path: Path) -> None:
    path, one, two, spare = (tmp_path / name for name in ("channel", "one", "two", "spare"))
    fill(path, **options_with("two data_dirs", one, two))
    for source, target in (one, spare), (two, one), (spare, two):
        source.rename(target)
    assert refused(path, one, tmp_path) == [] or refused(path, two, tmp_path) == []


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("in_use", [False, True])
def test_no_new_channel_gets_a_directory_that_another_one_has(tmp_path: Path, option: str, in_use: bool) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = options_with(option, tmp_path / "first", tmp_path / "second")
    fill(one, **options)
    live = Channel(one) if in_use else None
    before = files_that_count(tmp_path)
    with pytest.raises(ForeignDirectoryError, match=str(tmp_path / "first")):
        Channel(two, **options)
    with pytest.raises(ForeignDirectoryError, match=str(tmp_path / "first")):  # nor with another role
        Channel(two, **options_with("checkpoint_dir" if "data" in option else "data_dirs", tmp_path / "first"))
    assert changes(before, {n: c for n, c in files_that_count(tmp_path).items() if not n.startswith("two/")}) == []
    assert not (two / "channel.json").exists()
    if live is not None:
        put(live, b"40")
        live.checkpoint()
        live.close()
    assert held(one) == [*range(40 + in_use)]


def test_the_directory_of_another_channel_itself_is_not_a_data_directory(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    fill(one, **_OPTIONS)
    before = files_that_count(one)
    for directory in (one, one / "data", one / "checkpoint"):
        for option in ("data_dirs", "checkpoint_dir", "backup_checkpoint_dir"):
            with pytest.raises(ForeignDirectoryError, match=str(directory)):
                Channel(two, **options_with(option, directory))
    assert changes(before, files_that_count(one)) == []
    assert held(one) == [*range(40)]


# ── owner files ─────────────────────────────────────────────────────────────────────────────────


def _flip(file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


_OWNERS: dict[str, Callable[[Path, Path], object]] = {
    "damaged": _flip,
    "empty": lambda file, other: file.write_bytes(b""),
    "nonsense": lambda file, other: file.write_text(json.dumps({"channel": 1})),
    "another's": lambda file, other: file.write_bytes(other.read_bytes()),
}


def _places(path: Path) -> dict[str, Path]:
    """Return the directories of a channel that `options` made, by the name of their role."""
    return {
        "channel": path,
        "data": path / "data",
        "checkpoint": path / "checkpoint",
        "data elsewhere": path.with_name(f"{path.name}-elsewhere"),
        "backup": path.with_name(f"{path.name}-backup"),
    }


def _with_places(path: Path, place: str) -> dict[str, Any]:
    elsewhere = {"data_dirs": [str(_places(path)["data elsewhere"])]} if place == "data elsewhere" else {}
    backup = {"backup_checkpoint_dir": str(_places(path)["backup"])} if place == "backup" else {}
    return {**_OPTIONS, **elsewhere, **backup}


@pytest.mark.parametrize("place", ["channel", "data", "checkpoint", "data elsewhere", "backup"])
def test_every_directory_says_whose_it_is(tmp_path: Path, place: str) -> None:
    path = tmp_path / "channel"
    fill(path, **_with_places(path, place))
    with Channel(path) as channel:
        assert channel.uuid in (_places(path)[place] / "owner.json").read_text()


@pytest.mark.parametrize("place", ["channel", "data", "checkpoint", "data elsewhere", "backup"])
@pytest.mark.parametrize("how", _OWNERS)
def test_an_owner_file_that_is_not_this_channels_is_refused(tmp_path: Path, place: str, how: str) -> None:
    path, other = tmp_path / "channel", tmp_path / "other"
    for at, first in (path, 0), (other, 100):
        fill(at, first, **_with_places(at, place))
    owner = _places(path)[place] / "owner.json"
    kept = owner.read_bytes()
    _OWNERS[how](owner, _places(other)[place] / "owner.json")
    if place == "backup":
        assert done_without(path, owner.parent) == []
    elif place == "checkpoint" and how != "another's":  # it holds nothing that can be missed
        assert held(path) == [*range(40)]
    else:
        assert refused(path, owner.parent, tmp_path) == []
    owner.write_bytes(kept)
    assert (held(path), held(other)) == ([*range(40)], [*range(100, 140)])


@pytest.mark.parametrize("place", ["channel", "data", "checkpoint", "data elsewhere", "backup"])
def test_an_owner_file_that_is_missing_is_refused_or_harms_nothing(tmp_path: Path, place: str) -> None:
    path = tmp_path / "channel"
    fill(path, **_with_places(path, place))
    owner = _places(path)[place] / "owner.json"
    kept = owner.read_bytes()
    owner.unlink()
    if refused(path, owner.parent, tmp_path) == []:
        owner.write_bytes(kept)
    assert held(path) == [*range(40)]


# ── the identity ────────────────────────────────────────────────────────────────────────────────


def _command(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "spillable_stream", *arguments]
    done = pythons.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("create", [True, False])
def test_a_channel_without_its_identity_is_refused_and_keeps_its_files(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "channel"
    fill(path, **_OPTIONS)
    (path / "channel.json").unlink()
    before = everything(path)
    with pytest.raises(NotAChannelError, match="spillable repair") as raised:
        Channel(path, create=create)
    assert "channel.json" in str(raised.value)
    before.setdefault(str(path / "open.lock"), b"")
    assert everything(path) == before


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("killed", [False, True])
def test_a_channel_without_its_identity_can_be_repaired_and_everything_is_there(
    tmp_path: Path, memory: int, killed: bool
) -> None:
    path = tmp_path / "channel"
    fill(path, **_OPTIONS)
    channel = Channel(path, memory_capacity=memory, byte_capacity=1 << 20)
    uuid = channel.uuid
    put(channel, b"40")
    assert take(channel, 3) == [b"%d" % n + b" " * 100 for n in range(3)]
    if killed:
        kill(channel)
    else:
        channel.close()
    (path / "channel.json").unlink()
    watched = [path, *([memory_of(path)] if (path / "memory").is_symlink() else [])]
    before = [files_that_count(directory) for directory in watched]
    for create in (True, False):
        with pytest.raises(NotAChannelError):
            Channel(path, create=create)
        for directory, files in zip(watched, before, strict=True):
            assert changes(files, files_that_count(directory)) == []
    code, output = _command("repair", str(path))
    assert code == 0, output
    with Channel(path, create=False) as channel:
        assert channel.uuid == uuid
        assert channel.stats().lost == channel.stats().doubtful == ()
        assert [int(body) for body in take(channel)] == [*range(3, 41)]


def test_a_killed_channel_with_a_memory_tier_and_no_identity_says_that_it_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    channel = Channel(path, **_OPTIONS, memory_capacity=1000, byte_capacity=1 << 20)
    put(channel, b"in memory")
    kill(channel)
    (path / "channel.json").unlink()
    with pytest.raises(NotAChannelError, match="spillable repair"):
        Channel(path)


def test_verify_says_of_a_channel_without_its_identity_that_it_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    fill(path, **_OPTIONS)
    (path / "channel.json").unlink()
    before = everything(path)
    code, output = _command("verify", str(path))
    assert code != 0 and "repair" in output
    assert everything(path) == before


def test_a_creation_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    """What it left holds no commit, and nothing that would be missed."""
    path = tmp_path / "channel"
    Channel(path, **_OPTIONS).close(checkpoint=False)
    (path / "channel.json").unlink()
    with Channel(path, **_OPTIONS) as channel:
        put(channel, *numbered(0, 3))
    with Channel(path, create=False) as channel:
        assert take(channel) == numbered(0, 3)


@pytest.mark.parametrize("option", ["data_dirs", "two data_dirs"])
def test_data_elsewhere_of_a_channel_that_is_gone_is_not_taken_for_a_new_one(tmp_path: Path, option: str) -> None:
    path, options = tmp_path / "channel", options_with(option, tmp_path / "first", tmp_path / "second")
    fill(path, **options)
    shutil.rmtree(path)
    before = everything(tmp_path / "first", tmp_path / "second")
    with pytest.raises((NotAChannelError, ForeignDirectoryError)) as raised:
        Channel(path, **options)
    assert isinstance(raised.value, ChannelError)
    assert everything(tmp_path / "first", tmp_path / "second") == before
