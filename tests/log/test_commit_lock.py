"""Who holds the lock, whatever ends the holding."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from spillable_stream import Channel, StorageError, TransactionStateError
from tests.support.events import put, take
from tests.support.fake_files import Call, FaultyFileSystem, nth
from tests.support.interrupts import Interrupts

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
    assert number > 100


def _put(channel: Channel, failed: list[BaseException]) -> None:
    try:
        put(channel, b"y")
    except BaseException as e:
        failed.append(e)


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


@pytest.mark.parametrize("write_fails", [False, True])
def test_an_interrupt_anywhere_lets_nobody_append_to_a_file_whose_sync_failed(
    open_channel: Open, write_fails: bool
) -> None:
    """Ctrl-C between a sync that fails and its record in the head: the next sync of that file says that all is well."""
    fs = FaultyFileSystem()
    channel, other = open_channel(fs=fs), open_channel()
    put(other, b"other")
    taken: list[bytes] = []
    place, hit = 0, True
    while hit:
        place += 1
        put(channel, b"warm")
        taken += take(other)
        other.checkpoint()  # or files gather, over which a roll loops
        before, failed = channel.engine().positions.disk.file_id, [False]
        chosen = nth("sync", 1, "log"), nth("write", 1 if write_fails else 0, "log")

        def fails(call: Call, chosen: Any = chosen, failed: list[bool] = failed) -> bool:
            if chosen[0](call):
                failed[0] = True
                return True
            return bool(chosen[1](call))

        def append() -> None:
            with suppress(StorageError):
                put(channel, b"x")

        interrupts = Interrupts(
            place, "log/wal.py", "log/published_end.py", "log/append_failure.py", "log/written_file.py", "log/head.py"
        )
        with fs.failing(fails):
            interrupts.run(append)
        hit = interrupts.hit
        put(other, b"y")
        assert not failed[0] or other.engine().positions.disk.file_id > before, f"interrupted at place {place}"
    assert place > 30
    assert b"x" not in [*taken, *take(other)]
