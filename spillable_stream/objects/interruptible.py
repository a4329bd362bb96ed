"""Calls that wait outside of Python, made so that Ctrl-C waits for none of them.

Python runs the handler of a signal in the main thread, and only between two steps of its own. So that thread has
another one make the call, and waits for it in Python: whatever the handler raises ends that wait at once. The call is
then left to its own end, like a request whose answer is lost.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

from spillable_stream.call_threads import POLL_SECONDS, Work, made

__all__ = ["begun", "interruptible", "left_after"]

_T = TypeVar("_T")
_Inbox: TypeAlias = "SimpleQueue[Work]"

# Of threads that wait for a call. There is no lock, for a finalizer may make a call anywhere in here.
_idle: deque[_Inbox] = deque()


def interruptible(call: Callable[[], _T]) -> _T:
    """Make a call, and return or raise what it does; in the main thread, an interrupt ends the wait for it.

    Args:
        call: the call. After an interrupt it continues for as long as it takes.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    try:
        done = begun(call)
    except RuntimeError:  # the process can have no more threads, or ends
        return call()
    try:
        has_ended = threading.Lock()
        has_ended.acquire()
        done.add_done_callback(lambda _: has_ended.release())
        while not has_ended.acquire(timeout=POLL_SECONDS):
            pass
        return done.result()
    finally:
        del done  # an error would refer to itself by it, and keep what the call has


def left_after(seconds: float, call: Callable[[], object]) -> None:
    """Make a call that nobody needs the end of; without a thread for it, or for the wait, it is not made.

    Args:
        seconds: how long to wait for its end.
        call: the call; what it raises is lost.
    """
    try:
        done = begun(call)
    except RuntimeError:
        return
    wait([done], seconds)


def begun(call: Callable[[], _T]) -> Future[_T]:
    """Begin a call in another thread, and return the future of its end.

    Raises:
        RuntimeError: the process can have no more threads. The call is not made.
    """
    done: Future[_T] = Future()
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=_work, args=(inbox,), name="spillable interruptible", daemon=True).start()
    inbox.put(partial(made, call, done))
    return done


def _work(inbox: _Inbox) -> None:
    """Make calls, one after the other; this thread is free before anyone hears of a call's end."""
    while True:
        tell = inbox.get()()
        _idle.append(inbox)
        tell()
        del tell


os.register_at_fork(after_in_child=_idle.clear)
