"""The memory tier's directory: where it is, and who may use it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import MemoryTierWarning
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import kill, memory_of
from tests.support.events import ids, peek, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def test_the_memory_tier_is_a_private_directory_in_shared_memory(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, b"x")
    directory = memory_of(path)
    assert directory.parent == Path("/dev/shm")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in directory.iterdir())


def test_handles_share_it_and_it_outlives_a_killed_one(path: Path, open_channel: Open) -> None:
    first = open_channel(memory_capacity=10)
    put(first, b"1")
    second = open_channel()
    put(second, b"2")
    assert list(ids(first)) == [1, 2]
    kill(first)
    second.engine().close()
    third = open_channel()
    assert (peek(third), third.stats().drain_order) == ([b"1", b"2"], [2])


def test_memory_stays_while_a_task_stages_in_it(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=10) as channel:
        put(channel, b"x")
        writer = StagedFileWriter(FileSystem(), channel.engine().layout, "query", 1, memory_bytes=1 << 20)
    assert memory_of(path).exists()
    writer.discard()
    open_channel().close()
    assert not os.path.lexists(path / "memory")


def test_memory_dir_holds_the_tier(path: Path, tmp_path: Path, open_channel: Open) -> None:
    (tmp_path / "ram").mkdir()
    channel = open_channel(memory_capacity=10, memory_dir=str(tmp_path / "ram"))
    put(channel, b"x")
    assert memory_of(path).parent == tmp_path / "ram"
    assert channel.stats().drain_order == [1]


def test_memory_that_cannot_be_written_is_warned_of_and_the_put_goes_to_disk(path: Path) -> None:
    """Shared memory may be full of other things, whatever the capacity says."""
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, memory_capacity=10, minimum_required_space=0) as channel:
        put(channel, b"1")
        channel.checkpoint()  # begins a new file, for which memory has to be found
        with (
            fs.failing(lambda call: call.name in ("write", "preallocate") and call.file.startswith("memory-")),
            pytest.warns(MemoryTierWarning, match="events go to disk"),
        ):
            put(channel, b"2")
        put(channel, b"3")
        assert channel.stats().drain_order == [1, -2]
        channel.engine().memory._refused_at -= 61  # after a minute it is tried again
        put(channel, b"4")
        assert channel.stats().drain_order == [1, -2, 1]
        assert take(channel, 1) == [b"1"]
        assert take(channel) == [b"2", b"3", b"4"]


def test_a_relative_memory_dir_is_one_place_for_all(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ram").mkdir()
    monkeypatch.chdir(tmp_path)
    channel = open_channel(memory_capacity=10, memory_dir="ram")
    monkeypatch.chdir("/")
    put(channel, b"x")
    assert memory_of(path).parent == tmp_path / "ram"
