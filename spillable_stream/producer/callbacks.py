"""The threads that tell applications what became of their batches."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from spillable_stream.log_records import log_of
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.result import Result
from spillable_stream.producer.threads import Threads

__all__ = ["Callbacks"]

_log = log_of("spillable_stream.producer")


class Callbacks:
    """Concludes batches one after the other, those that were stored or those that failed.

    Args:
        ended: called when a batch is concluded; what it held is free then.
        threads: the producer's.
        name: the thread's.
    """

    def __init__(self, ended: Callable[[ProducerBatch], None], threads: Threads, name: str) -> None:
        self.thread: Thread = threads.new(self._work, name, tells=True)
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
            except BaseException as e:  # its futures still get the result
                _log.error(
                    "not everybody could be told about a batch for %s",
                    batch.destination.name,
                    exc_info=e,
                    extra=batch.log_fields(),
                )
                batch.settle()
            if batch.result is not None:
                self._ended(batch)
