"""The workers that a handle has created, as long as somebody has them."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from spillable_stream.channel.stats import WorkerStats

__all__ = ["KnownWorkers"]


class _Worker(Protocol):
    def stats(self) -> WorkerStats: ...

    def leave(self) -> None: ...


_W = TypeVar("_W", bound=_Worker)


class KnownWorkers:
    """The workers of one handle, for its statistics. Thread-safe."""

    def __init__(self) -> None:
        self._workers: weakref.WeakValueDictionary[int, _Worker] = weakref.WeakValueDictionary()
        self._numbers = count()

    def add(self, worker: _W) -> _W:
        """Return a worker, which `stats` shows from now on."""
        self._workers[next(self._numbers)] = worker
        return worker

    def stats(self) -> tuple[WorkerStats, ...]:
        """Return what each of them does, in the order in which they were created."""
        found = [ref() for ref in self._workers.valuerefs()]  # at once: others may come meanwhile
        return tuple(worker.stats() for worker in found if worker is not None)

    def leave(self) -> None:
        """In a forked child: forget them, and leave them to the parent."""
        for worker in self._workers.values():
            worker.leave()
        self._workers = weakref.WeakValueDictionary()
