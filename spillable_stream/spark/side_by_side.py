"""Calls to several channels at the same time: each waits for a disk or a store, and none for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from spillable_stream.call_threads import CallThreads

__all__ = ["MOST_SIDE_BY_SIDE", "settled", "side_by_side"]

T = TypeVar("T")

MOST_SIDE_BY_SIDE = 32
"""How many calls are under way at the same time, unless they say otherwise."""


def side_by_side(calls: Sequence[Callable[[], T]], most: int = MOST_SIDE_BY_SIDE) -> list[T]:
    """Return the results of calls, in order. The threads are theirs alone: each may begin others and wait for them.

    Raises what the first of them raises, once all have ended.

    Args:
        calls: the calls.
        most: how many of them are under way at the same time.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    return [future.result() for future in settled(calls, most)]


def settled(calls: Sequence[Callable[[], T]], most: int = MOST_SIDE_BY_SIDE) -> list[Future[T]]:
    """Return the futures of calls, in order, once all have ended: what one raises does not hide what others did.

    The arguments are those of `side_by_side`.
    """
    threads = CallThreads(min(most, len(calls)), "spillable set")
    try:
        return threads.settled([partial(copy_context().run, call) for call in calls])  # with the caller's `one_look`
    finally:
        threads.close(0.0)
