"""The accumulator: one open batch for each destination, which is shipped when it is full or has lingered.

Its mutex guards everything that is scheduled: open batches, the retry queue, the numbers of batches.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillable_stream.counted import counted
from spillable_stream.errors import TransactionCapacityError
from spillable_stream.option_names import named
from spillable_stream.producer.batch import Callback, ProducerBatch
from spillable_stream.producer.buffer import Buffer
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import BATCH_BYTES
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.mutex import Mutex, runs_undivided
from spillable_stream.producer.send_times import SendTimes
from spillable_stream.producer.threads import Threads

__all__ = ["Accumulator"]

_PATIENCE_SECONDS = 0.02  # of waiting sends with the batches under way


class Accumulator:
    """Gathers events into batches and ships full ones. Thread-safe.

    Args:
        config: the thresholds, and the limit on memory.
        clock: the time.
        ship: called with a destination that has a batch ready; the mutex is held.
        opened: called with the time at which open batches may have to be shipped, in the clock's monotonic seconds;
            the mutex is held.
        threads: the producer's threads. They must not wait for room, since only they can free it.

    Attributes:
        mutex: its lock.
        buffer: what all batches hold, and the limit on it.
        most_bytes: a batch that has so much is shipped.
        last_index: a batch is shipped when it has an event of this index.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        ship: Callable[[Destination], None],
        opened: Callable[[float], None],
        threads: Threads,
    ) -> None:
        self.mutex: Mutex = Mutex()
        self.buffer: Buffer = Buffer(config, clock, self.mutex, self._expect_room, threads)
        self._open: OrderedDict[Destination, ProducerBatch] = OrderedDict()  # oldest first
        self._shipping: dict[Destination, None] = {}  # ones that an interrupt may have kept from being served
        self._config = config
        self._clock = clock
        self._ship = ship
        self._opened = opened
        self._threads = threads
        self._large_bytes = config.batch_size_threshold_in_bytes  # so large a send fails with no other
        self.most_bytes: int = self._large_bytes + BATCH_BYTES
        self.last_index: int = config.batch_count_threshold - 1
        self._linger_seconds = config.linger_ms / 1000

    def add(
        self,
        destination: Destination,
        body: Any,
        size_bytes: int,
        headers: dict[str, str] | None,
        callback: Callback | None,
        max_block_ms: int | None = None,
        times: SendTimes | None = None,
    ) -> SendFuture:
        """Add one event to a destination's open batch.

        Args:
            destination: the destination.
            body: the event's body, or its row in a typed channel.
            size_bytes: how much of the buffer the event takes.
            headers: the event's headers.
            callback: called with the result.
            max_block_ms: how long to wait for room, in milliseconds; None for the producer's ``max_block_ms``.
            times: its own times; None for those of all.

        Raises:
            ProducerClosedError: the producer is closed.
            ProducerTimeoutError: there was no room within ``max_block_ms``.
            EventTooLargeError: the event is larger than the whole buffer.
        """

        def add() -> SendFuture:
            batch, buffer = self._open.get(destination), self.buffer
            has_room = not buffer.closing and buffer.held_bytes + size_bytes <= buffer.bound_bytes
            if batch is None or not has_room or size_bytes >= self._large_bytes:
                batch = self._batch_with_room(destination, size_bytes, 1, max_block_ms)
            return self._put(batch, (body,), {0: headers} if headers else {}, size_bytes, callback, times)

        future = self.mutex.run(add)
        if destination not in self._open:  # it was shipped: yield the interpreter to an I/O thread now, not in 5 ms
            time.sleep(0)
        return future

    def add_many(
        self,
        destination: Destination,
        bodies: Sequence[Any],
        headers: Mapping[int, dict[str, str]],
        size_bytes: int,
        callback: Callback | None,
        max_block_ms: int | None = None,
        times: SendTimes | None = None,
    ) -> SendFuture:
        """Add events to a destination's open batch, or to a new one if it has no room for all.

        Raises what `add` raises.

        Args:
            destination: the destination.
            bodies: the events' bodies, or their rows in a typed channel.
            headers: the headers of the events that have any, by index.
            size_bytes: how much of the buffer all events take.
            callback: called with the result.
            max_block_ms: how long to wait for room, in milliseconds; None for the producer's ``max_block_ms``.
            times: their own times; None for those of all.

        Raises:
            TransactionCapacityError: there are too many events for one batch.
        """
        self._check_count(destination, len(bodies))

        def add() -> SendFuture:
            batch = self._batch_with_room(destination, size_bytes, len(bodies), max_block_ms)
            return self._put(batch, bodies, headers, size_bytes, callback, times)

        return self.mutex.run(add)

    def _put(
        self,
        batch: ProducerBatch,
        bodies: Sequence[Any],
        headers: Mapping[int, dict[str, str]],
        size_bytes: int,
        callback: Callback | None,
        times: SendTimes | None,
    ) -> SendFuture:
        """Add events to an open batch that has room for them, and ship it if it is full then."""
        count, buffer = len(bodies), self.buffer
        if count > 1:
            batch.join(count)
        future, own = SendFuture(batch, batch.count, count), batch.bodies
        own += bodies  # no call within these four lines: an interrupt leaves all done or none
        batch.count += count
        batch.size_bytes += size_bytes
        buffer.held_bytes += size_bytes
        if headers:
            batch.headers = batch.headers or {}
            for i, of_one in headers.items():
                batch.headers[future.index + i] = of_one
        if times is not None:
            batch.set_times(future.index, count, times)
        if callback is not None:
            batch.callbacks = batch.callbacks or []
            batch.callbacks.append((callback, future.index, count))
        if batch.count > self.last_index or batch.size_bytes >= self.most_bytes:
            self._ship_open(batch.destination)
        return future

    def add_whole(
        self,
        destination: Destination,
        fill: Callable[[ProducerBatch], None],
        count: int,
        size_bytes: int,
        callback: Callback | None,
        sequence: int | None,
        max_block_ms: int | None = None,
        times: SendTimes | None = None,
    ) -> SendFuture:
        """Ship events as a separate batch.

        Raises what `add_many` raises.

        Args:
            destination: the destination.
            fill: puts the events into the batch.
            count: the number of events.
            size_bytes: how much of the buffer they take.
            callback: called with the result.
            sequence: the number that the application chose for the batch; None for the producer's next number.
            max_block_ms: how long to wait for room, in milliseconds; None for the producer's ``max_block_ms``.
            times: their own times; None for those of all.

        Raises:
            OptionError: the number is invalid, or the producer numbers the batches of this destination.
            ProducerSequenceError: an earlier batch failed and was not sent again.
        """
        self._check_count(destination, count)

        def add() -> SendFuture:
            number = self._admit_whole(destination, size_bytes, sequence, max_block_ms)
            batch = self._new_batch(destination, number)
            batch.own_sequence = sequence is not None
            fill(batch)
            if times is not None:
                batch.set_times(0, count, times)
            batch.count = count
            if callback is not None:
                batch.callbacks = [(callback, 0, count)]
            batch.size_bytes += size_bytes
            self._ship_batch(batch)
            if sequence is not None:
                destination.sent(sequence)
            return SendFuture(batch, 0, count)

        return self.mutex.run(add)

    def _admit_whole(
        self, destination: Destination, size_bytes: int, sequence: int | None, max_block_ms: int | None
    ) -> int:
        """Wait for the room of a batch of its own, and return its number; the caller has the mutex."""
        if sequence is not None:
            destination.check(sequence)  # before the wait, and again after it
        self.buffer.admit(size_bytes, max_block_ms)
        try:
            if sequence is not None:
                destination.check(sequence)
            elif destination in self._open:  # earlier events have the lower number and go first
                self._ship_open(destination)
            return destination.next_sequence() if sequence is None else sequence
        except BaseException:
            self.buffer.give_room()  # to the sends that wait behind this one
            raise

    def _check_count(self, destination: Destination, count: int) -> None:
        if count > destination.max_events:
            raise TransactionCapacityError(
                f"{counted(count, 'event')} can't be one batch for {destination.name}, whose transactions have at most "
                f"{destination.max_events:,} ({named('transactionCapacity')}); send fewer at once"
            )

    def _batch_with_room(
        self, destination: Destination, size_bytes: int, count: int, max_block_ms: int | None
    ) -> ProducerBatch:
        """Return a destination's open batch, once there is room for ``count`` more events of ``size_bytes``."""
        buffer = self.buffer
        buffer.admit(size_bytes, max_block_ms)
        batch = self._open.get(destination)
        if batch is not None and (batch.count + count > destination.max_events or size_bytes >= self._large_bytes):
            self._ship_open(destination)
            batch = None
        if batch is None:
            batch = self._new_batch(destination, destination.next_sequence())
            self._opened(batch.created + self._linger_seconds)
            if buffer.room.waiters:
                self._expect_room()
            seen = batch if runs_undivided() else None
            self._open[destination] = batch  # no call within these four lines: an interrupt leaves all done or none
            buffer.batches[batch] = None
            destination.open = seen
            buffer.held_bytes += batch.size_bytes
        return batch

    def _new_batch(self, destination: Destination, sequence: int) -> ProducerBatch:
        attempts, now = self._config.max_reserved_attempts, self._clock.monotonic()
        return ProducerBatch(destination, sequence, now, attempts, self._threads)

    def _expect_room(self) -> None:
        """Let open batches be shipped for the sends that wait: now if there are no others, else unless others end soon.

        If they were shipped for every send that waits, they would be small, and free little room for what they cost:
        eight threads sent a third of what one did.
        """
        buffer = self.buffer
        others = len(buffer.batches) > len(self._open)
        due = self._clock.monotonic() + (_PATIENCE_SECONDS if others else 0)
        if buffer.out_of_patience_at is None or due < buffer.out_of_patience_at:
            self._opened(due)
            buffer.out_of_patience_at = due

    # ── shipping; the mutex is held ─────────────────────────────────────────────────────────

    def _ship_open(self, destination: Destination) -> None:
        destination.open = None
        batch = self._open[destination]
        self._ship_batch(batch)
        self._open.pop(destination, None)

    def _ship_batch(self, batch: ProducerBatch) -> None:
        """Queue a batch for commit. After an interrupt, the destination's next batch or `ship_all` does the rest."""
        buffer = self.buffer
        self._shipping[batch.destination] = None
        if batch not in buffer.batches:
            buffer.batches[batch] = None
            buffer.held_bytes += batch.size_bytes
        batch.destination.ready.append(batch)  # the first call, so an interrupt leaves all of the above done or none
        self._ship(batch.destination)
        del self._shipping[batch.destination]

    def seal_next(self, destination: Destination) -> ProducerBatch | None:
        """Return a destination's next batch that can be committed now, sealed; None without one."""
        batch = destination.take()
        if batch is not None and self._open.get(destination) is batch:
            del self._open[destination]
        return batch

    def ship_open(self) -> None:
        """Ship all open batches."""
        for destination in list(self._open):
            self._ship_open(destination)

    def ship_all(self) -> None:
        """Ship all open batches, and any that an interrupt kept from being shipped."""
        self.ship_open()
        for destination in list(self._shipping):
            self._ship(destination)
            self._shipping.pop(destination, None)

    def ship_lingered(self, now: float) -> float | None:
        """Ship the batches that have lingered; all of them if a send waited long enough for room, or was refused it.

        Args:
            now: the time, in the clock's monotonic seconds.

        Returns:
            When the next batch will have lingered; None if no batch is open.
        """
        patience = self.buffer.out_of_patience_at
        if patience is not None and patience <= now:
            self.buffer.out_of_patience_at = patience = None
            self.ship_open()
        while self._open:
            destination, batch = next(iter(self._open.items()))
            due = batch.created + self._linger_seconds
            if due > now:
                return due if patience is None else min(due, patience)
            self._ship_open(destination)
        return patience
