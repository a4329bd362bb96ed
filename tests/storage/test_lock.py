from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spillable_stream.errors import ChannelClosedError, LockUnsupportedError, StorageError
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock, has_ended, holder_text, process_note
from tests.support import pythons
from tests.support.fake_files import FaultyFileSystem

FS = FileSystem()


def lock(path: Path) -> FileLock:
    return FileLock.open(FS, path / "lock")


def test_one_holder_keeps_others_out(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not second.try_acquire(shared=True)
    first.release()
    assert second.try_acquire()


def test_many_share_a_lock(tmp_path: Path) -> None:
    first, second, third = lock(tmp_path), lock(tmp_path), lock(tmp_path)
    assert first.try_acquire(shared=True)
    assert second.try_acquire(shared=True)
    assert not third.try_acquire()


def test_a_look_at_whether_a_lock_is_free_does_not_take_it(tmp_path: Path) -> None:
    holder, looker, other = lock(tmp_path), lock(tmp_path), lock(tmp_path)
    assert looker.is_free_within(0)
    assert holder.acquire_alone(0)
    assert not looker.is_free_within(0)
    holder.release()
    assert looker.is_free_within(0)
    assert other.try_acquire()


def test_a_look_makes_nobody_find_the_lock_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.storage.lock._LONGEST_LOOK_SECONDS", 60.0)
    starter, looker = lock(tmp_path), lock(tmp_path)
    looker.acquire(0, shared=True)  # as in the middle of a look
    threading.Timer(0.05, looker.release).start()
    assert starter.acquire_alone(0)


def test_a_lock_that_is_shared_for_good_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.storage.lock._LONGEST_LOOK_SECONDS", 0.01)
    starter, stopped = lock(tmp_path), lock(tmp_path)
    stopped.acquire(0, shared=True)
    assert not starter.acquire_alone(0)


def test_of_many_that_look_and_try_at_once_one_has_the_lock(tmp_path: Path) -> None:
    found: list[bool] = []
    locks = [lock(tmp_path) for _ in range(8)]

    def start(mine: FileLock) -> None:
        for _ in range(20):
            mine.is_free_within(0)
        found.append(mine.acquire_alone(0))

    threads = [threading.Thread(target=start, args=[mine]) for mine in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(True) == 1


def test_waiting_ends_at_the_timeout(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    assert first.acquire(0)
    started = time.monotonic()
    assert not second.acquire(0.05)
    assert time.monotonic() - started >= 0.05


def test_who_waits_is_called_after_each_try_that_failed(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    calls: list[int] = []

    def meanwhile() -> None:
        calls.append(1)
        if len(calls) == 60:  # later than the tries without a sleep
            first.release()

    assert second.acquire(30, meanwhile=meanwhile)
    assert not calls, "a lock that is free is not waited for"
    second.release()
    assert first.acquire(0)
    assert second.acquire(30, meanwhile=meanwhile)
    assert len(calls) == 60


def test_a_wait_that_is_interrupted_leaves_the_lock_as_it_was(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    assert first.acquire(0)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        second.acquire(30, meanwhile=interrupted)
    first.release()
    assert second.acquire(0)


def test_a_holder_that_is_killed_holds_no_longer(tmp_path: Path) -> None:
    held = (
        "import sys, time, pathlib; from spillable_stream.storage.lock import *\n"
        "from spillable_stream.storage.filesystem import *\n"
        f"lock = FileLock.open(FileSystem(), pathlib.Path({str(tmp_path / 'lock')!r})); lock.try_acquire()\n"
        "print('held', flush=True); time.sleep(600)"
    )
    holder = pythons.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    mine = lock(tmp_path)
    assert not mine.try_acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert mine.acquire(60)


def test_a_note_names_the_holder(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    first.write_holder("a long note that is overwritten")
    first.write_holder(process_note())
    assert second.read_holder() == f"pid {os.getpid()} on {os.uname().nodename}"


def test_a_note_that_is_blanked_is_none_and_can_be_written_again_in_its_room(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.write_holder("a note")
    held.blank_holder()
    assert held.read_holder() == holder_text(b"") == "" and held.file.size() == len("a note")
    held.unblank_holder("a note")
    assert held.read_holder() == "a note"


def test_a_note_tells_whether_its_process_has_ended() -> None:
    ended = pythons.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = os.uname().nodename
    assert has_ended(f"pid {ended.pid} on {host}")
    assert has_ended(f"pid {ended.pid} on {host} since now")
    for note in (process_note(), f"pid 1 on {host}", f"pid {ended.pid} on another", f"pid {2**80} on {host}", "", "me"):
        assert not has_ended(note)


def test_a_lock_is_held_on_a_full_disk_too_without_a_note(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    first = FileLock.open(fs, tmp_path / "lock")
    assert first.try_acquire()
    with fs.failing(lambda call: call.name == "write"):
        first.write_holder(process_note())
    assert not lock(tmp_path).try_acquire()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LockUnsupportedError, match=r"does not lock files .* local file system"):
        lock(tmp_path).try_acquire()


def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match=f"locking {tmp_path}/lock failed: Input/output error"):
        lock(tmp_path).try_acquire()


def test_a_file_system_that_grants_a_lock_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    first = lock(tmp_path)
    assert first.try_acquire()
    with pytest.raises(LockUnsupportedError, match="grants one lock twice"):
        first.check_exclusive(FS)


def test_the_real_file_system_keeps_a_second_holder_out(tmp_path: Path) -> None:
    first = lock(tmp_path)
    assert first.try_acquire()
    first.check_exclusive(FS)


def test_a_lock_that_is_closed_is_free_though_a_copy_of_its_file_is_open_yet(tmp_path: Path) -> None:
    """As between the fork and the exec of a program that another thread starts."""
    first, second = lock(tmp_path), lock(tmp_path)
    assert first.try_acquire()
    copy = os.dup(first.file.fileno())
    first.close()
    assert second.try_acquire()
    os.close(copy)


def test_a_forked_child_has_no_lock_of_its_parent(tmp_path: Path) -> None:
    """Nor keeps it: the parent's end frees it though the child lives."""
    held = (
        "import os, sys, time, pathlib; from spillable_stream.storage.lock import *\n"
        "from spillable_stream.storage.filesystem import *\n"
        f"lock = FileLock.open(FileSystem(), pathlib.Path({str(tmp_path / 'lock')!r})); lock.try_acquire()\n"
        "if not os.fork(): print(os.getpid(), flush=True)\n"  # so it has given up what is its parent's
        "time.sleep(600)"
    )
    holder = pythons.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    mine = lock(tmp_path)
    assert not mine.try_acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    try:
        assert mine.acquire(60)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_closed_lock_says_so(tmp_path: Path) -> None:
    mine = lock(tmp_path)
    mine.close()
    for use in (mine.try_acquire, mine.release, lambda: mine.acquire(1)):
        with pytest.raises(ChannelClosedError, match="lock was closed"):
            use()
    mine.close()


def test_linux_drops_a_shared_lock_that_it_does_not_upgrade(tmp_path: Path) -> None:
    """It converts by dropping first: what `FileLock` therefore refuses to ask for."""
    first, second = lock(tmp_path), lock(tmp_path)
    fcntl.flock(first.file.fileno(), fcntl.LOCK_SH)
    fcntl.flock(second.file.fileno(), fcntl.LOCK_SH)
    with pytest.raises(BlockingIOError):
        fcntl.flock(first.file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(second.file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # though nobody gave the first one back


@pytest.mark.parametrize("shared", [True, False])
def test_a_lock_that_is_held_is_not_converted(tmp_path: Path, shared: bool) -> None:
    mine, other = lock(tmp_path), lock(tmp_path)
    assert mine.try_acquire(shared=shared)
    assert mine.try_acquire(shared=shared), "what is held is held"
    with pytest.raises(ValueError, match=r"lock is held .*: release it first"):
        mine.try_acquire(shared=not shared)
    assert not other.try_acquire(), "it is still held"
    mine.release()
    assert mine.try_acquire(shared=not shared)
    mine.release()
    assert other.try_acquire()
