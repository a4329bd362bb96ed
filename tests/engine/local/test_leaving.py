"""What a handle does before it is closed, and the last one besides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, StorageError
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def checkpoints(channel: Channel) -> int:
    """Return how many checkpoints there are."""
    return len(list(channel.engine().layout.checkpoint_dir.iterdir()))


@pytest.mark.parametrize("given", [True, False])
def test_a_checkpoint_is_created_if_asked(open_channel: Open, given: bool) -> None:
    channel = open_channel()
    put(channel, b"1")
    before = checkpoints(channel)
    channel.engine().leave(checkpoint=given)
    assert checkpoints(channel) - before == given


def test_the_last_handle_moves_memory_to_disk_and_another_one_does_not(open_channel: Open) -> None:
    one, two = open_channel(memory_capacity=100), open_channel()
    put(one, *numbered(0, 3))
    one.engine().leave()
    assert two.stats().drain_order == [3]
    one.close()
    two.engine().leave(flush=False)
    assert two.stats().drain_order == [3]
    two.engine().leave()
    assert two.stats().drain_order == [-3]


def test_old_events_leave_before_the_checkpoint(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=1 << 20)
    channel.engine().upkeep.stop()
    for _ in range(40):
        put(channel, bytes(64 << 10))
        take(channel)
    channel.engine().leave(checkpoint=True)
    engine = channel.engine()
    assert engine.state.first_kept > 1
    assert engine.layout.log_files(engine.fs)[0] > 1


def test_a_memory_tier_that_is_empty_is_removed(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    take(channel)
    channel.engine().leave()
    assert not channel.engine().memory.exists()


def test_a_handle_that_only_looks_or_whose_log_failed_leaves_everything_as_it_is(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    with Channel(channel.path, readonly=True) as view:
        view.engine().leave(checkpoint=True, flush=True)
    channel.engine().log.lock.failed = "for a test"
    before = checkpoints(channel)
    channel.engine().leave(checkpoint=True, flush=False)
    said = "1 event is still in the memory of .*, since this handle failed, and can't move them to disk: for a test"
    with pytest.raises(StorageError, match=said):
        channel.engine().leave(checkpoint=True, flush=True)
    channel.engine().log.lock.failed = None
    assert (checkpoints(channel), channel.stats().drain_order) == (before, [1])
    take(channel)
    channel.engine().log.lock.failed = "for a test"
    channel.engine().leave()
    channel.engine().log.lock.failed = None


def test_a_checkpoint_that_fails_leaves_nothing_in_memory(path: Path) -> None:
    fs = FaultyFileSystem()
    channel = Channel(path, fs=fs, memory_capacity=100, minimum_required_space=0)
    put(channel, *numbered(0, 3))
    with fs.failing(lambda call: call.file.startswith("checkpoint-")), pytest.raises(StorageError, match="checkpoint-"):
        channel.close()
    with Channel(path) as again:
        assert again.stats().drain_order == [-3]
