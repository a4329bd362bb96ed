"""The accumulator: an open batch for each destination, and the bound of what all batches hold.

Its mutex guards everything that is scheduled: open batches, the retry queue, the numbers of batches.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from threading import get_ident
from typing import Any, NoReturn

from spillable_stream.errors import (
    EventTooLargeError,
    ProducerClosedError,
    ProducerTimeoutError,
    TransactionCapacityError,
)
from spillable_stream.producer.batch import Callback, ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import BATCH_BYTES
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.room import Place, RoomQueue, Waiter
from spillable_stream.producer.threads import Threads
from spillable_stream.producer.trouble import text_of

__all__ = ["Accumulator"]

_HEALED_SECONDS = 1.0  # after which who waits for room looks by itself
_OLDEST = 100


class Accumulator:
    """Gathers events into batches and ships those that are full. Thread-safe.

    Args:
        config: the thresholds and the bound.
        clock: the time.
        ship: called with a destination that has a batch ready, the mutex held.
        opened: called with the time at which a new batch will have lingered, the mutex held.
        threads: the producer's, which must not wait for room, since only they can make it.

    Attributes:
        mutex: its lock.
        changed: notified when a batch ends, if somebody waits for that.
        room: who waits for room.
        batches: all batches that have not ended, oldest first.
        held_bytes: what they hold; it changes together with `batches` and a batch's ``size_bytes``, with no call in
            between, so that an interrupt leaves both changed or neither. Who looks for room looks for that of events:
            a batch that is opened for them may hold `BATCH_BYTES` beyond the bound.
        closing: whether it takes no more events.
        failure: what ended the producer, if that was not `close`.
        places: in which place of the line a thread looks for room, as long as it is in a call that does.
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
        self.changed: threading.Condition = threading.Condition(self.mutex)  # type: ignore[arg-type]
        self.batches: dict[ProducerBatch, None] = {}
        self.held_bytes: int = 0
        self.closing = False
        self.failure: BaseException | None = None
        self.room: RoomQueue = RoomQueue(BATCH_BYTES)
        self.places: dict[int, Place] = {}
        self._open: OrderedDict[Destination, ProducerBatch] = OrderedDict()  # oldest first
        self._shipping: dict[Destination, None] = {}  # what an interrupt may have kept from being served
        self._config = config
        self._clock = clock
        self._ship = ship
        self._opened = opened
        self._threads = threads
        self._total_bytes = config.total_size_in_bytes
        self._bound_bytes = self._total_bytes  # of what is held by who need not look whether somebody waits
        self._most_bytes = config.batch_size_threshold_in_bytes + BATCH_BYTES
        self._most_events = config.batch_count_threshold
        self._linger_seconds = config.linger_ms / 1000
        self._done_events = 0

    def add(
        self,
        destination: Destination,
        body: Any,
        size_bytes: int,
        headers: dict[str, str] | None,
        callback: Callback | None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Add one event to a destination's open batch.

        Raises:
            ProducerClosedError: no more events are taken.
            ProducerTimeoutError: there was no room within ``max_block_ms``, by default the producer's.
            EventTooLargeError: there never will be.
        """
        mutex, me = self.mutex, get_ident()
        slot = mutex.slot
        if slot:
            mutex.refuse_twice()
        try:  # `Mutex.run`, without the calls
            if mutex.waiting or slot.setdefault(0, me) != me:
                mutex.acquire()
            batch = self._open.get(destination)
            if batch is None or self.closing or self.held_bytes + size_bytes > self._bound_bytes:
                batch = self._batch_with_room(destination, size_bytes, 1, max_block_ms)
            bodies = batch.bodies
            index = len(bodies)
            bodies.append(body)
            batch.size_bytes += size_bytes
            self.held_bytes += size_bytes
            if headers:
                batch.headers = batch.headers or {}
                batch.headers[index] = headers
            if callback is not None:
                batch.callbacks = batch.callbacks or []
                batch.callbacks.append((callback, index, 1))
            if index + 1 >= self._most_events or batch.size_bytes >= self._most_bytes:
                self._ship_open(destination)
        finally:
            if slot and slot[0] == me:
                del slot[0]
        if destination not in self._open:  # it was shipped: let an I/O thread have the interpreter, now and not in 5 ms
            time.sleep(0)
        return SendFuture(batch, index)

    def add_many(
        self,
        destination: Destination,
        bodies: Sequence[Any],
        headers: Mapping[int, dict[str, str]],
        size_bytes: int,
        callback: Callback | None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Add events to a destination's open batch, or to a new one if it has no room for all; raises what `add` does.

        Raises:
            TransactionCapacityError: no batch would have room for all.
        """
        self._check_count(destination, len(bodies))

        def add() -> SendFuture:
            batch = self._batch_with_room(destination, size_bytes, len(bodies), max_block_ms)
            index = len(batch.bodies)
            batch.bodies.extend(bodies)
            if headers:
                batch.headers = batch.headers or {}
                batch.headers.update((index + i, of_one) for i, of_one in headers.items())
            batch.size_bytes += size_bytes
            self.held_bytes += size_bytes
            if callback is not None:
                batch.callbacks = batch.callbacks or []
                batch.callbacks.append((callback, index, len(bodies)))
            if len(batch.bodies) >= self._most_events or batch.size_bytes >= self._most_bytes:
                self._ship_open(destination)
            return SendFuture(batch, index, len(bodies))

        return self.mutex.run(add)

    def add_whole(
        self,
        destination: Destination,
        fill: Callable[[ProducerBatch], None],
        count: int,
        size_bytes: int,
        callback: Callback | None,
        sequence: int | None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Ship events as a batch of their own; raises what `add_many` does.

        Args:
            destination: where to.
            fill: puts them into the batch.
            count: how many they are.
            size_bytes: how much they hold.
            callback: called with the result.
            sequence: the batch's number; None for the next one.
            max_block_ms: how long to wait for room; None for as long as the producer does.

        Raises:
            OptionError: it can't have this number.
            ProducerSequenceError: it can't have it now.
        """
        self._check_count(destination, count)

        def add() -> SendFuture:
            if sequence is not None:
                destination.check(sequence)  # before it waits, and after
            self._admit(size_bytes, max_block_ms)
            try:
                if sequence is not None:
                    destination.check(sequence)
                elif destination in self._open:  # what was sent before has the lower number, and goes first
                    self._ship_open(destination)
                number = destination.next_sequence() if sequence is None else sequence
            except BaseException:
                self._give_room()  # to who waits behind this send
                raise
            batch = self._new_batch(destination, number)
            batch.own_sequence = sequence is not None
            fill(batch)
            if callback is not None:
                batch.callbacks = [(callback, 0, count)]
            batch.size_bytes += size_bytes
            self._ship_batch(batch)
            if sequence is not None:
                destination.sent(sequence)
            return SendFuture(batch, 0, count)

        return self.mutex.run(add)

    def _check_count(self, destination: Destination, count: int) -> None:
        if count > destination.max_events:
            raise TransactionCapacityError(
                f"{count:,} events can't be one batch for {destination.name}, whose transactions have at most "
                f"{destination.max_events:,} (transactionCapacity); send fewer at once"
            )

    def _batch_with_room(
        self, destination: Destination, size_bytes: int, count: int, max_block_ms: int | None
    ) -> ProducerBatch:
        """Return a destination's open batch, in which there is room for so much more once this returns."""
        self._admit(size_bytes, max_block_ms)
        batch = self._open.get(destination)
        if batch is not None and len(batch.bodies) + count > destination.max_events:
            self._ship_open(destination)
            batch = None
        if batch is None:
            batch = self._new_batch(destination, destination.next_sequence())
            self._opened(batch.created + (0 if self.room.waiters else self._linger_seconds))
            self._open[destination] = batch  # no call between these three: an interrupt leaves all or none
            self.batches[batch] = None
            self.held_bytes += batch.size_bytes
        return batch

    def _new_batch(self, destination: Destination, sequence: int) -> ProducerBatch:
        attempts, now = self._config.max_reserved_attempts, self._clock.monotonic()
        return ProducerBatch(destination, sequence, now, attempts, self._threads)

    # ── room ────────────────────────────────────────────────────────────────────────────────

    def _admit(self, size_bytes: int, max_block_ms: int | None) -> None:
        """Wait until there is room for so many bytes."""
        if size_bytes > self._total_bytes:
            raise EventTooLargeError(
                f"{size_bytes:,} bytes never fit total_size_in_bytes, {self._total_bytes:,}; raise it, or send less"
            )
        if self.closing:
            self._refuse_all()
        if not self.room.waiters:
            self._bound_bytes = self._total_bytes - self.room.given_bytes()
            if self.held_bytes + size_bytes <= self._bound_bytes:
                return
        if (place := self.places.get(get_ident())) is not None:
            self._look_for_room(size_bytes, place)
        else:
            self._wait_for_room(size_bytes, max_block_ms)

    def _wait_for_room(self, size_bytes: int, max_block_ms: int | None) -> None:
        began, done_before = self._clock.monotonic(), self._done_events
        if max_block_ms is None:
            max_block_ms = self._config.max_block_ms
        deadline = began + max_block_ms / 1000 if max_block_ms >= 0 else None
        if self._threads.are_here():
            deadline = began
        given = threading.Condition(self.mutex)  # type: ignore[arg-type]
        waiter = Waiter(size_bytes, given.notify)
        try:
            self.room.waiters[waiter] = None
            while True:
                self._give_room()
                if self.closing:
                    self._refuse_all()
                if waiter in self.room.given:
                    return
                self.ship_open()  # it makes no sense to linger
                now = self._clock.monotonic()
                if deadline is not None and now >= deadline:
                    raise self._full(size_bytes, now - began, self._done_events - done_before)
                left = _HEALED_SECONDS if deadline is None else min(deadline - now, _HEALED_SECONDS)
                self._clock.wait(given, left)
        except BaseException:
            self.room.waiters.pop(waiter, None)
            self.room.given.pop(waiter, None)
            if self.mutex.is_mine():
                self._give_room()
            raise
        finally:
            self.room.given.pop(waiter, None)

    def _look_for_room(self, size_bytes: int, place: Place) -> None:
        """Take the room that a place in the line was given, or wait in it for that, which is not here."""
        if place.waiter is None or (place.waiter not in self.room.waiters and place.waiter not in self.room.given):
            place.waiter = Waiter(size_bytes, place.wake, place.is_gone)
            self.room.waiters[place.waiter] = None
        self._give_room()
        if place.waiter in self.room.given:
            del self.room.given[place.waiter]
            place.waiter = None
            return
        self.ship_open()
        raise self._full(size_bytes, 0, 0)

    def leave(self, place: Place) -> None:
        """Give up a place in the line, and what it was given. The mutex is held."""
        if place.waiter is not None:
            self.room.waiters.pop(place.waiter, None)
            self.room.given.pop(place.waiter, None)
            place.waiter = None
        self._give_room()

    def _give_room(self) -> None:
        """Let those who wait have what is free, in order; while one still waits, nobody else takes any."""
        self.room.give(self._total_bytes - self.held_bytes)
        self._bound_bytes = -1 if self.room.waiters else self._total_bytes - self.room.given_bytes()

    def _refuse_all(self) -> NoReturn:
        if self.failure is None:
            raise ProducerClosedError("the producer is closed; make a new one")
        raise ProducerClosedError(
            f"the producer failed and is closed: {type(self.failure).__name__}: {text_of(self.failure)}; make a new one"
        ) from self.failure

    def _full(self, size_bytes: int, waited_seconds: float, done: int) -> ProducerTimeoutError:
        oldest = islice(self.batches, _OLDEST)
        errors = {b.destination.name: b.attempts[-1].error_message for b in oldest if b.attempts}
        why = "".join(f". {name} failed last with: {message}" for name, message in errors.items())
        others = len(self.room.waiters) + len(self.room.given) - 1  # this one is among them
        before = f", and {others:,} other sends wait for room" if others else ""
        rate = f"; {done / waited_seconds:,.0f} events/s were done meanwhile" if waited_seconds else ""
        return ProducerTimeoutError(
            f"no room for {size_bytes:,} bytes: {len(self.batches):,} batches hold {self.held_bytes:,} of "
            f"total_size_in_bytes {self._total_bytes:,}{before}. Waited {waited_seconds:.2f} s{rate}; send less, or "
            f"raise total_size_in_bytes or max_block_ms{why}"
        )

    def grow(self, batch: ProducerBatch, size_bytes: int) -> None:
        """Count what a batch holds since it was tried, room or not. The mutex is held."""
        if batch in self.batches:
            batch.size_bytes += size_bytes
            self.held_bytes += size_bytes

    def release(self, batch: ProducerBatch) -> None:
        """Forget a batch that has ended; what it held is free. The mutex is held."""
        if batch in self.batches:
            del self.batches[batch]
            self.held_bytes -= batch.size_bytes
            self._done_events += batch.count
        if self.room.waiters or self._bound_bytes != self._total_bytes:
            self._give_room()
        self.changed.notify_all()

    def sent_events(self) -> int:
        """Return how many events were ever added. The mutex is held."""
        return self._done_events + sum(b.count if b.sealed else len(b) for b in self.batches)

    # ── shipping; the mutex is held ─────────────────────────────────────────────────────────

    def _ship_open(self, destination: Destination) -> None:
        batch = self._open[destination]
        self._ship_batch(batch)
        self._open.pop(destination, None)

    def _ship_batch(self, batch: ProducerBatch) -> None:
        """Let a batch be committed. Where an interrupt ends this, the destination's next one or `ship_all` goes on."""
        self._shipping[batch.destination] = None
        if batch not in self.batches:
            self.batches[batch] = None
            self.held_bytes += batch.size_bytes
        batch.destination.ready.append(batch)  # the first call: an interrupt leaves all of this done or none
        self._ship(batch.destination)
        del self._shipping[batch.destination]

    def seal_next(self, destination: Destination) -> ProducerBatch | None:
        """Return the next batch that can be committed now, if there is one."""
        batch = destination.take()
        if batch is not None and self._open.get(destination) is batch:
            del self._open[destination]
        return batch

    def ship_open(self) -> None:
        """Ship all open batches."""
        for destination in list(self._open):
            self._ship_open(destination)

    def ship_all(self) -> None:
        """Ship all open batches, and again what an interrupt kept from being shipped."""
        self.ship_open()
        for destination in list(self._shipping):
            self._ship(destination)
            self._shipping.pop(destination, None)

    def ship_lingered(self, now: float) -> float | None:
        """Ship the batches that have lingered and return when the next one will have, None if none is open.

        While somebody waits for room none lingers.
        """
        if self.room.waiters:
            self.ship_open()
        while self._open:
            destination, batch = next(iter(self._open.items()))
            due = batch.created + self._linger_seconds
            if due > now:
                return due
            self._ship_open(destination)
        return None
