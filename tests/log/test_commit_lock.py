"""Who holds the lock, whatever ends the holding."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spillable_stream import Channel, TransactionStateError
from tests.events import put
from tests.interrupts import Interrupts

Open = Callable[..., Channel]

_PLACES = ("log/commit_lock.py", "storage/lock.py", "channel/replica.py", "contextlib.py")


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
    lock = open_channel().engine().lock
    with lock.locked(1):
        with pytest.raises(TransactionStateError, match=r"this thread holds .* already"), lock.locked(1):
            pass
        with pytest.raises(TransactionStateError, match=r"this thread holds .* already"):
            lock.close()
        assert lock._held is not None
    with lock.locked(1):
        pass
