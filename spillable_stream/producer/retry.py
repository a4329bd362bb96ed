"""The retry of a batch: which errors may pass, whether it is tried again, and where it waits until it is due.

`SendTask` meets the errors. `Pipeline.retry` lets a batch wait for `ProducerConfig.backoff_seconds`.
"""

from __future__ import annotations

import heapq
from itertools import count

from spillable_stream.errors import (
    REFUSALS,
    ChannelClosedError,
    EventTooLargeError,
    ProducerBusyError,
    ProducerSequenceError,
    PutTooLargeError,
    SchemaError,
    StorageError,
    TransactionCapacityError,
)
from spillable_stream.producer.batch import ProducerBatch

__all__ = ["MISFITS", "REFUSALS", "RetryQueue", "is_tried_again", "may_pass"]

MISFITS = (
    EventTooLargeError,
    ProducerBusyError,
    ProducerSequenceError,
    PutTooLargeError,
    SchemaError,
    TransactionCapacityError,
)
"""What says like `REFUSALS` that nothing was stored, and will say it again."""
_MAY_PASS = (*REFUSALS, ChannelClosedError, OSError, StorageError)


def may_pass(error: BaseException) -> bool:
    """Tell whether an error may be over after a while.

    A full channel, a full disk, a busy lock, trouble with storage, and a handle that failed, which is opened
    again. Of other targets any `OSError`, such as a connection that broke. That a batch may have been
    committed anyway does no harm: its number tells.
    """
    return isinstance(error, _MAY_PASS) and not isinstance(error, MISFITS)


def is_tried_again(batch: ProducerBatch, retries: int, closing: bool) -> bool:
    """Tell whether a batch whose attempt failed, with an error that may pass, is tried again.

    Args:
        batch: the batch.
        retries: how often one may be.
        closing: whether the producer is being closed. A handle that the application closed meanwhile, as where Ctrl-C
            ends a close, is no reason to give up: it is open again by now.
    """
    return batch.retry < retries and (not closing or _found_a_closed_handle(batch))


def _found_a_closed_handle(batch: ProducerBatch) -> bool:
    """Tell whether that, and nothing before it, is why the last attempt failed."""
    return [a.error_code for a in batch.attempts[-2:]].count(ChannelClosedError.__name__) == 1 and (
        batch.attempts[-1].error_code == ChannelClosedError.__name__
    )


class RetryQueue:
    """Batches that wait to be tried again, by the time at which they are due.

    Not thread-safe: the accumulator's mutex is held.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._number = count()

    def __len__(self) -> int:
        """Return how many batches wait."""
        return len(self._heap)

    def put(self, batch: ProducerBatch, due: float) -> None:
        """Let a batch wait until ``due``, in the clock's monotonic seconds."""
        heapq.heappush(self._heap, (due, next(self._number), batch))

    def next_due(self) -> float | None:
        """Return when the first batch is due, None if none waits."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[ProducerBatch]:
        """Return the batches that are due, those that are due first first; they wait no more."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def take_all(self) -> list[ProducerBatch]:
        """Return all batches; they wait no more."""
        return self.take_due(float("inf"))
