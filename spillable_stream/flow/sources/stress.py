"""The source ``stress``: events of one size, as many and as fast as they are wanted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import pyarrow as pa

from spillable_stream.errors import TOO_LARGE
from spillable_stream.flow.checked_arguments import Count, Size, Within, checked
from spillable_stream.flow.sources.base import BatchProcessor, PolledSource, Status
from spillable_stream.flow.sources.batch_limit import BatchLimit
from spillable_stream.flow.sources.event_columns import event_batch

__all__ = ["Stress"]

_FILLING = b"\x7f"


class Stress(PolledSource):
    """Puts events of the same bytes.

    Args:
        size: the bytes of a body.
        max_total_events: how many are tried; -1 for no limit.
        max_successful_events: how many are stored; -1 for no limit.
        max_events_per_second: how many a second; 0 for no limit.
        batch_size: how many one transaction has; fewer where a channel can't hold them.
        backoff_sleep_increment: see `PolledSource`.
        max_backoff_sleep: see `PolledSource`.
        now: the clock, in monotonic seconds; for tests.
        sleep: waits some seconds; for tests.
    """

    @checked
    def __init__(
        self,
        *,
        size: Size = 500,
        max_total_events: Annotated[int, Within(-1)] = -1,
        max_successful_events: Annotated[int, Within(-1)] = -1,
        max_events_per_second: Size = 0,
        batch_size: Count = 1,
        backoff_sleep_increment: Size = 1000,
        max_backoff_sleep: Size = 5000,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(backoff_sleep_increment, max_backoff_sleep)
        self._body = _FILLING * size
        self._total_left = max_total_events
        self._successful_left = max_successful_events
        self._per_second = max_events_per_second
        self._limit = BatchLimit(batch_size)
        self._now, self._sleep = now, sleep
        self._free_at = 0.0  # when the next event may come, in monotonic seconds
        self._batch = event_batch(pa.array([self._body] * batch_size, pa.binary()))

    def poll(self, processor: BatchProcessor) -> Status:
        """Put the next events; see `PolledSource.poll`."""
        limits = [left for left in (self._total_left, self._successful_left) if left >= 0]
        count = min([self._limit.events, *limits])
        if count == 0:
            self.finished = True
            return Status.BACKOFF
        self._wait_for(count)
        self.counters.received(count)
        if self._total_left > 0:
            self._total_left -= count
        try:
            with self.counters.storing(count):
                processor.process(self._batch.slice(0, count))
        except TOO_LARGE:
            if count == 1:
                raise
            if self._total_left >= 0:
                self._total_left += count
            self._limit.was_too_large(count)
            self.counters.will_come_again(count)
            return Status.READY
        self._limit.was_stored()
        if self._successful_left > 0:
            self._successful_left -= count
        return Status.READY

    def _wait_for(self, count: int) -> None:
        if not self._per_second:
            return
        now = self._now()
        if self._free_at > now:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + count / self._per_second
