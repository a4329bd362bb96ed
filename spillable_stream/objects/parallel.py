"""Requests to a store that are under way at the same time.

A process that ends waits for none of them: a store that is away answers a request minutes later, or never.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from spillable_stream.call_threads import CallThreads

__all__ = ["MOST_AT_ONCE", "begin", "in_parallel", "most_at_once"]

T = TypeVar("T")

MOST_AT_ONCE = 32
"""How many requests of one process are under way at the same time."""

_MOST_BYTES = 64 << 20

_mutex = threading.Lock()
_shared: CallThreads | None = None  # of this process; a forked child makes its own


def _threads() -> CallThreads:
    global _shared
    with _mutex:
        if _shared is None:
            _shared = CallThreads(MOST_AT_ONCE, "spillable objects")
        return _shared


def most_at_once(size_bytes: int) -> int:
    """Return how many objects of a size to ask for at the same time, so that they fit in memory."""
    return max(1, min(MOST_AT_ONCE, _MOST_BYTES // max(1, size_bytes)))


def begin(call: Callable[[], T]) -> Future[T]:
    """Begin a call in another thread; where there is none, as at the end of the process, it is made in this one."""
    return _threads().begin_or_make(call)


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that wait for a store, in order.

    Raises what the first of them raises, once all have ended.
    """
    if len(calls) == 1:
        return [calls[0]()]
    return [future.result() for future in _threads().settled(calls)]


def _forget() -> None:
    global _mutex, _shared
    _mutex, _shared = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
