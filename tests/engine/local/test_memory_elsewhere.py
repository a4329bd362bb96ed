"""Memory tiers of copies, on other mounts and of other hosts: nobody takes or gives up what is not its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local import memory_origin
from spillable_stream.errors import ForeignDirectoryError, OtherHostError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log import head as head_module
from tests.support.damage import kill, memory_of
from tests.support.events import ids, numbered, put, take
from tests.support.two_tiers import OPTIONS, RESERVED, kill_spilled, reopened, spilled

Open = Callable[..., Channel]


def test_a_copied_channel_does_not_take_the_originals_memory(path: Path, tmp_path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    shutil.copytree(path, tmp_path / "copy", symlinks=True)
    copy, warning = reopened(tmp_path / "copy")
    with copy:
        assert warning.lost == ((1, 10), (36, 38))
        put(copy, b"x")
    assert channel.stats().drain_order == [10, -25, 3]
    assert take(channel) == [*numbered(0, 10), *numbered(0, 25), *numbered(0, 3)]


def test_a_moved_channel_keeps_its_memory(path: Path, tmp_path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    path.rename(tmp_path / "moved")
    with Channel(tmp_path / "moved", minimum_required_space=0) as moved:
        assert moved.stats().drain_order == [10, -25, 3]


def test_a_copy_at_the_old_path_does_not_take_a_moved_channels_memory(
    path: Path, tmp_path: Path, open_channel: Open
) -> None:
    kill_spilled(open_channel)
    path.rename(tmp_path / "moved")
    with Channel(tmp_path / "moved", minimum_required_space=0, checkpoint_on_close=False) as moved:
        shutil.copytree(tmp_path / "moved", path, symlinks=True)
        copy, warning = reopened(path)
        copy.close()
        assert warning.lost == ((1, 10), (36, 38))
        assert take(moved) == [*numbered(0, 10), *numbered(0, 25), *numbered(0, 3)]


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of our own; skipped where that is not allowed."""
    where = tmp_path / "tmpfs"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(where)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {mounted.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], capture_output=True, check=False)


def test_a_tmpfs_that_is_unmounted_may_be_mounted_elsewhere(path: Path, tmpfs: Path, open_channel: Open) -> None:
    """Another container may have it; whoever knows better removes the link."""
    channel = open_channel(**OPTIONS, memory_dir=str(tmpfs))
    spilled(channel)
    take(channel, 2)
    kill(channel)
    subprocess.run(["umount", str(tmpfs)], check=True)
    with pytest.raises(OtherHostError, match=f"if it is gone for good, remove {path}/memory"):
        Channel(path, minimum_required_space=0)
    (path / "memory").unlink()
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, warning.doubtful) == (((3, 10), (36, 38)), ((39, RESERVED),))
        assert list(ids(channel)) == list(range(11, 36))


