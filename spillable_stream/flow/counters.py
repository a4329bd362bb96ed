"""What sources and sinks count, under Flume's names (``SourceCounter``, ``SinkCounter``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

from spillable_stream.errors import SpillableError

__all__ = ["Pauses", "SinkCounters", "SourceCounters"]


class Pauses:
    """Which batches of a source wait because a channel refuses them, why, and for how long batches have waited.

    Args:
        now: the clock, in monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._mutex = threading.Lock()
        self._since: dict[object, float] = {}
        self._reasons: dict[object, str] = {}
        self._seconds = 0.0

    def begin(self, batch: object, reason: str) -> None:
        """Note that a batch was refused, once or again, and why."""
        with self._mutex:
            self._since.setdefault(batch, self._now())
            self._reasons[batch] = reason

    def end(self, batch: object) -> None:
        """Note that a batch is stored or given up, whether it was refused or not."""
        with self._mutex:
            self._reasons.pop(batch, None)
            if (since := self._since.pop(batch, None)) is not None:
                self._seconds += self._now() - since

    @property
    def trouble(self) -> str:
        """Why the batch that has waited longest was refused last; empty if none waits."""
        with self._mutex:
            return next(iter(self._reasons.values()), "")

    def flume_counters(self) -> dict[str, float]:
        """Return how many wait, and for how long batches have waited, as ``Paused`` and ``PausedSeconds``."""
        with self._mutex:
            now = self._now()
            waiting = sum(now - since for since in self._since.values())
            return {"Paused": len(self._since), "PausedSeconds": round(self._seconds + waiting, 3)}


@dataclass(slots=True)
class _Counters:
    """The times at which a component was started and stopped, in milliseconds since 1970; 0 before."""

    start_time: int = 0
    stop_time: int = 0
    now: Callable[[], float] = field(default=time.time, repr=False)

    def started(self) -> None:
        """Note the start."""
        self.start_time, self.stop_time = int(self.now() * 1000), 0

    def stopped(self) -> None:
        """Note the stop."""
        self.stop_time = int(self.now() * 1000)

    def flume_counters(self) -> dict[str, int]:
        """Return the numbers under Flume's names, such as ``EventReceivedCount``."""
        names = (f.name for f in fields(self) if f.name not in ("now", "pauses"))
        return {"".join(word.capitalize() for word in name.split("_")): getattr(self, name) for name in names}


@dataclass(slots=True)
class SourceCounters(_Counters):
    """What a source counts; batches are what it put together, appends are single events."""

    event_received_count: int = 0
    event_accepted_count: int = 0
    append_received_count: int = 0
    append_accepted_count: int = 0
    append_batch_received_count: int = 0
    append_batch_accepted_count: int = 0
    open_connection_count: int = 0
    event_read_fail: int = 0
    generic_processing_fail: int = 0
    channel_write_fail: int = 0
    pauses: Pauses = field(default_factory=Pauses, repr=False)

    def received(self, events: int) -> None:
        """Count a batch that came in."""
        self.event_received_count += events
        self.append_batch_received_count += 1

    def will_come_again(self, events: int) -> None:
        """Take back that a batch came in: its events are read again, in smaller batches."""
        self.event_received_count -= events
        self.append_batch_received_count -= 1

    def accepted(self, events: int) -> None:
        """Count a batch that the channels have."""
        self.event_accepted_count += events
        self.append_batch_accepted_count += 1

    @contextmanager
    def storing(self, events: int) -> Iterator[None]:
        """Count a batch that is put inside of the ``with``: as accepted, or as refused by a channel."""
        try:
            yield
        except SpillableError:
            self.channel_write_fail += 1
            raise
        self.accepted(events)


@dataclass(slots=True)
class SinkCounters(_Counters):
    """What a sink counts."""

    connection_created_count: int = 0
    connection_closed_count: int = 0
    connection_failed_count: int = 0
    batch_empty_count: int = 0
    batch_underflow_count: int = 0
    batch_complete_count: int = 0
    event_drain_attempt_count: int = 0
    event_drain_success_count: int = 0
    event_write_fail: int = 0
    channel_read_fail: int = 0

    def took(self, events: int, batch_size: int) -> None:
        """Count a take: one of no event is empty, one of ``batch_size`` complete, any other an underflow."""
        if events == 0:
            self.batch_empty_count += 1
        elif events < batch_size:
            self.batch_underflow_count += 1
        else:
            self.batch_complete_count += 1
        self.event_drain_attempt_count += events
