"""Another user who plants things where a memory tier might go, and a user whose channel root has used."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spillable_stream import Channel
from spillable_stream.errors import MemoryLossWarning, OtherHostError
from tests.lab.contents import CONSUMERS
from tests.lab.users import NEEDS_USERS, NOBODY, SOMEBODY, common_directory, run_as
from tests.support.damage import kill, memory_of
from tests.support.events import numbered, put, take

pytestmark = NEEDS_USERS
_SHARED = Path("/dev/shm")
_OPTIONS: dict[str, Any] = {"minimum_required_space": 0, "memory_capacity": 1000, "byte_capacity": 1 << 20}


@pytest.fixture
def common() -> Iterator[Path]:
    with common_directory() as directory:
        yield directory


@pytest.fixture
def victim(common: Path) -> Path:
    return make_victim(common)


def make_victim(common: Path) -> Path:
    """Create a directory of somebody's, with files and a directory in it."""
    directory = common / "victim"
    (directory / "deeper").mkdir(parents=True)
    for name in ("precious", "memory-000001-000001", "deeper/precious"):
        (directory / name).write_text("precious")
    return directory


def whole(victim: Path) -> bool:
    """Tell whether nothing of it is gone or changed, and nothing came."""
    files = sorted(str(p.relative_to(victim)) for p in victim.rglob("*") if p.is_file())
    precious = [(victim / name).read_text() == "precious" for name in files]
    return files == ["deeper/precious", "memory-000001-000001", "precious"] and all(precious)


# ── what is planted in shared memory ────────────────────────────────────────────────────────────


def _directory(name: Path, victim: Path) -> None:
    name.mkdir()
    name.chmod(0o777)
    (name / "bait").write_text("bait")


def _link(name: Path, victim: Path) -> None:
    name.symlink_to(victim)


def _file(name: Path, victim: Path) -> None:
    name.write_text("bait")


PLANTS: dict[str, Callable[[Path, Path], None]] = {"a directory": _directory, "a link": _link, "a file": _file}


def _untouched(name: Path, kind: str) -> bool:
    """Tell whether what was planted is what it was."""
    if kind == "a link":
        return name.is_symlink()
    return (name / "bait" if kind == "a directory" else name).read_text() == "bait"


def _files_in(planted: Path) -> dict[str, bytes]:
    """Return the files of a directory that was planted; of anything else none."""
    if planted.is_symlink() or not planted.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in planted.iterdir()}


def _foreseen(path: Path, uuid: str) -> list[Path]:
    """Return the names that somebody who knows a channel may foresee for its memory tier."""
    identity = os.stat(path)
    names = [uuid, f"{uuid}-{identity.st_dev:x}-{identity.st_ino:x}", path.name]
    return [_SHARED / f"spillable-{name}" for name in names]


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("user", [0, SOMEBODY], ids=["root", "somebody"])
def test_what_is_planted_under_a_name_that_can_be_foreseen_is_not_touched_nor_in_the_way(
    common: Path, victim: Path, kind: str, user: int
) -> None:
    path = common / f"channel-{uuid4().hex}"  # tests that run at the same time have names of their own

    def make() -> None:
        with Channel(path, **_OPTIONS) as channel:
            (common / "uuid").write_text(channel.uuid)

    def use() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            channel = Channel(path)
            put(channel, *numbered(0, 10))
            assert channel.stats().memory.events == 10, "it did not go to memory"
            kill(channel)
            with Channel(path) as channel:
                assert take(channel) == numbered(0, 10)

    assert run_as(user, make, common / "stderr") == ""
    names = _foreseen(path, (common / "uuid").read_text())
    victim.chmod(0o777)
    try:
        assert run_as(NOBODY, lambda: [PLANTS[kind](name, victim) for name in names], common / "stderr") == ""
        assert run_as(user, use, common / "stderr") == ""
        assert all(_untouched(name, kind) for name in names) and whole(victim)
    finally:
        for name in names:
            shutil.rmtree(name) if name.is_dir() and not name.is_symlink() else name.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["a link", "a file", "its files", "its files, all can write"])
