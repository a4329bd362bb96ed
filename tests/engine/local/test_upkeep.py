"""Who looks after a channel, and when: one process at a time, in a thread that only channels have that need it."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.groups import create_group
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.errors import ChannelFullError, StorageError
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, put, take
from tests.support.no_threads import no_threads

Open = Callable[..., Channel]

MIB = 1 << 20


def threads() -> list[threading.Thread]:
    """Return the threads of upkeep that are alive."""
    return [t for t in threading.enumerate() if t.name == "spillable upkeep"]


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so, for as long as a test may take."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_channel_that_keeps_nothing_has_no_thread_and_no_file(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    put(channel, b"1")
    take(channel)
    channel.checkpoint()
    assert threads() == []
    channel.close()
    assert not (path / "upkeep.lock").exists()


def test_a_channel_that_keeps_has_one_until_it_is_closed(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    assert len(threads()) == 1
    channel.close()
    assert threads() == []


def test_taken_events_leave_in_the_background(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    for _ in range(40):
        put(channel, bytes(64 << 10))
        take(channel)
    until(lambda: channel.engine().follow().kept().payload_bytes < 2 * MIB)
    engine = channel.engine()
    until(lambda: engine.layout.log_files(engine.fs)[0] > 1)


def test_taken_events_leave_memory_in_the_background(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB, memory_capacity=100)
    put(channel, *numbered(0, 3))
    take(channel)
    until(lambda: channel.engine().follow().blocks.memory.kept_events == 0)
    assert channel.engine().state.blocks.disk.kept_events == 3


def test_the_thread_begins_with_the_option(open_channel: Open) -> None:
    channel = open_channel()
    with open_channel(retention_ms=60_000):
        assert len(threads()) == 1  # of the handle that made the need
        channel.checkpoint()
        assert len(threads()) == 2  # and of the one that has heard of it


def test_where_no_thread_can_begin_each_call_does_what_it_is_for_and_a_later_one_begins_it(
    open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with no_threads() as refused:
        channel = open_channel(retention_ms=60_000, overflow_capacity=2)
        open_channel(keep_alive=0)
        create_group(channel.engine(), "of-a-stream", "earliest", automatic=True)
        put(channel, b"1", b"2")
        with pytest.raises(ChannelFullError):
            put(channel, b"3")
        channel.checkpoint()
        assert take(channel) == [b"1", b"2"]
    assert len(refused) > 3 and not threads()
    assert "nobody looks after" in caplog.text and "raise this user's limit of processes" in caplog.text
    assert "no checkpoint" not in caplog.text
    channel.checkpoint()
    assert len(threads()) == 1


def test_one_process_acts_at_a_time(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    engine = channel.engine()
    engine.upkeep.stop()
    other = FileLock.open(FileSystem(), engine.layout.upkeep_lock)
    assert other.try_acquire()
    for _ in range(40):
        put(channel, bytes(64 << 10))
        take(channel)
    engine.upkeep.look()
    assert engine.state.first_kept == 1
    other.close()
    engine.upkeep.look()
    assert engine.state.first_kept > 1


def test_a_handle_that_is_open_for_a_moment_looks_once_when_it_is_closed(open_channel: Open) -> None:
    for _ in range(8):
        with open_channel(retention_bytes=MIB, checkpoint_on_close=True) as channel:
            for _ in range(8):
                put(channel, bytes(64 << 10))
                take(channel)
    state = open_channel().engine().state
    assert state.first_kept > 1
    assert state.kept().payload_bytes < 2 * MIB


def test_a_parked_handle_has_no_thread_and_lets_others_act(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    channel.engine().upkeep.look()
    channel.park()
    assert threads() == []
    lock = FileLock.open(FileSystem(), channel.engine().layout.upkeep_lock)
    assert lock.try_acquire()
    lock.close()
    assert channel.resume()
    assert len(threads()) == 1


def test_a_handle_that_is_parked_looks_once_more_while_it_counts_as_open(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=MIB, memory_capacity=100, overflow_timeout=0.0)
    engine, done = channel.engine(), list[str]()
    look, become_last = engine.upkeep.look, engine.log.become_last
    engine.upkeep.stop()
    monkeypatch.setattr(engine.upkeep, "look", lambda **how: (done.append("look"), look(**how)))
    monkeypatch.setattr(engine.log, "become_last", lambda: (done.append("become the last handle"), become_last())[1])
    channel.park()
    assert done == ["look", "become the last handle"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_failed_holds_no_lock_and_another_one_begins(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=MIB)
    upkeep = channel.engine().upkeep

    def fail() -> bool:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(channel.engine().retention, "look", fail)
        until(lambda: threads() == [])
    lock = FileLock.open(FileSystem(), channel.engine().layout.upkeep_lock)
    assert lock.try_acquire()
    lock.close()
    upkeep.ensure()
    assert len(threads()) == 1


def test_a_handle_that_nobody_closed_does_not_live_on_for_its_thread(path: Path) -> None:
    """As in a notebook, where a cell is run again."""
    channel = Channel(path, retention_bytes=MIB, minimum_required_space=0)
    channel.consumer("default")
    del channel
    until(lambda: (gc.collect(), threads() == [])[1])  # it may be at work, and have the handle meanwhile
    with Channel(path) as again:
        assert again.consumer("default", owner_timeout_seconds=0).position() == 0


def test_a_move_that_fails_keeps_nothing_else_from_being_done(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=MIB)
    engine = channel.engine()
    engine.upkeep.stop()
    for _ in range(40):
        put(channel, bytes(64 << 10))
        take(channel)

    def fail() -> bool:
        raise StorageError("no space")

    monkeypatch.setattr(engine.moving, "move_taken", fail)
    engine.upkeep.look()
    assert engine.state.first_kept > 1


def test_a_failure_is_logged_once_in_a_while_and_tried_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(retention_bytes=MIB)
    engine = channel.engine()
    engine.upkeep.stop()
    looks = []

    def fail() -> bool:
        looks.append(1)
        raise StorageError("the disk is gone")

    monkeypatch.setattr(engine.retention, "look", fail)
    engine.upkeep.look()
    engine.upkeep.look()
    assert len(looks) == 2
    assert caplog.text.count("the disk is gone") == 1


def test_a_view_only_looks(open_channel: Open, path: Path) -> None:
    open_channel(retention_bytes=MIB).close()
    with Channel(path, readonly=True) as view:
        assert threads() == []
        view.engine().upkeep.settle()


def test_a_removed_lock_file_is_no_reason_to_act_twice(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    upkeep: Upkeep = channel.engine().upkeep
    upkeep.stop()
    upkeep.look()
    channel.engine().layout.upkeep_lock.unlink()
    other = FileLock.open(FileSystem(), channel.engine().layout.upkeep_lock)
    assert other.try_acquire()
    assert not upkeep._acts()
    other.close()


def test_files_of_what_left_go_later_if_somebody_was_creating_a_checkpoint(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=MIB)
    engine = channel.engine()
    engine.upkeep.stop()
    for _ in range(64):
        put(channel, bytes(64 << 10))
        take(channel)
    lock = FileLock.open(FileSystem(), engine.layout.checkpoint_lock)
    assert lock.try_acquire()
    engine.upkeep.look()
    lock.close()
    first_kept = engine.state.first_kept
    assert (first_kept > 1, engine.layout.log_files(engine.fs)[0]) == (True, 1)
    engine.upkeep.look()
    assert (engine.state.first_kept, engine.layout.log_files(engine.fs)[0] > 1) == (first_kept, True)


def test_files_that_a_killed_process_left_go_with_the_first_look_of_the_next(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=MIB)
    channel.engine().upkeep.stop()
    for _ in range(64):
        put(channel, bytes(64 << 10))
        take(channel)
    assert channel.engine().retention.look()
    engine = open_channel().engine()
    assert engine.layout.log_files(engine.fs)[0] == 1
    engine.upkeep.stop()
    engine.upkeep.look()
    assert engine.layout.log_files(engine.fs)[0] > 1


def test_a_handle_whose_log_has_failed_lets_another_one_act(open_channel: Open) -> None:
    failed, other = open_channel(retention_bytes=MIB), open_channel()
    for channel in (failed, other):
        channel.engine().upkeep.stop()
    failed.engine().upkeep.look()
    failed.engine().log.lock.failed = "a sync failed"
    for _ in range(40):
        put(other, bytes(64 << 10))
        take(other)
    failed.engine().upkeep.look()
    other.engine().upkeep.look()
    assert other.engine().state.kept().payload_bytes < 2 * MIB


def test_a_handle_whose_channel_was_replaced_says_so_and_leaves_the_new_one_to_others(
    open_channel: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = open_channel(retention_ms=60_000)
    old.engine().upkeep.stop()
    shutil.rmtree(path)
    new = open_channel(retention_ms=60_000).engine()
    new.upkeep.stop()
    for _ in range(2):
        old.engine().upkeep.look()
        assert "was moved, removed or replaced" in caplog.text and "damaged" not in caplog.text
        assert new.upkeep._acts()
        new.upkeep.stop()
    old.engine().close()
