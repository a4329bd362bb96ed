"""Who may open what a channel makes: its owner alone, or with `mode` the members of the Unix group of its directory."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, OptionError, StorageError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from tests.lab.users import NEEDS_USERS, NOBODY, SOMEBODY, common_directory, run_as
from tests.support.damage import flip, kill, log_file, memory_of
from tests.support.events import numbered, put, take

MEMORY: dict[str, Any] = {"minimum_required_space": 0, "memory_capacity": 10, "overflow_timeout": 0}
GROUP, STRANGER = 65000, 65001


@pytest.fixture
def common() -> Iterator[Path]:
    with common_directory() as directory:
        yield directory


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


def use(path: Path, **options: Any) -> Channel:
    """Do what makes files of all kinds, and return the open handle."""
    channel = Channel(path, **MEMORY, max_inline_bytes=2000, **options)
    channel.consumer("group")
    put(channel, *numbered(0, 5))
    put(channel, b"x" * 5000)
    put(channel, *numbered(0, 8))
    take(channel, 1, "group")
    channel.checkpoint()
    with channel.engine().committing():
        channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    channel.checkpoint()
    return channel


def modes_of(*directories: Path) -> dict[str, int]:
    """Return the modes of all files and directories there, by kind and in octal digits, with one path of each."""
    found: dict[str, int] = {}
    for directory in directories:
        for path in (directory, *directory.rglob("*")):
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode):
                kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
                found[f"{kind} {stat.S_IMODE(status.st_mode) & 0o777:o}"] = status.st_gid
    return found


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777], ids=oct)
@pytest.mark.parametrize(("mode", "files"), [(None, "600"), ("0770", "660"), (0o770, "660"), ("0o750", "640")])
def test_everything_has_the_mode_whatever_the_umask(
    path: Path, umask: Callable[[int], int], mask: int, mode: Any, files: str
) -> None:
    umask(mask)
    channel = use(path / "deeper", **({} if mode is None else {"mode": mode}))
    directories = "700" if mode is None else f"{int(str(mode), 8) if isinstance(mode, str) else mode:o}"
    assert modes_of(path / "deeper", memory_of(channel.path)).keys() == {f"directory {directories}", f"file {files}"}
    channel.close()
    umask(0o022)
    with use(path / "deeper") as channel:
        found = modes_of(path / "deeper", memory_of(channel.path))
        assert found.keys() == {f"directory {directories}", f"file {files}"}, "a later handle uses another one"


def test_it_is_recorded_where_it_is_not_the_default_and_is_fixed(path: Path) -> None:
    Channel(path, mode="0700").close()
    assert "mode" not in json.loads((path / "channel.json").read_text())
    shared = path.with_name("shared")
    Channel(shared, mode="0770").close()
    assert json.loads((shared / "channel.json").read_text())["mode"] == "0770"
    Channel(shared, mode=0o770).close()
    for at, other in ((path, "0770"), (shared, "0700")):
        with pytest.raises(OptionError, match="mode is fixed when a channel is created"):
            Channel(at, mode=other)


@pytest.mark.parametrize("mode", ["0777", "0755", "0600", 770, "rwx", 0, "", True])
def test_a_mode_that_lets_others_in_or_the_owner_out_is_refused(path: Path, mode: Any) -> None:
    with pytest.raises(OptionError, match="mode must be 0700, 0750 or 0770"):
        Channel(path, mode=mode)
    assert not path.exists()


def test_a_repair_keeps_it(path: Path) -> None:
    with Channel(path, minimum_required_space=0, mode="0770") as channel:
        put(channel, *numbered(0, 3))
    flip(log_file(path), 200)
    flip(path / "channel.json", 100)
    assert not verify(path).healthy
    repair(path)
    assert modes_of(path).keys() == {"directory 770", "file 660"}
    with Channel(path) as channel:
        put(channel, b"after")


# ── two users ───────────────────────────────────────────────────────────────────────────────────


def shared_directory(common: Path) -> Path:
    """Return a directory of somebody's that belongs to the group, as an administrator makes it."""
    path = common / "channel"
    path.mkdir()
    os.chown(path, SOMEBODY, GROUP)
    return path


@NEEDS_USERS
@pytest.mark.parametrize("die", [False, True], ids=["closed", "killed"])
def test_users_of_one_group_share_a_channel(common: Path, die: bool) -> None:
    path = shared_directory(common)

    def session(number: int) -> Callable[[], None]:
        def do() -> None:
            os.umask(0o077)
            channel = use(path, **({} if number else {"mode": "0770"}))
            assert channel.stats().last_id == 14 * (number + 1) and channel.stats().lost == ()
            assert channel.stats().memory.events > 0
            assert take(channel, 100, "group") == [*numbered(1, 4), b"x" * 5000, *numbered(0, 8)]
            if die:
                kill(channel)
            else:
                channel.close()

        return do

    for number, user in enumerate([SOMEBODY, NOBODY, NOBODY, SOMEBODY, NOBODY]):
        assert run_as(user, session(number), common / "stderr", GROUP) == ""
    places = [path, memory_of(path)] if die else [path]
    assert modes_of(*places) == {"directory 770": GROUP, "file 660": GROUP}

    def close() -> None:  # moves what is in memory to disk, and leaves the directory that another user made
        with Channel(path) as channel:
            assert channel.stats().lost == ()
        assert not os.path.lexists(path / "memory")

    assert run_as(NOBODY, close, common / "stderr", GROUP) == ""
    for directory in places[1:]:
        assert list(directory.iterdir()) == []
        directory.rmdir()


@NEEDS_USERS
def test_users_of_one_group_have_a_channel_open_together(common: Path) -> None:
    path = shared_directory(common)

    def make() -> None:
        Channel(path, **MEMORY, mode="0770").close()

    assert run_as(SOMEBODY, make, common / "stderr", GROUP) == ""
    with Channel(path, create=False) as channel:  # root's, whose files are somebody's
        put(channel, b"1")

        def consumer() -> None:
            with Channel(path) as other:
                assert take(other) == [b"1"]
                put(other, b"2")

        assert run_as(NOBODY, consumer, common / "stderr", GROUP) == ""
        assert take(channel) == [b"2"]


@NEEDS_USERS
def test_nobody_outside_of_the_group_gets_in(common: Path) -> None:
    path = shared_directory(common)
    kept = common / "memory"

    def make() -> None:
        channel = use(path, mode="0770")
        kept.write_text(str(memory_of(path)))
        kill(channel)

    def look() -> None:
        for directory in (path, Path(kept.read_text())):
            with pytest.raises(PermissionError):
                os.listdir(directory)
        with pytest.raises((StorageError, OSError)):
            Channel(path / "deeper")

    assert run_as(SOMEBODY, make, common / "stderr", GROUP) == ""
    assert run_as(STRANGER, look, common / "stderr") == ""


@NEEDS_USERS
def test_a_group_that_may_only_read_reads(common: Path) -> None:
    path = shared_directory(common)

    def make() -> None:
        channel = Channel(path, **MEMORY, mode="0750")
        put(channel, *numbered(0, 5))
        kill(channel)

    def read() -> None:
        with Channel(path, create=False, readonly=True) as channel:
            assert channel.stats().memory.events == 5
        with pytest.raises(StorageError, match="Permission denied"):
            Channel(path, create=False)

    assert run_as(SOMEBODY, make, common / "stderr", GROUP) == ""
    assert run_as(NOBODY, read, common / "stderr", GROUP) == ""
