from __future__ import annotations

import time
from pathlib import Path

import pytest

from spillable_stream.storage import lock_queue as module
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from spillable_stream.storage.lock_queue import LockQueue, open_lock_queue
from tests.support.fake_files import FaultyFileSystem

FS = FileSystem()


def table(path: Path) -> LockQueue:
    return LockQueue(FS.open(path / "lock", create=True))


def test_who_has_waited_longest_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOMENT_NS", 0)
    one, two, three = (table(tmp_path) for _ in range(3))
    now = time.monotonic_ns()
    assert one.nobody_waits()
    two.wait(now - 2)
    three.wait(now - 3)
    assert (one.is_mine(now - 1), two.is_mine(now - 2), three.is_mine(now - 3)) == (False, False, True)
    assert not one.nobody_waits(), "who comes anew waits for all of them"
    three.leave()
    assert (one.is_mine(now - 1), two.is_mine(now - 2)) == (False, True)
    two.leave()
    assert one.nobody_waits()


def test_that_nobody_waits_is_believed_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs as much as the write of a short commit."""
    one, two = table(tmp_path), table(tmp_path)
    clock = [10**12]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    assert one.nobody_waits()
    two.wait(clock[0] - 5)
    assert one.nobody_waits()
    clock[0] += module._MOMENT_NS
    assert not one.nobody_waits()


def test_who_was_killed_while_it_waited_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, killed = table(tmp_path), table(tmp_path)
    killed.wait(time.monotonic_ns())
    assert not one.nobody_waits()
    later = time.monotonic_ns() + module._GONE_NS
    monkeypatch.setattr(time, "monotonic_ns", lambda: later)
    assert one.nobody_waits()


def test_what_an_earlier_boot_left_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, former = table(tmp_path), table(tmp_path)
    former.wait(1)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000)  # the clock began anew
    assert one.nobody_waits()


def test_more_may_wait_than_there_are_places(tmp_path: Path) -> None:
    now = time.monotonic_ns()
    many = [table(tmp_path) for _ in range(40)]
    for i, one in enumerate(many):
        one.wait(now + i)
    assert many[0].is_mine(now)
    for one in many:
        one.leave()
    assert many[0].nobody_waits()


def test_a_lock_is_left_to_who_waits_for_it(tmp_path: Path) -> None:
    mine, waiting = FileLock.open(FS, tmp_path / "lock"), table(tmp_path)
    turns = table(tmp_path)
    waiting.wait(time.monotonic_ns())
    assert not mine.acquire(0, turns=turns)
    waiting.leave()
    assert mine.acquire(0, turns=turns)


def test_on_a_full_disk_there_is_no_table(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call.name == "preallocate"):
        assert open_lock_queue(fs.open(tmp_path / "lock", create=True)) is None
    assert open_lock_queue(fs.open(tmp_path / "lock", create=True)) is not None
