"""The threads that commit batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from spillable_stream.producer.batch import ProducerBatch

__all__ = ["IoPool"]


class IoPool:
    """Runs a task for each batch, in the order in which they come.

    Args:
        run: the task; it never raises.
        count: how many threads.
        name: the threads'.
    """

    def __init__(self, run: Callable[[ProducerBatch], None], count: int, name: str) -> None:
        self.threads = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(count)]
        self._run = run
        self._queue: SimpleQueue[ProducerBatch | None] = SimpleQueue()

    def submit(self, batch: ProducerBatch) -> None:
        """Let a thread have a batch."""
        self._queue.put(batch)

    def withdraw(self) -> list[ProducerBatch]:
        """Return the batches that no thread has begun with; none will."""
        found: list[ProducerBatch] = []
        while True:
            try:
                batch = self._queue.get_nowait()
            except Empty:
                return found
            if batch is not None:
                found.append(batch)

    def close(self) -> None:
        """Let the threads end, when what was submitted is done."""
        for _ in self.threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._run(batch)
