"""The buffer of a producer: what all its batches hold, the limit on it, and the sends that wait for room.

The accumulator's mutex guards it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from threading import get_ident
from typing import NoReturn

from spillable_stream.counted import counted
from spillable_stream.error_text import type_and_text
from spillable_stream.errors import EventTooLargeError, ProducerClosedError, ProducerTimeoutError
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.event_size import BATCH_BYTES
from spillable_stream.producer.mutex import Mutex
from spillable_stream.producer.room import Poller, RoomQueue, Waiter
from spillable_stream.producer.threads import Threads

__all__ = ["Buffer"]

_HEALED_SECONDS = 1.0  # a waiting send checks for room this often, even if nobody wakes it
_OLDEST = 100


class Buffer:
    """The memory of the batches that have not ended.

    Args:
        config: the limit.
        clock: the time.
        mutex: the accumulator's.
        expect_room: called while a send waits: it lets open batches be shipped. The mutex is held.
        threads: the producer's threads. They must not wait for room, since only they can free it.

    Attributes:
        mutex: the accumulator's. A section without a call in it need only see that the lock is free (`Producer.send`).
        changed: notified whenever a batch ends.
        room: the queue of sends that wait for room.
        batches: all batches that have not ended, oldest first.
        held_bytes: the bytes that they hold. It changes together with `batches` and a batch's ``size_bytes``, with no
            call in between, so an interrupt leaves all changed or none. The limit applies to events: a batch that is
            opened for admitted events may exceed it by `BATCH_BYTES`.
        bound_bytes: up to here a send need not check for waiting sends; -1 while there are some, or all are refused.
        closing: whether it refuses new events (`refuse_new`).
        failure: the error that ended the producer; None if `close` did.
        pollers: the poller for room, by thread ID, of each thread that sends on behalf of one.
        out_of_patience_at: when open batches are shipped because sends wait for room; None if none waits.
    """

    def __init__(
        self, config: ProducerConfig, clock: Clock, mutex: Mutex, expect_room: Callable[[], None], threads: Threads
    ) -> None:
        self.mutex: Mutex = mutex
        self.changed: threading.Condition = threading.Condition(mutex)  # type: ignore[arg-type]
        self.batches: dict[ProducerBatch, None] = {}
        self.held_bytes: int = 0
        self.closing: bool = False
        self.failure: BaseException | None = None
        self.room: RoomQueue = RoomQueue(BATCH_BYTES)
        self.pollers: dict[int, Poller] = {}
        self.out_of_patience_at: float | None = None
        self._config = config
        self._clock = clock
        self._expect_room = expect_room
        self._threads = threads
        self._total_bytes = config.total_size_in_bytes
        self.bound_bytes: int = self._total_bytes
        self._done_events = 0

    # ── a way in ────────────────────────────────────────────────────────────────────────────

    def admit(self, size_bytes: int, max_block_ms: int | None) -> None:
        """Wait until there is room.

        Args:
            size_bytes: how much room.
            max_block_ms: how long to wait, in milliseconds; None for the producer's ``max_block_ms``.

        Raises:
            ProducerClosedError: the producer is closed.
            ProducerTimeoutError: there was no room in time.
            EventTooLargeError: there never will be so much.
        """
        if size_bytes > self._total_bytes:
            raise EventTooLargeError(
                f"{size_bytes:,} bytes never fit total_size_in_bytes, {self._total_bytes:,}; raise it, or send less"
            )
        if self.closing:
            self._refuse_all()
        if not self.room.waiters:
            self.bound_bytes = self._total_bytes - self.room.given_bytes()
            if self.held_bytes + size_bytes <= self.bound_bytes:
                return
        if (poller := self.pollers.get(get_ident())) is not None:
            self._look_for_room(size_bytes, poller)
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
                self.give_room()
                if self.closing:
                    self._refuse_all()
                if waiter in self.room.given:
                    return
                self._expect_room()
                now = self._clock.monotonic()
                if deadline is not None and now >= deadline:
                    raise self._full(size_bytes, now - began, self._done_events - done_before)
                left = _HEALED_SECONDS if deadline is None else min(deadline - now, _HEALED_SECONDS)
                self._clock.wait(given, left)
        except BaseException:
            self.room.waiters.pop(waiter, None)
            self.room.given.pop(waiter, None)
            if self.mutex.is_mine():
                self.give_room()
            raise
        finally:
            self.room.given.pop(waiter, None)

    def _look_for_room(self, size_bytes: int, poller: Poller) -> None:
        """Use the room that was given to a poller; without any, queue the poller and raise, not block.

        Raises:
            ProducerTimeoutError: the poller has not been given room yet. It will be woken.
        """
        if poller.waiter is None or (poller.waiter not in self.room.waiters and poller.waiter not in self.room.given):
            poller.waiter = Waiter(size_bytes, poller.wake, poller.is_gone)
            self.room.waiters[poller.waiter] = None
        self.give_room()
        if poller.waiter in self.room.given:
            del self.room.given[poller.waiter]
            poller.waiter = None
            return
        self._expect_room()
        raise self._full(size_bytes, 0, 0)

    def leave(self, poller: Poller) -> None:
        """Take a poller off the queue, with any room that it was given. The mutex is held."""
        if poller.waiter is not None:
            self.room.waiters.pop(poller.waiter, None)
            self.room.given.pop(poller.waiter, None)
            poller.waiter = None
        self.give_room()

    def give_room(self) -> None:
        """Give free room to waiting sends, in order. New sends must queue as long as one still waits."""
        self.room.give(self._total_bytes - self.held_bytes)
        closed = self.closing or self.room.waiters
        self.bound_bytes = -1 if closed else self._total_bytes - self.room.given_bytes()

    def refuse_new(self) -> None:
        """Refuse new events from now on. The mutex is held, or nobody else is there."""
        self.closing, self.bound_bytes = True, -1

    def _refuse_all(self) -> NoReturn:
        if self.failure is None:
            raise ProducerClosedError("the producer is closed; create a new one")
        raise ProducerClosedError(
            f"the producer failed and is closed: {type_and_text(self.failure)}; create a new one"
        ) from self.failure

    def _full(self, size_bytes: int, waited_seconds: float, done: int) -> ProducerTimeoutError:
        oldest = islice(self.batches, _OLDEST)
        errors = {b.destination.name: b.attempts[-1].error_message for b in oldest if b.attempts}
        why = "".join(f". {name} failed last with: {message}" for name, message in errors.items())
        others = len(self.room.waiters) + len(self.room.given) - 1  # without this one
        before = f", and {counted(others, 'other send', 'are')} waiting for room" if others else ""
        rate = f"; {done / waited_seconds:,.0f} events/s were done meanwhile" if waited_seconds else ""
        return ProducerTimeoutError(
            f"no room for {size_bytes:,} bytes: {counted(len(self.batches), 'batch', 'have')} {self.held_bytes:,} of "
            f"total_size_in_bytes {self._total_bytes:,}{before}. Waited {waited_seconds:.2f} s{rate}; send less, or "
            f"raise total_size_in_bytes or max_block_ms{why}"
        )

    # ── what the batches hold; the mutex is held ────────────────────────────────────────────

    def grow(self, batch: ProducerBatch, size_bytes: int) -> None:
        """Add the memory of an attempt's record to a batch, even beyond the limit. The mutex is held."""
        if batch in self.batches:
            batch.size_bytes += size_bytes
            self.held_bytes += size_bytes

    def divide(self, batch: ProducerBatch, rest: ProducerBatch) -> None:
        """Count a batch that gets a part of another one's events, and that one without them. The mutex is held."""
        self.batches[rest] = None
        self.held_bytes += BATCH_BYTES
        batch.size_bytes -= rest.size_bytes - BATCH_BYTES

    def release(self, batch: ProducerBatch) -> None:
        """Forget a batch that has ended, and free its room. The mutex is held."""
        if batch in self.batches:
            del self.batches[batch]
            self.held_bytes -= batch.size_bytes
            self._done_events += batch.count
        if self.room.waiters or self.bound_bytes != self._total_bytes:
            self.give_room()
        self.out_of_patience_at = None
        if self.room.waiters:
            self._expect_room()
        self.changed.notify_all()

    def sent_events(self) -> int:
        """Return the number of events ever added. The mutex is held."""
        return self._done_events + sum(b.count for b in self.batches)
