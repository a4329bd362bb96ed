"""The threads that commit batches."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from spillable_stream.producer.schedule import Lane
from spillable_stream.producer.threads import Threads

__all__ = ["IoPool"]


class IoPool:
    """Serves lanes, in the order in which they are put.

    Args:
        serve: called with each; it never raises.
        count: how many threads.
        threads: the producer's.
        name: the threads'.
    """

    def __init__(self, serve: Callable[[Lane], None], count: int, threads: Threads, name: str) -> None:
        self.threads: list[Thread] = [threads.new(self._work, f"{name}-{i}") for i in range(count)]
        self._serve = serve
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()

    def put(self, lane: Lane) -> None:
        """Let a thread serve a lane."""
        self._queue.put(lane)

    def close(self) -> None:
        """Let the threads end, when what was put is done."""
        for _ in self.threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (lane := self._queue.get()) is not None:
            self._serve(lane)
