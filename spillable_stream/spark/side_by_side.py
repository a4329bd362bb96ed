"""Calls to several channels at the same time: each waits for a disk or a store, and none for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")

_MOST = 16


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls, in order. The threads are theirs alone: each may begin others and wait for them.

    Raises what the first of them raises, once all have ended.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(_MOST, len(calls)), thread_name_prefix="spillable set") as threads:
        futures = [threads.submit(call) for call in calls]
    return [future.result() for future in futures]
