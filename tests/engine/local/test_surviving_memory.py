"""Memory that is still there in part, or in whole, when a channel is opened: what of it counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local import memory_directory
from spillable_stream.errors import (
    ChannelBusyError,
    CorruptionError,
    DataLossError,
    StorageError,
)
from spillable_stream.integrity import inspection, tier_replay
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log import head as head_module
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import flip, kill, memory_of
from tests.support.events import ids, numbered, put, take
from tests.support.two_tiers import OPTIONS, kill_spilled, reopened, spilled

Open = Callable[..., Channel]


def test_memory_that_survives_a_reboot_whole_is_used(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`memoryDir` may be on a disk, and the host may have been shut down in order."""
    (tmp_path / "disk").mkdir()
    channel = open_channel(**OPTIONS, memory_dir=str(tmp_path / "disk"))
    spilled(channel)
    take(channel, 4)
    kill(channel)
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, [first for first, _ in warning.doubtful]) == ((), [39])
        assert channel.stats().drain_order == [6, -25, 3]
        assert put(channel, b"next")[0] > warning.doubtful[0][1]
        assert take(channel) == [*numbered(4, 6), *numbered(0, 25), *numbered(0, 3), b"next"]


@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize("damage", ["an event", "the tail"])
def test_memory_that_survives_a_reboot_in_part_is_lost(
    path: Path, tmp_path: Path, open_channel: Open, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    channel = open_channel(**OPTIONS, memory_dir=str(tmp_path / "disk"))
    spilled(channel)
    (extent,) = channel.engine().state.blocks.extents(1, 10)
    end = channel.engine().positions.memory.offset
    kill(channel)
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    (file,) = (path / "memory").glob("memory-*")
    if damage == "an event":
        flip(file, extent.offset + 100)
    else:
        os.truncate(file, end - 10)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((1, 10), (36, 38))
        assert list(ids(channel)) == list(range(11, 36))


def test_verify_says_after_a_reboot_that_a_repair_keeps_what_an_open_gives_up(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    channel = open_channel(memory_capacity=100, memory_dir=str(tmp_path / "disk"))
    put(channel, *numbered(0, 3))
    channel.checkpoint()  # which begins a new file
    put(channel, *numbered(3, 4))
    kill(channel)
    for module in (head_module, inspection, tier_replay):
        monkeypatch.setattr(module, "boot_id", lambda: bytes(16))
    sorted(memory_of(path).glob("memory-*"))[-1].unlink()
    assert any("an open gives up all that is in memory" in f.text for f in verify(path).findings)
    assert (4, 7) in repair(path).loss.lost
    with Channel(path, create=False) as channel:
        assert list(ids(channel)) == [1, 2, 3]


def test_a_file_of_memory_that_holds_commits_is_not_taken_for_one_that_was_being_created(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 3))
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.memory.roll(lambda: engine.log.memory_image(engine.follower))
        engine.follower.catch_up()
    put(channel, *numbered(3, 4))
    files = sorted(memory_of(path).glob("memory-*"))
    assert len(files) == 2
    kill(channel)
    flip(files[-1], 60)
    (path / "head").unlink()
    with pytest.raises(CorruptionError, match=r"the header of memory-.* is damaged and a commit follows"):
        Channel(path, minimum_required_space=0)
    assert repair(path).quarantine
    with Channel(path, minimum_required_space=0) as channel:
        assert list(ids(channel))[:3] == [1, 2, 3]
        assert put(channel, b"next")[0] > 7


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "on a disk"])
@pytest.mark.parametrize(("which", "lost", "kept"), [(0, (1, 3), [4, 5, 6, 7]), (-1, (4, 7), [1, 2, 3])])
def test_a_file_of_memory_that_was_removed_takes_no_other_file_with_it(
    path: Path,
    open_channel: Open,
    monkeypatch: pytest.MonkeyPatch,
    in_memory: bool,
    which: int,
    lost: tuple[int, int],
    kept: list[int],
) -> None:
    monkeypatch.setattr(FileSystem, "is_in_memory", lambda self, path: in_memory)
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 3))
    channel.checkpoint()  # which begins a new file
    put(channel, *numbered(3, 4))
    kill(channel)
    sorted(memory_of(path).glob("memory-*"))[which].unlink()
    for _ in range(2):
        for readonly in (False, True):
            with pytest.raises(DataLossError, match=r"memory-\d+-\d+.*; restore it, or let 'spillable repair "):
                Channel(path, readonly=readonly, create=False)
    assert lost in verify(path).loss.lost
    assert lost in repair(path).loss.lost
    with Channel(path, minimum_required_space=0) as channel:
        assert list(ids(channel)) == kept


def test_a_memory_tier_that_somebody_still_holds_is_not_lost(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel frees the locks of a process that was killed one after the other."""
    kill_spilled(open_channel)
    leaving = FileLock.open(FileSystem(), memory_of(path) / "owner.json", create=False)
    assert leaving.try_acquire(shared=True)
    with monkeypatch.context() as patch:
        patch.setattr(memory_directory, "_LEAVING_SECONDS", 0.05)
        with pytest.raises(ChannelBusyError, match="is held by a process that does not hold the channel"):
            Channel(path, minimum_required_space=0)
    threading.Timer(0.2, leaving.close).start()
    with Channel(path, minimum_required_space=0) as channel:
        assert channel.stats().drain_order == [10, -25, 3]


def test_a_memory_tier_is_not_lost_to_an_error_that_passes(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_spilled(open_channel)
    real = os.open

    def exhausted(name: str, flags: int, *rest: int) -> int:
        if "memory-" in os.fspath(name):
            raise OSError(24, "Too many open files")
        return real(name, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        with pytest.raises(StorageError, match="Too many open files"):
            Channel(path, minimum_required_space=0)
    with Channel(path, minimum_required_space=0) as channel:
        assert channel.stats().drain_order == [10, -25, 3]


def test_a_memory_tier_is_not_lost_to_a_disk_that_fails(path: Path, open_channel: Open) -> None:
    """The read that fails is of the channel's own directory; the memory tier is no worse for that."""
    kill_spilled(open_channel)
    data, real = str(path / "data"), os.preadv

    def dying(descriptor: int, buffers: object, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(data):
            dying.failed = True  # type: ignore[attr-defined]
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, offset)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", dying)
        with pytest.raises(StorageError, match="Input/output error"):
            Channel(path, minimum_required_space=0)
    assert dying.failed  # type: ignore[attr-defined]
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().drain_order == [10, -25, 3]
