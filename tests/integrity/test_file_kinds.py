"""Names of a channel at which something of another kind is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, StorageError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from tests.support.events import numbered, put, take


def _link_elsewhere(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a named pipe": os.mkfifo,
    "a symbolic link": _link_elsewhere,
    "a socket": _socket,
}

FILES = [
    "channel.json",
    "owner.json",
    "lock",
    "open.lock",
    "checkpoint.lock",
    "upkeep.lock",
    "head",
    "memory.json",
    "store.lock",
    "data/log-000001",
    "data/delayed-000001",
    "data/owner.json",
    "checkpoint/owner.json",
]


@pytest.fixture
def channel(path: Path) -> Path:
    with Channel(path, minimum_required_space=0) as opened:
        put(opened, *numbered(0, 6))
        take(opened, 2, "g")
    (path / "producers").mkdir(exist_ok=True)
    return path


def use(path: Path) -> None:
    with Channel(path, create=False) as opened:
        put(opened, *numbered(6, 7))
        take(opened, 1, "g")
        opened.checkpoint()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_verify_and_repair_name_what_is_not_a_file_and_say_what_to_do(channel: Path, name: str, kind: str) -> None:
    file, aside = channel / name, channel.parent / "aside"
    if was_there := file.exists():
        file.rename(aside)
    KINDS[kind](file)
    for look in (verify, repair):
        with pytest.raises(CorruptionError) as raised:
            look(channel)
        assert f"{file} is {kind}, and not a file: move it away" in str(raised.value)
    file.rename(channel.parent / "away")
    if was_there:
        aside.rename(file)
    assert verify(channel).healthy
    use(channel)


@pytest.mark.parametrize("name", ["checkpoint/checkpoint-*", "groups/g.position"])
def test_a_link_among_files_that_are_listed_is_named(channel: Path, name: str) -> None:
    """A verify, and a repair, ended with the words of the system."""
    (channel / "groups" / "g.position").touch()
    file = next(channel.glob(name))
    file.rename(channel.parent / "aside")
    file.symlink_to(channel.parent / "aside")
    for look in (verify, repair):
        with pytest.raises(CorruptionError, match=f"{file} is a symbolic link, and not a file: move it away"):
            look(channel)
    file.unlink()
    (channel.parent / "aside").rename(file)
    assert verify(channel).healthy


@pytest.mark.parametrize("name", ["lock", "open.lock", "checkpoint.lock", "head", "checkpoint"])
def test_what_is_moved_away_need_not_be_put_back_where_no_events_were_in_it(channel: Path, name: str) -> None:
    file = channel / name
    file.rename(channel.parent / "aside")
    os.mkfifo(file)
    with pytest.raises(CorruptionError):
        repair(channel)
    file.unlink()
    repair(channel)
    use(channel)
    assert verify(channel).healthy


@pytest.mark.parametrize("name", ["data/log-000002", "checkpoint/checkpoint-000009-000000000001", "groups/other.lock"])
def test_a_name_that_the_channel_does_not_need_is_passed_over(channel: Path, name: str) -> None:
    (channel / name).mkdir()
    assert verify(channel).healthy
    use(channel)


@pytest.mark.parametrize("name", ["data", "checkpoint", "groups", "producers", "memory"])
@pytest.mark.parametrize("kind", ["a named pipe", "a file"])
def test_verify_and_repair_name_what_is_not_a_directory(channel: Path, name: str, kind: str) -> None:
    directory = channel / name
    if directory.exists():
        directory.rename(channel.parent / "aside")
    os.mkfifo(directory) if kind == "a named pipe" else directory.touch()
    for look in (verify, repair):
        with pytest.raises(CorruptionError) as raised:
            look(channel)
        assert f"{directory} is {kind}, and not a directory: move it away" in str(raised.value)


def test_a_link_to_a_directory_of_the_channel_is_a_directory(channel: Path) -> None:
    groups = channel / "groups"
    groups.rename(channel.parent / "groups")
    groups.symlink_to(channel.parent / "groups")
    use(channel)
    assert verify(channel).healthy


def test_all_names_are_named_at_once(channel: Path) -> None:
    for name in ("head", "lock"):
        (channel / name).unlink()
        (channel / name).mkdir()
    with pytest.raises(CorruptionError, match=r"lock is a directory.*head is a directory.*: move them away"):
        verify(channel)


def test_an_open_that_meets_a_link_calls_it_one(channel: Path) -> None:
    (channel / "lock").rename(channel.parent / "aside")
    (channel / "lock").symlink_to(channel.parent / "aside")
    with pytest.raises(StorageError, match="lock failed: it is a symbolic link, which is not followed"):
        Channel(channel, create=False)