def test_a_disk_of_memory_that_is_not_mounted_after_a_reboot_is_waited_for(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "mount" / "memory"
    disk.mkdir(parents=True)
    channel = open_channel(**OPTIONS, memory_dir=str(disk))
    spilled(channel)
    kill(channel)
    (path / "head").unlink()
    place = json.loads((path / "memory.json").read_text())
    (path / "memory.json").write_text(json.dumps({**place, "boot": "00" * 16, "in_memory": False}))
    disk.parent.rename(tmp_path / "unmounted")
    disk.mkdir(parents=True)
    with pytest.raises(OtherHostError, match="not visible here"):
        Channel(path, minimum_required_space=0)
    shutil.rmtree(disk.parent)
    (tmp_path / "unmounted").rename(disk.parent)
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().drain_order == [10, -25, 3]


def test_memory_that_was_opened_to_others_is_refused_and_not_lost(path: Path, open_channel: Open) -> None:
    """Not by a repair either, which is what people try next."""
    kill_spilled(open_channel)
    memory = memory_of(path)
    memory.chmod(0o755)
    for use in (lambda: Channel(path, minimum_required_space=0), lambda: verify(path), lambda: repair(path)):
        with pytest.raises(ForeignDirectoryError, match=f"remove {path}/memory, and its events will be reported lost"):
            use()
    memory.chmod(0o700)
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().drain_order == [10, -25, 3]


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_memory_whose_owner_file_is_gone_proves_itself(path: Path, open_channel: Open, damage: str) -> None:
    kill_spilled(open_channel)
    owner = memory_of(path) / "owner.json"
    owner.unlink()
    if damage == "damaged":
        owner.write_text("{")
    assert not verify(path).loss.lost
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().drain_order == [10, -25, 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_copy_of_another_user_is_not_told_to_take_the_originals_memory(
    path: Path, tmp_path: Path, open_channel: Open
) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    shutil.copytree(path, tmp_path / "copy", symlinks=True)
    for file in (tmp_path / "copy", *(tmp_path / "copy").rglob("*")):
        os.chown(file, 65534, 65534, follow_symlinks=False)
    copy, warning = reopened(tmp_path / "copy")
    copy.close()
    assert warning.lost == ((1, 10), (36, 38))
    assert channel.stats().drain_order == [10, -25, 3]


def test_a_tmpfs_that_is_full_spills(path: Path, tmpfs: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=8 << 20, memory_dir=str(tmpfs), overflow_timeout=0)
    put(channel, b"1")
    filler = tmpfs / "filler"
    try:
        filler.write_bytes(bytes(64 << 20))
    except OSError:
        assert filler.stat().st_size > 1 << 20
    with pytest.warns(UserWarning, match="events go to disk"):
        put(channel, bytes(1 << 20))
    assert channel.stats().drain_order == [1, -1]
    assert [len(b) for b in take(channel)] == [1, 1 << 20]


class OtherHost:
    """A host that sees the channel's directory and not the memory tier."""

    def __init__(self, path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._memory, self._away = memory_of(path), memory_of(path).with_name(f"away-{path.parent.name}")
        self._name, self._monkeypatch = name, monkeypatch

    def __enter__(self) -> None:
        here = os.uname()
        self._memory.rename(self._away)
        self._monkeypatch.setattr(os, "uname", lambda: os.uname_result([here.sysname, self._name, *here[2:]]))
        for module in (head_module, memory_origin):
            self._monkeypatch.setattr(module, "boot_id", lambda: bytes(range(16)))

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()
        if self._away.exists():
            self._away.rename(self._memory)


def test_another_host_does_not_treat_as_lost_what_it_does_not_see(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_spilled(open_channel)
    with OtherHost(path, "other", monkeypatch):
        for _ in range(2):
            with pytest.raises(OtherHostError, match="has the events 1 to 10, 36 to"):
                Channel(path, minimum_required_space=0)
    with Channel(path, minimum_required_space=0) as channel:
        assert channel.stats().drain_order == [10, -25, 3]


def test_memory_of_a_host_that_is_gone_is_given_up_by_hand(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_spilled(open_channel)
    memory = memory_of(path)
    with OtherHost(path, "other", monkeypatch):
        (path / "memory").unlink()
        channel, warning = reopened(path)
        channel.close()
        assert warning.lost == ((1, 10), (36, 38))
    shutil.rmtree(memory)


def test_host_whose_memory_is_gone_continues(path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_spilled(open_channel)
    memory = memory_of(path)
    with OtherHost(path, os.uname().nodename, monkeypatch):
        channel, warning = reopened(path)
        channel.close()
        assert warning.lost == ((1, 10), (36, 38))
    shutil.rmtree(memory)


def test_another_host_does_not_believe_a_head_that_says_that_memory_is_empty(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head may be as old as its last write to the medium."""
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 10)
    kill(channel)
    with OtherHost(path, "other", monkeypatch), pytest.raises(OtherHostError, match="events of the last moments"):
        Channel(path, minimum_required_space=0)
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().channel_size == 0
