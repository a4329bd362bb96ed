"""Calls that wait outside of Python, made so that Ctrl-C waits for none of them.

Python runs the handler of a signal in the main thread, and only between two steps of its own. So that thread has
another one make the call, and waits for it in Python: whatever the handler raises ends that wait at once. The call is
then left to its own end, like a request whose answer is lost.

A handler may raise anywhere in here, also between taking an idle thread and giving it a call. So an idle thread is
behind an `_Idle`, and ends when that is dropped without one::

    _idle ── _Idle ─ inbox ◀─ the thread waits
               └─ weakref ──▶ inbox.put: without a step of Python's, so no other handler comes in between
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from spillable_stream.call_threads import POLL_SECONDS
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["Begun", "begun", "begun_or_made", "interruptible", "left_after"]

_T = TypeVar("_T")


class Begun(Generic[_T]):
    """A call that another thread makes. It costs less than a future, and each request needs one.

    Attributes:
        has_ended: whether it has ended.
    """

    __slots__ = ("_call", "_end", "_error", "_result", "has_ended")

    def __init__(self, call: Callable[[], _T]) -> None:
        self.has_ended: bool = False
        self._call: Callable[[], _T] | None = call
        self._end = threading.Lock()
        self._end.acquire()
        self._result: _T | None = None
        self._error: BaseException | None = None

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, at most for a time, and tell whether it has ended; see `POLL_SECONDS`."""
        while not (self.has_ended or self._end.acquire(timeout=min(seconds, POLL_SECONDS))):
            if (seconds := seconds - POLL_SECONDS) <= 0:
                return self.has_ended
        return True

    def take(self) -> _T:
        """Return or raise what it did, once, after its end."""
        error, self._error = self._error, None  # an error would refer to itself by it, and keep what the call has
        if error is None:
            return self._result  # type: ignore[return-value]
        try:
            raise error
        finally:
            del error

    def make(self) -> None:
        """Make the call, in this thread."""
        call, self._call = self._call, None
        assert call is not None
        try:
            self._result = call()
        except BaseException as e:
            self._error = e

    def tell(self) -> None:
        """Tell those who wait that it has ended."""
        self.has_ended = True
        self._end.release()


class _Idle:
    """A thread that waits for a call.

    Args:
        inbox: what it waits for.
    """

    __slots__ = ("__weakref__", "inbox")

    def __init__(self, inbox: SimpleQueue[Any]) -> None:
        self.inbox = inbox


# There is no lock, for a finalizer may make a call anywhere in here.
_idle: deque[_Idle] = deque()


def interruptible(call: Callable[[], _T]) -> _T:
    """Make a call, and return or raise what it does; in the main thread, an interrupt ends the wait for it.

    Args:
        call: the call. After an interrupt it continues for as long as it takes.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    made = begun_or_made(call)
    while not made.ends_within(POLL_SECONDS):
        pass
    return made.take()


def left_after(seconds: float, call: Callable[[], object]) -> None:
    """Make a call that nobody needs the end of; without a thread for it, or for the wait, it is not made.

    Args:
        seconds: how long to wait for its end.
        call: the call; what it raises is lost.
    """
    try:
        begun(call).ends_within(seconds)
    except NoThreadError:
        return


def begun_or_made(call: Callable[[], _T]) -> Begun[_T]:
    """Begin a call in another thread; without one, make it in this one, as at the end of the process."""
    try:
        return begun(call)
    except NoThreadError:
        pass
    made = Begun(call)
    made.make()
    made.tell()
    return made


def begun(call: Callable[[], _T]) -> Begun[_T]:
    """Begin a call in another thread.

    Raises:
        NoThreadError: the process can have no more threads. The call is not made.
    """
    made, idle = Begun(call), _claimed()
    if idle is None:
        start_thread(threading.Thread(target=_work, args=(made,), name="spillable interruptible", daemon=True))
    else:
        idle.inbox.put(made)
    return made


def _claimed() -> _Idle | None:
    if sys.is_finalizing():  # a finalizer asks the store, and those that wait never wake up again
        return None
    try:
        return _idle.pop()
    except IndexError:  # no call is made in here, so no interrupt has it as its context
        return None


def _work(made: Begun[Any]) -> None:
    """Make calls, one after the other; this thread is free before anyone hears of a call's end."""
    while True:
        made.make()
        inbox: SimpleQueue[Any] = SimpleQueue()
        idle = _Idle(inbox)
        dropped = weakref.ref(idle, inbox.put)
        _idle.append(idle)
        del idle
        made.tell()
        del made
        if (made := inbox.get()) is dropped:
            return


os.register_at_fork(after_in_child=_idle.clear)
