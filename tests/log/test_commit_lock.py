"""Who holds the lock, whatever ends the holding."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from spillable_stream import Channel, TransactionStateError
from spillable_stream.errors import LockTimeoutError
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.storage.lock import FileLock
from tests.support.events import put
from tests.support.fake_files import FaultyFileSystem
from tests.support.interrupts import Interrupts
from tests.support.logs import append

Open = Callable[..., Channel]

_PLACES = ("log/commit_lock.py", "storage/lock.py", "engine/appender.py", "engine/follower.py", "contextlib.py")


def test_an_interrupt_anywhere_in_a_commit_leaves_the_lock_free(open_channel: Open) -> None:
    """For other threads as for other processes, which an idle main thread would else keep waiting for ever."""
    channel, other = open_channel(), open_channel()
    for handle in (channel, other):
        handle.engine().lock_timeout_seconds = 0.2
        put(handle, b"warm")
    number, hit = 0, True
    while hit:
        number += 1
        interrupts = Interrupts(number, *_PLACES)
        interrupts.run(lambda: put(channel, b"x"))
        hit = interrupts.hit
        failed: list[BaseException] = []
        thread = threading.Thread(target=_put, args=(channel, failed))
        thread.start()
        thread.join()
        _put(other, failed)
        assert not failed, f"interrupted at place {number}"
    assert number > 70


def test_an_interrupt_anywhere_in_a_block_outside_of_a_commit_leaves_the_lock_free(open_channel: Open) -> None:
    """No call ends then that would let go of it: the block does, when nobody has the error any more."""
    channel, other = open_channel(), open_channel()
    lock, number, hit = channel.engine().log.lock, 0, True

    def hold() -> None:
        with lock.locked(1):
            pass

    while hit:
        number += 1
        interrupts = Interrupts(number, "log/commit_lock.py", "storage/lock.py")
        interrupts.run(hold)
        hit = interrupts.hit
        failed: list[BaseException] = []
        for handle in (channel, other):
            thread = threading.Thread(target=_put, args=(handle, failed))
            thread.start()
            thread.join()
        assert not failed, f"interrupted at place {number}"
    assert number > 20


def test_a_block_that_another_thread_collected_is_over_for_the_thread_that_held_the_lock(open_channel: Open) -> None:
    """An error that refers to itself ends in whichever thread collects garbage, and only the holder can release it."""
    channel, other = open_channel(), open_channel()
    lock = channel.engine().log.lock
    for use in (lambda: put(channel, b"x"), channel.close):
        block = [lock.locked(1)]
        block[0].__enter__()
        collector = threading.Thread(target=block.clear)
        collector.start()
        collector.join()
        use()
        put(other, b"y")


def _put(channel: Channel, failed: list[BaseException]) -> None:
    try:
        put(channel, b"y")
    except BaseException as e:
        failed.append(e)


def test_what_is_called_first_has_the_lock_which_is_free_after_it_failed(open_channel: Open) -> None:
    lock, other = open_channel().engine().log.lock, open_channel().engine().log.lock

    def fail() -> None:
        with pytest.raises(LockTimeoutError), other.locked(0):
            pass
        raise ValueError("as the state that it brings up to date may be damaged")

    with pytest.raises(ValueError, match="damaged"), lock.locked(1, fail):
        raise AssertionError("the block ran")
    with other.locked(1):
        pass


def test_a_thread_that_holds_the_lock_does_not_get_it_again(open_channel: Open) -> None:
    """A signal handler or a finalizer that commits in the middle of a commit would break it."""
    lock = open_channel().engine().log.lock
    with lock.locked(1):
        with pytest.raises(TransactionStateError, match=r"this thread holds .* already"), lock.locked(1):
            pass
        with pytest.raises(TransactionStateError, match=r"this thread holds .* already"):
            lock.close()
        assert lock._held is not None
    with lock.locked(1):
        pass


def test_a_held_lock_times_out_and_names_the_holder(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> None:
    append(wal, b"x")
    other = FileLock.open(fs, layout.lock)
    assert other.try_acquire()
    with pytest.raises(LockTimeoutError, match=rf"pid {os.getpid()} on .* more than 0\.01 s"), wal.lock.locked(0.01):
        pass
    other.close()
    append(wal, b"y")
