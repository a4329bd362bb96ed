"""The engine of a channel on this host: its files, and what a handle does before they are closed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.waiting import wait_until

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


def test_a_commit_that_waits_for_the_lock_applies_meanwhile_what_others_commit(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lock held, everybody would wait for that."""
    one, two = open_channel().engine(), open_channel().engine()
    follow, held = one.log.follow, list[bool]()

    def noting(*arguments: Any) -> int:
        held.append(one.log.lock._held is not None)
        return follow(*arguments)

    monkeypatch.setattr(one.log, "follow", noting)
    commit = Control(FrameType.GROUP, {"group": "by one", "position": 0})
    with ThreadPoolExecutor(1) as pool:
        with two.appender.committing():
            waiting = pool.submit(one.commit, commit)
            two.appender.append_alone(Control(FrameType.GROUP, {"group": "by two", "position": 0}))
            wait_until(lambda: "by two" in one.state.groups)
            assert not waiting.done()
        waiting.result()
    assert held == [False], "applied once, without the lock"
    assert {"by one", "by two"} <= set(two.follow().groups)


def test_a_memory_tier_that_is_empty_is_removed(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    take(channel)
    assert channel.engine().become_last()
    channel.engine().move_to_disk()
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


def test_files_are_counted_as_they_are(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 24, byte_capacity_buffer_percentage=50)
    engine = channel.engine()
    before = engine.file_counts(engine.state)
    assert (before.data_files, before.memory_files, before.segments, before.torn_bytes) == (1, 0, 0, 0)
    assert 0 < before.memory_payload_bytes <= 1 << 23, "what a tier would get that is created now"
    put(channel, b"1")
    after = engine.file_counts(engine.state)
    assert (after.data_files, after.memory_files) == (1, 1)
    assert after.memory_payload_bytes == engine.state.memory_limits().payload_bytes


def test_a_channel_without_a_memory_tier_has_no_bytes_for_it(open_channel: Open) -> None:
    engine = open_channel(memory_capacity=0).engine()
    assert engine.file_counts(engine.state).memory_payload_bytes == 0
    assert engine.put_bytes() == 0


def test_a_parked_handle_resumes_where_it_was_and_a_closed_one_does_not(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"1")
    engine = channel.engine()
    engine.park()
    assert engine.resume()
    assert take(channel) == [b"1"]
    engine.close()
    assert engine.closed and not engine.resume()
