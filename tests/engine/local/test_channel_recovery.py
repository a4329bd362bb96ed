"""Whoever opens a channel first settles both logs and publishes their ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, TornTailWarning
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import HeadState
from tests.support.damage import age_head, kill, log_file, memory_of, offsets, reboot, trim
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def test_recovery_holds_one_append_in_memory_and_not_the_log(path: Path, open_channel: Open) -> None:
    import tracemalloc

    with open_channel() as channel:
        for _ in range(3000):
            put(channel, b"x")
    (path / "head").unlink()
    tracemalloc.start()
    with open_channel() as channel:
        assert channel.stats().channel_size == 3000
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # a mebibyte or two of buffers; every frame at once takes more than ten


def test_the_ends_that_were_found_are_published(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=0) as channel:
        put(channel, b"a")
        before = channel.engine().log.position()
    reboot(path)
    with open_channel() as channel:
        log = channel.engine().log
        assert log.recovered and log.torn_bytes == 0
        found = log.position()
        assert (found.disk, found.memory, found.last_id) == (before.disk, before.memory, 1)
        assert not open_channel().engine().log.recovered, "it found another handle"


def test_what_was_torn_is_cut_and_counted(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"a")
        end = channel.engine().log.position().disk.end
        put(channel, b"b")
    size = trim(path)
    with log_file(path).open("r+b") as file:
        file.truncate(size - 8)
    reboot(path)
    with pytest.warns(TornTailWarning):
        channel = open_channel()
    assert channel.engine().log.torn_bytes == size - 8 - end
    assert channel.engine().log.position().disk.end == end
    assert peek(channel) == [b"a"]


def test_the_time_of_the_last_checkpoint_survives_a_reboot(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        channel.checkpoint()
        before = channel.engine().log.checkpoint_ms
    assert before > 0
    age_head(path)
    assert open_channel().engine().log.checkpoint_ms == before


def test_no_checkpoint_is_known_of_where_the_head_is_lost(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        channel.checkpoint()
    reboot(path)
    assert open_channel().engine().log.checkpoint_ms == 0


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_file_whose_sync_failed_is_not_written_to_after_a_recovery_either(
    path: Path, open_channel: Open, rebooted: bool
) -> None:
    channel = open_channel()
    put(channel, b"a")
    log = channel.engine().log
    with log.hold(1):
        log.lock.publish(log.position()._replace(disk=log.position().disk._replace(state=HeadState.SYNC_FAILED)))
    kill(channel)
    if rebooted:
        age_head(path)
    again = open_channel()
    assert again.engine().log.position().disk.state == HeadState.SYNC_FAILED
    put(again, b"b")
    assert (log_file(path, 2).exists(), peek(again)) == (True, [b"a", b"b"])
    assert offsets(path, FrameType.PUT) == offsets(path, FrameType.PUT)[:1]


def test_a_memory_tier_that_is_over_is_removed_by_the_next_that_comes_first(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one was killed before it had removed it."""
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20)
    put(channel, b"a")
    memory = memory_of(path)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryDirectory, "remove", lambda _: None)
        channel.close()
    assert memory.exists()
    assert peek(open_channel(memory_capacity=0)) == [b"a"]
    assert not memory.exists() and not (path / "memory").is_symlink()


def test_a_memory_tier_that_is_there_is_published_with_the_disks_end(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20)
    put(channel, b"a", b"b")
    before = channel.engine().log.position()
    kill(channel)
    again = open_channel()
    found = again.engine().log.position()
    assert again.engine().log.recovered
    assert (found.disk, found.memory) == (before.disk, before.memory)
    assert found.last_id >= 2
    assert peek(again) == [b"a", b"b"]


def test_the_channels_directory_is_synced_first(path: Path, open_channel: Open) -> None:
    """Whoever created the channel may have been killed before that."""
    open_channel().close()
    reboot(path)
    fs = FaultyFileSystem()
    open_channel(fs=fs)
    calls = [tuple(call) for call in fs.calls]
    assert calls.index(("sync_directory", path.name)) < calls.index(("write", "log-000001"))
