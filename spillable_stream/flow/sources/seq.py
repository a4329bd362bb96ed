"""The source ``seq``: the numbers 0, 1, 2 … as texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spillable_stream.errors import TOO_LARGE
from spillable_stream.flow.checked_arguments import Count, Size, checked
from spillable_stream.flow.sources.base import BatchProcessor, PolledSource, Status
from spillable_stream.flow.sources.batch_limit import BatchLimit
from spillable_stream.flow.sources.event_columns import event_batch

__all__ = ["Seq"]


class Seq(PolledSource):
    """Puts numbers that grow; one that could not be put is put again.

    Args:
        batch_size: how many one transaction has; fewer where a channel can't hold them.
        total_events: how many there are.
        backoff_sleep_increment: see `PolledSource`.
        max_backoff_sleep: see `PolledSource`.
    """

    @checked
    def __init__(
        self,
        *,
        batch_size: Count = 1,
        total_events: Count = 2**63 - 1,
        backoff_sleep_increment: Size = 1000,
        max_backoff_sleep: Size = 5000,
    ) -> None:
        super().__init__(backoff_sleep_increment, max_backoff_sleep)
        self._limit = BatchLimit(batch_size)
        self._total = total_events
        self._next = 0

    def poll(self, processor: BatchProcessor) -> Status:
        """Put the next numbers; see `PolledSource.poll`."""
        count = min(self._limit.events, self._total - self._next)
        if count == 0:
            self.finished = True
            return Status.BACKOFF
        numbers = pa.array(np.arange(self._next, self._next + count)).cast(pa.string()).cast(pa.binary())
        self.counters.received(count)
        try:
            with self.counters.storing(count):
                processor.process(event_batch(numbers))
        except Exception as e:
            self.counters.will_come_again(count)
            if count == 1 or not isinstance(e, TOO_LARGE):
                raise
            self._limit.was_too_large(count)
            return Status.READY
        self._limit.was_stored()
        self._next += count
        return Status.READY
