"""A place that batches pass, where somebody may look. It costs nothing while nobody does, and holds nobody up."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

__all__ = ["Listener", "TapPoint"]

_MOST_BATCHES = 16


class Listener:
    """Gets the batches that pass, as long as it keeps up."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch] = deque()
        self._skipped = 0
        self._changed = threading.Condition()

    def offer(self, batch: pa.RecordBatch) -> None:
        """Keep a batch, which is not copied; where 16 wait to be looked at, count its events instead."""
        with self._changed:
            if len(self._batches) < _MOST_BATCHES:
                self._batches.append(batch)
            else:
                self._skipped += batch.num_rows
            self._changed.notify()

    def next(self, timeout_seconds: float) -> tuple[pa.RecordBatch | None, int]:
        """Return the next batch, None if none comes in time, and how many events were skipped since the last call."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._skipped, timeout_seconds)
            skipped, self._skipped = self._skipped, 0
            return (self._batches.popleft() if self._batches else None), skipped


class TapPoint:
    """Passes batches on to those who listen. True while somebody does."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def passed(self, batch: pa.RecordBatch) -> None:
        """Show a batch to those who listen."""
        for listener in self._listeners:
            listener.offer(batch)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Listen inside of the ``with``."""
        listener = Listener()
        with _mutex:
            self._listeners = (*self._listeners, listener)
        try:
            yield listener
        finally:
            with _mutex:
                self._listeners = tuple(known for known in self._listeners if known is not listener)


_mutex = threading.Lock()


def _forget_mutex() -> None:
    global _mutex
    _mutex = threading.Lock()


os.register_at_fork(after_in_child=_forget_mutex)
