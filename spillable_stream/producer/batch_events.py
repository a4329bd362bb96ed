"""The events of a producer's batch, in columns, until they are committed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillable_stream.channel.event import Event
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.format.row_values import row_reader
from spillable_stream.producer.event_size import BATCH_BYTES
from spillable_stream.producer.fingerprint import fingerprint
from spillable_stream.producer.send_times import SendTimes, TimedRun, row_times
from spillable_stream.producer.target import as_first_sent

if TYPE_CHECKING:
    from spillable_stream.producer.destination import Destination

__all__ = ["BatchEvents"]


class BatchEvents:
    """Events in columns. They grow under the accumulator's mutex until they are sealed.

    A buffer may be full of batches of one event each, so rarely used fields are None until they are needed.

    Args:
        destination: where they go.

    Attributes:
        bodies: the events' bodies, or their rows in a typed channel.
        headers: the headers of the events that have any, by index; None if no event has.
        record_batch: the events, if they were sent as an Arrow batch.
        timed: the events with times of their own, in order; None without any. The others have the destination's ttl.
        size_bytes: how much of the producer's buffer the batch and its events take.
        sealed: whether it has stopped growing: a thread has begun to send it, or it is given up.
        count: the number of its events.
    """

    __slots__ = (
        "_fingerprint",
        "bodies",
        "count",
        "destination",
        "headers",
        "record_batch",
        "sealed",
        "size_bytes",
        "timed",
    )

    def __init__(self, destination: Destination) -> None:
        self.destination: Destination = destination
        self.bodies: list[Any] = []
        self.headers: dict[int, dict[str, str]] | None = None
        self.record_batch: pa.RecordBatch | None = None
        self.timed: list[TimedRun] | None = None
        self.size_bytes: int = BATCH_BYTES
        self._fingerprint = 0
        self.sealed: bool = False
        self.count: int = 0

    def __len__(self) -> int:
        """Return the number of events."""
        return self.record_batch.num_rows if self.record_batch is not None else len(self.bodies)

    def encode(self) -> pa.RecordBatch:
        """Return the events as an Arrow batch, without the producer's context.

        Raises:
            SchemaError: the events do not fit into one Arrow batch.
        """
        if self.record_batch is not None:
            return self.record_batch
        if self.destination.typed:
            return row_reader(self.destination.target.schema).batch(self.bodies)
        return batch_from_columns(self.bodies, self.headers or {})

    def fingerprint(self) -> int:
        """Return a fingerprint of the events, to recognize a resent batch; raises what `encode` raises."""
        if not self._fingerprint:
            self._fingerprint = fingerprint(as_first_sent(self.destination.target, self.encode()))
        return self._fingerprint

    def columns(self) -> tuple[Sequence[bytes], dict[int, dict[str, str]]]:
        """Return the bodies of all events, and the headers of those that have any, by index."""
        if self.record_batch is None:
            return self.bodies, self.headers or {}
        headers, bodies = self.record_batch.columns
        bodies = bodies.fill_null(b"") if bodies.null_count else bodies
        return bodies.to_pylist(), {i: dict(pairs) for i, pairs in enumerate(headers.to_pylist()) if pairs}

    def events(self, index: int = 0, count: int | None = None) -> Sequence[Any]:
        """Return events as they were sent: `Event` objects, rows, or a slice of the Arrow batch.

        Args:
            index: the first event.
            count: the number of events; None for the rest.
        """
        end = len(self) if count is None else index + count
        if self.record_batch is not None:
            batch: Sequence[Any] = self.record_batch.slice(index, end - index)
            return batch
        if self.destination.typed:
            return tuple(self.bodies[index:end])
        of_events = self.headers or {}
        return tuple(Event(self.bodies[i], of_events.get(i, {})) for i in range(index, end))

    def set_times(self, index: int, count: int, times: SendTimes) -> None:
        """Give events at the batch's end times of their own.

        Args:
            index: the first event.
            count: the number of events.
            times: their times.
        """
        self.timed = self.timed or []
        last = self.timed[-1] if self.timed else None
        if last is not None and last.times == times and last.first + last.events == index:
            self.timed[-1] = last._replace(events=last.events + count)
        else:
            self.timed.append(TimedRun(index, count, times, self.delayed_before(index)))

    def times(self) -> RowTimes | None:
        """Return the times of the events; None if they count forever, from now on."""
        ttl_us = self.destination.ttl_us
        return row_times(self.timed or (), len(self), ttl_us) if ttl_us or self.timed else None

    def delayed_before(self, index: int) -> int:
        """Return how many of the events before one wait until they are due: these have no write-order IDs."""
        timed = self.timed or ()
        begun = bisect_left(timed, index, key=attrgetter("first"))
        return timed[begun - 1].delayed_up_to(index) if begun else 0

    def seal(self) -> None:
        """Stop the batch from growing."""
        self.sealed, self.count = True, len(self)

    def free(self) -> None:
        """Forget the events: futures may outlive the batch."""
        self.bodies, self.headers, self.record_batch = [], None, None
