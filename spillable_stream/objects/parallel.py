"""Requests to stores that are under way at the same time.

Each store has a bound of its own, so that no store waits for another one that is away. A process that ends waits for
no request: a store that is away answers minutes later, or never.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from spillable_stream.call_threads import CallThreads, Work, made, make, nothing, settled
from spillable_stream.own_thread import NoThreadError

__all__ = ["MOST_AT_ONCE", "begin", "in_parallel", "most_at_once"]

T = TypeVar("T")

MOST_AT_ONCE = 32
"""How many requests of one process to one store are under way at the same time."""

_MOST_BYTES = 64 << 20
_MOST_THREADS = 4 * MOST_AT_ONCE  # of all stores: three may hang, and the others are still asked


class _Requests:
    """The requests to one store. Those that are too many wait for a thread that makes one of the others."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._turns: set[object] = set()  # one for each thread that makes some

    def begin(self, done: Future[T], call: Callable[[], T]) -> None:
        turn = object()
        try:
            with self._mutex:
                self._waiting.append(partial(made, call, done))
                if len(self._turns) >= MOST_AT_ONCE:
                    return
                self._turns.add(turn)
            try:
                _threads().begin_work(partial(self._work, turn))
            except NoThreadError:
                self._work(turn)()
        except BaseException:  # an interrupt: a thread may have the turn, or nobody
            self._turns.discard(turn)
            done.cancel()
            raise

    def _work(self, turn: object) -> Callable[[], object]:
        """Make requests while some wait, and return what tells the end of the last one."""
        tell: Callable[[], object] = nothing
        while (request := self._next(turn)) is not None:
            tell()
            tell = request()
        return tell

    def _next(self, turn: object) -> Work | None:
        with self._mutex:
            if self._waiting:
                return self._waiting.popleft()
            self._turns.discard(turn)
            return None


_mutex = threading.Lock()
_shared: CallThreads | None = None  # of this process; a forked child makes its own
_of_stores: WeakValueDictionary[str, _Requests] = WeakValueDictionary()  # those under way, by the store's root


def _threads() -> CallThreads:
    global _shared
    with _mutex:
        if _shared is None:
            _shared = CallThreads(_MOST_THREADS, "spillable objects")
        return _shared


def _requests(root: str) -> _Requests:
    with _mutex:
        found = _of_stores.get(root)
        if found is None:
            found = _of_stores[root] = _Requests()
        return found


def most_at_once(size_bytes: int) -> int:
    """Return how many objects of a size to ask for at the same time, so that they fit in memory."""
    return max(1, min(MOST_AT_ONCE, _MOST_BYTES // max(1, size_bytes)))


def begin(root: str, call: Callable[[], T]) -> Future[T]:
    """Begin a call in another thread; where there is none, as at the end of the process, it is made in this one.

    Args:
        root: the root of the store that it waits for.
        call: the call.
    """
    done: Future[T] = Future()
    _beginner(root)(done, call)
    return done


def _beginner(root: str) -> Callable[[Future[T], Callable[[], T]], None]:
    """Return what begins calls, and keeps the store's bound while it is held."""
    if sys.is_finalizing():  # a lock may be held by a thread that never runs again
        return _make_here
    return _requests(root).begin


def _make_here(done: Future[T], call: Callable[[], T]) -> None:
    make(call, done)


def in_parallel(root: str, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that wait for a store, in order.

    Raises what the first of them raises, once all have ended.
    """
    if len(calls) == 1:
        return [calls[0]()]
    return [future.result() for future in settled(_beginner(root), calls)]


def _forget() -> None:
    global _mutex, _shared, _of_stores
    _mutex, _shared, _of_stores = threading.Lock(), None, WeakValueDictionary()


os.register_at_fork(after_in_child=_forget)