def test_what_is_planted_in_the_place_of_a_memory_tier_that_is_gone_is_not_used(
    common: Path, victim: Path, kind: str
) -> None:
    """Its name is known by then: it was on this machine, until a reboot."""
    path, copy = common / "channel", common / "copy"
    channel = Channel(path, **_OPTIONS)
    put(channel, *numbered(0, 10))
    kill(channel)
    memory = memory_of(path)
    shutil.copytree(memory, copy)
    for file in (copy, *copy.iterdir()):
        os.chown(file, NOBODY, NOBODY)
    shutil.rmtree(memory)

    def plant() -> None:
        if kind.startswith("its files"):
            shutil.copytree(copy, memory)
            memory.chmod(0o777 if "all" in kind else 0o700)
        else:
            PLANTS[kind](memory, victim)

    try:
        assert run_as(NOBODY, plant, common / "stderr") == ""
        planted = _files_in(memory)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with Channel(path) as channel:
                    assert channel.stats().lost == ((1, 10),)
                    put(channel, b"after")
                    assert take(channel) == [b"after"]
                assert any(w.category is MemoryLossWarning for w in warned)
            except OtherHostError:  # it can't tell whether the one that it misses lives elsewhere
                pass
        assert os.lstat(memory).st_uid == NOBODY
        assert _files_in(memory) == planted
        assert whole(victim)
    finally:
        shutil.rmtree(memory) if memory.is_dir() and not memory.is_symlink() else memory.unlink(missing_ok=True)


def test_a_memory_tier_is_its_users_alone_and_says_whose_it_is(common: Path) -> None:
    channels = [Channel(common / f"{i}", **_OPTIONS) for i in range(3)]
    names = set()
    for channel in channels:
        put(channel, b"in memory")
        memory = memory_of(channel.path)
        names.add(memory.name)
        assert stat.S_IMODE(os.lstat(memory).st_mode) == 0o700
        assert memory.parent == _SHARED and memory.name.startswith("spillable-")
        assert channel.uuid not in memory.name
        token = memory.name.removeprefix("spillable-")
        owner = (memory / "owner.json").read_text()
        assert len(token) >= 16 and token in owner and channel.uuid in owner
        channel.close()
        assert not memory.exists()
    assert len(names) == 3


# ── what root leaves behind ─────────────────────────────────────────────────────────────────────


def _use(path: Path, number: int, *, die: bool = False) -> None:
    """Do everything that makes files."""
    channel = Channel(path, **_OPTIONS, max_inline_bytes=2000)
    put(channel, b"%d" % number)
    put(channel, b"x" * 5000)
    take(channel, 1, CONSUMERS)
    take(channel, 1, f"group-{number}")
    channel.checkpoint()
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.disk.roll(engine.state.small)
    channel.checkpoint()
    put(channel, b"%d again" % number)
    if die:
        kill(channel)
    else:
        channel.close()


@pytest.mark.parametrize("die", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_channel_that_root_has_used_is_still_its_users(common: Path, die: bool, elsewhere: bool) -> None:
    path = common / "channel"

    def make() -> None:
        places = {"data_dirs": [str(common / "elsewhere")], "checkpoint_dir": str(common / "checkpoints")}
        with Channel(path, **_OPTIONS, **(places if elsewhere else {})) as channel:
            channel.consumer("history")
        _use(path, 0)

    assert run_as(SOMEBODY, make, common / "stderr") == ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _use(path, 1, die=die)
    directories = [path, *((common / "elsewhere", common / "checkpoints") if elsewhere else ())]
    if (path / "memory").is_symlink():
        directories.append(memory_of(path))
    files = [file for directory in directories for file in (directory, *directory.rglob("*"))]
    assert [str(f) for f in files if os.lstat(f).st_uid != SOMEBODY and not f.is_symlink()] == []
    assert run_as(SOMEBODY, lambda: _use(path, 2), common / "stderr") == ""

    def read() -> None:
        with Channel(path, create=False) as channel:
            expected = [body for i in range(3) for body in (b"%d" % i, b"x" * 5000, b"%d again" % i)]
            assert take(channel, 100, "history") == expected
            assert channel.stats().lost == ()

    assert run_as(SOMEBODY, read, common / "stderr") == ""


def test_a_channel_that_root_creates_where_there_is_none_is_roots(common: Path) -> None:
    """A user's directory is the user's; what root makes in a directory of all is root's own."""
    path = common / "channel"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"0")
    assert {os.lstat(f).st_uid for f in (path, *path.rglob("*"))} == {0}


def test_a_channel_that_root_opens_to_verify_and_to_repair_is_still_its_users(common: Path) -> None:
    from spillable_stream.integrity.repair import repair
    from spillable_stream.integrity.verify import verify

    path = common / "channel"
    assert run_as(SOMEBODY, lambda: _use(path, 0), common / "stderr") == ""
    newest = max((path / "data").glob("log-*"))
    data = bytearray(newest.read_bytes())
    data[200] ^= 1
    newest.write_bytes(data)
    assert not verify(path).healthy
    repair(path)
    assert [str(f) for f in (path, *path.rglob("*")) if os.lstat(f).st_uid != SOMEBODY] == []
    assert run_as(SOMEBODY, lambda: _use(path, 1), common / "stderr") == ""
