"""The retry of a batch: which errors may pass, whether it is tried again, and where it waits until it is due.

`SendTask` meets the errors. `Pipeline.retry` lets a batch wait for `ProducerConfig.backoff_seconds`.
"""

from __future__ import annotations

import heapq
from itertools import count

from spillable_stream.errors import (
    REFUSALS,
    TOO_LARGE,
    ChannelClosedError,
    ForeignDirectoryError,
    NotAChannelError,
    ProducerBusyError,
    ProducerSequenceError,
    SchemaError,
    StorageError,
    UnsafeStoreError,
)
from spillable_stream.producer.batch import ProducerBatch

__all__ = ["MISFITS", "REFUSALS", "RetryQueue", "is_tried_again", "may_pass"]

MISFITS = (*TOO_LARGE, ProducerBusyError, ProducerSequenceError, SchemaError)
"""What says like `REFUSALS` that nothing was stored, and will say it again."""
_MAY_PASS = (*REFUSALS, ChannelClosedError, ForeignDirectoryError, OSError, StorageError, UnsafeStoreError)
_OF_THE_HANDLE = (ChannelClosedError.__name__, UnsafeStoreError.__name__)


def may_pass(error: BaseException) -> bool:
    """Tell whether an error may be over after a while.

    A full channel, a full disk, a busy lock, trouble with storage, a loss of earlier events, after which the store's
    channel continues (`SendTask` lets a batch that the application numbered fail), a handle that failed, which is
    opened again, and a channel that is missing, or a directory of its, as while a disk is not mounted or a directory is
    restored; but not another channel in its place. Of other targets any `OSError`, such as a connection that broke.
    That a batch may have been committed anyway does no harm: its number tells.
    """
    if isinstance(error, NotAChannelError):
        return error.is_missing
    return isinstance(error, _MAY_PASS) and not isinstance(error, MISFITS)


def is_tried_again(batch: ProducerBatch, retries: int, closing: bool) -> bool:
    """Tell whether a batch whose attempt failed, with an error that may pass, is tried again.

    Args:
        batch: the batch.
        retries: how often one may be.
        closing: whether the producer is being closed. Two errors say nothing of the batch, and are no reason to give
            up: a handle that the application closed meanwhile, as where Ctrl-C ends a close, is open again by now, and
            a loss is raised once.
    """
    return batch.retry < retries and (not closing or _failed_for_the_handle(batch))


def _failed_for_the_handle(batch: ProducerBatch) -> bool:
    """Tell whether the last attempt failed for such a reason, and the one before it not for the same."""
    codes = [a.error_code for a in batch.attempts[-2:]]
    return bool(codes) and codes[-1] in _OF_THE_HANDLE and codes.count(codes[-1]) == 1


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

    def batches(self) -> list[ProducerBatch]:
        """Return all batches, in no order; they still wait."""
        return [batch for _, _, batch in self._heap]

    def take_due(self, now: float) -> list[ProducerBatch]:
        """Return the batches that are due, those that are due first first; they wait no more."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def take_all(self) -> list[ProducerBatch]:
        """Return all batches; they wait no more."""
        return self.take_due(float("inf"))
