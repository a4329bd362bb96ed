"""The events of a producer's batch, in columns, until they are committed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
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
        joined: where each send of several events begins and ends; None without any.
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
        "joined",
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
        self.joined: array[int] | None = None
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

    def join(self, count: int) -> None:
        """Record that the next events are of one send, which is never divided. Call it before they are added."""
        self.joined = array("Q") if self.joined is None else self.joined
        while self.joined and self.joined[-1] > self.count:  # an interrupt kept those from being added
            del self.joined[-2:]
        self.joined.extend((self.count, self.count + count))

    def middle(self) -> int:
        """Return the index at which a send begins that is nearest to the middle; 0 if all events are of one send."""
        middle, end = len(self) // 2, len(self)
        for first, after in _pairs(self.joined):
            if first < middle < after:
                is_last = after >= end
                return first if first and (is_last or middle - first <= after - middle) else 0 if is_last else after
        return middle

    def copy_from(self, events: BatchEvents, index: int) -> None:
        """Take over another batch's events from an index on; this batch has none yet. `cut_off` removes them there."""
        self.bodies = events.bodies[index:]
        self.headers = {i - index: of_one for i, of_one in (events.headers or {}).items() if i >= index} or None
        for first, after in _pairs(events.joined):
            if first >= index:
                self.count = first - index
                self.join(after - first)
        for run in events.timed or ():
            if (left := run.first + run.events - max(run.first, index)) > 0:
                self.set_times(max(run.first, index) - index, left, run.times)
        self.seal()

    def cut_off(self, index: int) -> None:
        """Forget the events from an index on."""
        if self.headers is not None:
            self.headers = {i: of_one for i, of_one in self.headers.items() if i < index} or None
        if self.timed is not None:
            timed = [run._replace(events=min(run.events, index - run.first)) for run in self.timed if run.first < index]
            self.timed = timed or None
        self.bodies = self.bodies[:index]
        self.seal()

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
        self.bodies, self.headers, self.record_batch, self.joined = [], None, None, None


def _pairs(joined: array[int] | None) -> Iterator[tuple[int, int]]:
    found = iter(joined or ())
    return zip(found, found, strict=True)
