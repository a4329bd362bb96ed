"""The threads that commit batches."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.threads import Threads

__all__ = ["IoPool"]


class IoPool:
    """Runs a task for each batch, in the order in which they come.

    Args:
        next_of: returns a destination's next batch, or None.
        run: the task; it never raises.
        count: how many threads.
        threads: the producer's.
        name: the threads'.
    """

    def __init__(
        self,
        next_of: Callable[[Destination], ProducerBatch | None],
        run: Callable[[ProducerBatch], None],
        count: int,
        threads: Threads,
        name: str,
    ) -> None:
        self.threads = [threads.new(self._work, f"{name}-{i}") for i in range(count)]
        self._next_of = next_of
        self._run = run
        self._queue: SimpleQueue[ProducerBatch | Destination | None] = SimpleQueue()

    def serve(self, destination: Destination) -> None:
        """Let a thread take a destination's next batch."""
        self._queue.put(destination)

    def submit(self, batch: ProducerBatch) -> None:
        """Let a thread have a batch, once more."""
        self._queue.put(batch)

    def withdraw(self) -> list[ProducerBatch]:
        """Return the batches that wait for another attempt; there will be none."""
        found: list[ProducerBatch] = []
        while True:
            try:
                item = self._queue.get_nowait()
            except Empty:
                return found
            if isinstance(item, ProducerBatch):
                found.append(item)

    def close(self) -> None:
        """Let the threads end, when what was submitted is done."""
        for _ in self.threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            batch = item if isinstance(item, ProducerBatch) else self._next_of(item)
            if batch is not None:
                self._run(batch)
