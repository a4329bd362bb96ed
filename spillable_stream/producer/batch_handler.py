"""The threads that tell applications what became of their batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.result import Result

__all__ = ["BatchHandler"]


class BatchHandler:
    """Concludes batches one after the other, those that were stored or those that failed.

    Args:
        ended: called when a batch is concluded; what it held is free then.
        name: the thread's.
    """

    def __init__(self, ended: Callable[[ProducerBatch], None], name: str) -> None:
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._ended = ended
        self._queue: SimpleQueue[tuple[ProducerBatch, Result] | None] = SimpleQueue()

    def put(self, batch: ProducerBatch, result: Result) -> None:
        """Let a batch be concluded."""
        self._queue.put((batch, result))

    def close(self) -> None:
        """Let the thread end, when what was put is done."""
        self._queue.put(None)

    def _work(self) -> None:
        while (found := self._queue.get()) is not None:
            batch, result = found
            try:
                batch.conclude(result)
            finally:
                self._ended(batch)
