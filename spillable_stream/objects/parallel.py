"""Requests to a store that are under way at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["MOST_AT_ONCE", "begin", "in_parallel", "most_at_once"]

T = TypeVar("T")

MOST_AT_ONCE = 32
"""How many requests of one process are under way at the same time."""

_MOST_BYTES = 64 << 20

_mutex = threading.Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None  # the process that has it; a forked child makes its own


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _mutex:
        if _pool is None or _pool[0] != os.getpid():
            _pool = os.getpid(), ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="spillable objects")
        return _pool[1]


def most_at_once(size_bytes: int) -> int:
    """Return how many objects of a size to ask for at the same time, so that they fit in memory."""
    return max(1, min(MOST_AT_ONCE, _MOST_BYTES // max(1, size_bytes)))


def begin(call: Callable[[], T]) -> Future[T]:
    """Begin a call in another thread; at the end of the process, which has no more of them, make it here."""
    try:
        return _threads().submit(call)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
    made: Future[T] = Future()
    try:
        made.set_result(call())
    except BaseException as e:
        made.set_exception(e)
    return made


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that wait for a store, in order.

    Raises what the first of them raises, once all have ended.
    """
    if len(calls) == 1:
        return [calls[0]()]
    futures = [begin(call) for call in calls]
    for future in futures:
        future.exception()
    return [future.result() for future in futures]


def _forget() -> None:
    global _mutex, _pool
    _mutex, _pool = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
