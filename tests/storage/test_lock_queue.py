from __future__ import annotations

import time
from pathlib import Path
from statistics import mode

import pytest

from spillable_stream.storage import lock
from spillable_stream.storage import lock_queue as module
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from spillable_stream.storage.lock_queue import LockQueue, open_lock_queue
from tests.support.fake_files import FaultyFileSystem
from tests.support.one_module import replace_in

FS = FileSystem()


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let no time pass: whoever has not refreshed its place for a fifth of a second counts as gone."""
    now = time.monotonic_ns()
    replace_in(monkeypatch, module, "time", monotonic_ns=lambda: now)
    return now


def table(path: Path) -> LockQueue:
    return LockQueue(FS.open(path / "lock", create=True))


def test_who_has_waited_longest_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    monkeypatch.setattr(module, "_MOMENT_NS", 0)
    one, two, three = (table(tmp_path) for _ in range(3))
    assert one.nobody_waits()
    two.wait(now - 2)
    three.wait(now - 3)
    assert (one.ahead(now - 1), two.ahead(now - 2), three.ahead(now - 3)) == (2, 1, 0)
    assert not one.nobody_waits(), "who comes anew waits for all of them"
    three.leave()
    assert (one.ahead(now - 1), two.ahead(now - 2)) == (1, 0)
    two.leave()
    assert one.nobody_waits()


def test_that_nobody_waits_is_believed_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs as much as the write of a short commit."""
    one, two = table(tmp_path), table(tmp_path)
    clock = [10**12]
    replace_in(monkeypatch, module, "time", monotonic_ns=lambda: clock[0])
    assert one.nobody_waits()
    two.wait(clock[0] - 5)
    assert one.nobody_waits()
    clock[0] += module._MOMENT_NS
    assert not one.nobody_waits()


def test_who_was_killed_while_it_waited_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    one, killed = table(tmp_path), table(tmp_path)
    killed.wait(now - 1)
    assert not one.nobody_waits()
    replace_in(monkeypatch, module, "time", monotonic_ns=lambda: now + module._GONE_NS)
    assert one.nobody_waits()


def test_what_an_earlier_boot_left_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, former = table(tmp_path), table(tmp_path)
    former.wait(1)
    replace_in(monkeypatch, module, "time", monotonic_ns=lambda: 1000)  # the clock began anew
    assert one.nobody_waits()


def test_more_may_wait_than_there_are_places(tmp_path: Path, now: int) -> None:
    many = [table(tmp_path) for _ in range(40)]
    for i, one in enumerate(many):
        one.wait(now + i)
    assert many[0].ahead(now) == 0
    for one in many:
        one.leave()
    assert many[0].nobody_waits()


def test_a_lock_is_left_to_whoever_waits_for_it(tmp_path: Path, now: int) -> None:
    mine, waiting = FileLock.open(FS, tmp_path / "lock"), table(tmp_path)
    turns = table(tmp_path)
    waiting.wait(now - 1)
    assert not mine.acquire(0, turns=turns)
    waiting.leave()
    assert mine.acquire(0, turns=turns)


@pytest.mark.parametrize(("before", "seconds"), [(0, 0.0005), (1, 0.001), (7, 0.004), (20, 0.005)])
def test_who_waits_looks_the_sooner_the_fewer_are_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, seconds: float
) -> None:
    """The next one has the lock at once: who was second would else sleep on, and all behind it with it."""
    now_ns, slept = time.monotonic_ns(), list[float]()

    def sleep(for_seconds: float) -> None:
        nonlocal now_ns
        slept.append(for_seconds)
        now_ns += int(for_seconds * 1e9)

    for user in (lock, module):
        replace_in(monkeypatch, user, "time", monotonic_ns=lambda: now_ns, sleep=sleep)
    holder, mine = FileLock.open(FS, tmp_path / "held", create=True), FileLock.open(FS, tmp_path / "held")
    assert holder.try_acquire()
    for i in range(before):
        table(tmp_path).wait(now_ns - 1000 - i)
    assert not mine.acquire(0.05, turns=table(tmp_path))
    assert mode(slept) == seconds


def test_on_a_full_disk_there_is_no_table(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call.name == "preallocate"):
        assert open_lock_queue(fs.open(tmp_path / "lock", create=True)) is None
    assert open_lock_queue(fs.open(tmp_path / "lock", create=True)) is not None
