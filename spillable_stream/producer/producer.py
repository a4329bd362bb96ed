"""The producer: send and forget, with nothing forgotten (the Aliyun LOG Java Producer's model, on durable channels)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from spillable_stream.arguments import function, instance, whole_milliseconds
from spillable_stream.arguments import timeout_seconds as checked_timeout
from spillable_stream.channel.event import Event, event_list
from spillable_stream.errors import OptionError, ProducerClosedError
from spillable_stream.format.arrow_input import ArrowRows, arrow_rows
from spillable_stream.names import check_producer
from spillable_stream.option_types import ProducerKeywords
from spillable_stream.producer import process_end
from spillable_stream.producer.batch import Callback, ProducerBatch
from spillable_stream.producer.beginning import Beginning
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import (
    BODY_BYTES,
    CALLBACK_BYTES,
    JOINED_BYTES,
    TIMES_BYTES,
    TINY_BODIES,
    TINY_BODY_BYTES,
)
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.own_copy import own_batch, own_event, own_events, own_row
from spillable_stream.producer.pipeline import Pipeline
from spillable_stream.producer.room import Poller
from spillable_stream.producer.routing import Forked, Only, Route
from spillable_stream.producer.stats import ProducerStats
from spillable_stream.producer.target import Receiver, Receivers
from spillable_stream.producer.targets import Targets
from spillable_stream.quantities import Duration, Milliseconds

__all__ = ["Producer"]

_NOT_TINY_BYTES = BODY_BYTES + 2
_new = object.__new__


class Producer:
    """Sends events from any thread, without waiting for them: they are batched, committed, retried and reported.

        with ss.Producer("clicks") as producer:  # a path, a channel, or several
            future = producer.send(b"a click", {"country": "NL"})  # returns in a microsecond
            assert future.result().successful  # stored, durably

    It lives until it is closed or the process ends, referenced or not; docs/producer.md has a table of ends.

    Args:
        target: where events go: a path, a `Channel` or a `Target`; a mapping of keys to some of these, one for the
            key of each send; or a sequence of some, which share the keys.
        producer_id: the producer's name, for a program that continues as the same producer after a restart; by
            default it is another one each time.
        dead_letter: where events go that can't be committed: a path, a `Channel` or a `Target` that takes events.
        clock: the time, for tests.
        rng: the jitter of retries, for tests.
        config: the producer's options (`spillable_stream.options`).

    Raises:
        OptionError: an unknown option, or a value that is not allowed or contradicts another one.
        ProducerBusyError: another live producer has the ID.
        ProducerClosedError: the process is ending.
        SchemaError: the dead-letter channel is a typed one.
        StorageError: the process can have no more threads.
        SpillableError: a channel can't be opened; all that `Channel` raises.
    """

    def __init__(
        self,
        target: Receiver | Receivers,
        *,
        producer_id: str | None = None,
        dead_letter: Receiver | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **config: Unpack[ProducerKeywords],
    ) -> None:
        self._given_id = None if producer_id is None else check_producer(producer_id)
        self._clock = Clock() if clock is None else instance("clock", clock, Clock)
        self._rng = random.Random() if rng is None else instance("rng", rng, random.Random)
        self._mutex = threading.RLock()
        self._closed = False
        self._forked = False
        self._targets = Targets(target, dead_letter, config)
        try:
            self._config = self._targets.config(config)
            self._start()
        except BaseException:
            self._undo()
            raise
        process_end.follow_forks(self)

    def _undo(self) -> None:
        if hasattr(self, "_pipeline"):
            self._pipeline.shutdown.begin_close()
        else:
            self._targets.close()

    def _start(self) -> None:
        """Start the threads; again in a forked child."""
        process_end.refuse_at_end()
        targets, config = self._targets, self._config
        begun = Beginning.of(targets, self._given_id, config)
        self.producer_id: str = begun.producer_id
        name, destinations = f"spillable-producer-{begun.producer_id}", begun.destinations
        self._pipeline = Pipeline(name, config, destinations, begun.dead_letters, targets, self._clock, self._rng)
        process_end.started(self._pipeline)
        self._accumulator, self._buffer = self._pipeline.accumulator, self._pipeline.buffer
        # Here too, for every send looks at them.
        self._most_bytes, self._last_index = self._accumulator.most_bytes, self._accumulator.last_index
        self._route: Route = begun.route
        self._only = destinations[0] if isinstance(begun.route, Only) else None

    # ── sending ─────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        event: Event | bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        # What follows is meant to be named, and not keyword-only: Python would look up each default by name, each time.
        key: str | None = None,
        callback: Callback | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture:
        """Send one event and return at once, unless the buffer is full.

        Args:
            event: an `Event`, a body, or for a typed channel a mapping of column to value.
            headers: of a body.
            key: which of several channels; of those that share the keys, None for each in turn.
            callback: called with the `Result`, in another thread, which must not wait for another send.
            max_block_ms: how long to wait for room, such as 500, in milliseconds, or "5s": -1 for no limit; None for
                as long as the producer's other sends.
            ttl: for how long the event counts after its commit, such as 90, in seconds, or "2h"; None for the
                producer's ``ttl``. With a delay it counts from when the event is due.
            deliver_after: how long after this call it is due, such as 90, in seconds, or "2h", however often its batch
                is tried; it has no write-order ID before (`Result.first_id` is 0).
            deliver_at: when it is due, with a time zone. A year from now at most.

        Returns:
            The future of the `Result`.

        Raises:
            SchemaError: the event does not fit the channel.
            ProducerTimeoutError: the buffer stayed full for ``max_block_ms``; says how full.
            ProducerClosedError: the producer is closed.
            EventTooLargeError: the event is larger than the buffer.
            OptionError: the key leads nowhere, one of the times is not valid, the channel can't delay events, or
                another argument is not of its type.
        """
        destination = self._only if key is None else None
        if destination is None:
            destination = self._route.to(key)
        own = None
        if type(event) is bytes and headers is None and not destination.typed:
            size_bytes = len(event) + BODY_BYTES
            if size_bytes < _NOT_TINY_BYTES:
                event, size_bytes = TINY_BODIES[event], TINY_BODY_BYTES
            waits = max_block_ms is None or (type(max_block_ms) is int and max_block_ms >= -1)
            if waits and callback is None and ttl is None and deliver_after is None and deliver_at is None:
                future, one, buffer = _new(SendFuture), (event,), self._buffer
                # No call from here to the return: a lock that is free stays free (`runs_undivided`).
                if (batch := destination.open) is not None and not buffer.mutex.slot:
                    index, bodies = batch.count, batch.bodies
                    batch_bytes, held_bytes = batch.size_bytes + size_bytes, buffer.held_bytes + size_bytes
                    if held_bytes <= buffer.bound_bytes and batch_bytes < self._most_bytes and index < self._last_index:
                        bodies += one
                        batch.count, batch.size_bytes, buffer.held_bytes = index + 1, batch_bytes, held_bytes
                        future.batch, future.index, future.count = batch, index, 1
                        return future
        elif destination.typed:
            event, size_bytes = own_row(event, headers, destination)
        else:
            event, own, size_bytes = own_event(event, headers)
        if callback is not None:
            size_bytes += CALLBACK_BYTES
        if callback is not None or max_block_ms is not None:
            max_block_ms = _checked_wait(callback, max_block_ms)
        times = None
        if ttl is not None or deliver_after is not None or deliver_at is not None:
            times, size_bytes = destination.times_of(ttl, deliver_after, deliver_at), size_bytes + TIMES_BYTES
        return self._accumulator.add(destination, event, size_bytes, own, callback, max_block_ms, times)

    def send_many(
        self,
        events: Iterable[Event | bytes | Mapping[str, Any]],
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture:
        """Send events that are committed together, with one future; raises what `send` does.

        Args:
            events: at least one, at most the channel's ``transactionCapacity``.
            key: which of several channels.
            callback: called with the `Result`.
            sequence: the number of the batch that they are then by themselves. A program that can send its input again
                chooses numbers that grow with its input: a batch whose number is in the channel is not stored twice,
                batches are committed in their order, and `last_sequence` tells where to continue.
            max_block_ms: as in `send`.
            ttl: that of each of them, as in `send`.
            deliver_after: likewise.
            deliver_at: likewise.

        Raises:
            TransactionCapacityError: they are too many.
            ProducerSequenceError: a batch before it failed and was not sent again.
        """
        destination = self._numbered(key, sequence)
        max_block_ms = _checked_wait(callback, max_block_ms)
        found = event_list(events, "send_many")
        if not found:
            raise OptionError("send_many needs at least one event")
        bodies, headers, size_bytes = own_events(found, destination)
        accumulator, times = self._pipeline.accumulator, destination.times_of(ttl, deliver_after, deliver_at)
        if sequence is None:
            size_bytes += JOINED_BYTES if len(found) > 1 else 0
            return accumulator.add_many(destination, bodies, headers, size_bytes, callback, max_block_ms, times)

        def fill(batch: ProducerBatch) -> None:
            batch.bodies, batch.headers = bodies, headers or None

        return accumulator.add_whole(
            destination, fill, len(bodies), size_bytes, callback, sequence, max_block_ms, times
        )

    def send_batch(
        self,
        batch: ArrowRows,
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture:
        """Send an Arrow batch, a table or a data frame as a batch of its own, with one future; see `send_many`."""
        destination = self._numbered(key, sequence)
        max_block_ms = _checked_wait(callback, max_block_ms)
        own, size_bytes = own_batch(arrow_rows(batch, "send_batch"), destination)
        times = destination.times_of(ttl, deliver_after, deliver_at)

        def fill(of: ProducerBatch) -> None:
            of.record_batch = own

        accumulator, count = self._pipeline.accumulator, own.num_rows
        return accumulator.add_whole(destination, fill, count, size_bytes, callback, sequence, max_block_ms, times)

    def _numbered(self, key: str | None, sequence: int | None) -> Destination:
        """Return where a batch goes that may have a number of the application's."""
        if sequence is None:
            return self._route.to(key)
        if self._forked:
            raise OptionError(
                "a sequence means nothing in a forked child: the name is the parent's, and here the producer is "
                "another one, without a name; create a producer with a producer_id of its own"
            )
        if self._given_id is None:
            raise OptionError("a sequence means nothing without a producer_id that outlives this producer; give it one")
        return self._route.fixed(key)

    def last_sequence(self, key: str | None = None) -> int:
        """Return the highest number of this producer's batches that is in a channel, 0 if none is.

        Args:
            key: which of several channels; the numbers of each are its own.

        Raises:
            OptionError: the key leads nowhere, or there is none, and several channels share the keys.
        """
        return self._route.fixed(key).target.last_sequence(self.producer_id)

    @property
    def max_block_ms(self) -> int:
        """How long a send waits for room that says nothing else, in milliseconds; -1 for no limit."""
        return self._config.max_block_ms

    @contextmanager
    def waiting_in(self, poller: Poller) -> Iterator[None]:
        """Let the sends of this thread look for room on behalf of a poller, and refuse them where there is none yet.

        The poller is woken when the room is there, in any thread, and must neither wait nor raise nor use the
        producer; `leave` takes it off the queue.
        """
        pollers, me = self._pipeline.buffer.pollers, threading.get_ident()
        pollers[me] = poller
        try:
            yield
        finally:
            pollers.pop(me, None)

    def leave(self, poller: Poller) -> None:
        """Take a poller off the queue for room."""
        self._pipeline.leave(poller)

    def commits_here(self) -> bool:
        """Tell whether this thread is one of those in which the producer commits."""
        return self._pipeline.own_threads.commit_here()

    # ── the rest ────────────────────────────────────────────────────────────────────────────

    def stats(self) -> ProducerStats:
        """Return what is queued, and what became of the rest."""
        return self._pipeline.stats(self.producer_id)

    def flush(self, timeout_seconds: Duration | None = None) -> None:
        """Commit what was sent so far, and wait for it; from a callback, wait for nothing.

        Args:
            timeout_seconds: how long to wait; None for as long as it takes, retries included. At the end of the
                process no longer than that waits.

        Raises:
            ProducerTimeoutError: it was not done in time; it continues.
        """
        if self._is_here():
            self._pipeline.flush(process_end.bounded(checked_timeout(timeout_seconds)))

    def close(self, timeout_seconds: Duration | None = None) -> None:
        """Commit what was sent, tell everybody, and end; from a callback, wait for nothing.

        What waits for a retry is tried once more. May be called again, and from many threads. What an interrupt ends,
        or the timeout, continues anyway, at the end of the process up to its deadline.

        Args:
            timeout_seconds: how long to wait for all of it; 0 for not at all, None for as long as it takes.

        Raises:
            ProducerTimeoutError: it was not done in time: the futures of what had not been sent fail, with the events;
                what is being committed then still tells.
            ProducerError: a channel could not be closed.
        """
        seconds = process_end.bounded(checked_timeout(timeout_seconds))
        self._closed = True
        if self._is_here():
            self._pipeline.shutdown.close(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer can't be copied or pickled, for another process or a Spark task: send the path of its channel, "
            "and create one there"
        )

    def __del__(self) -> None:
        if hasattr(self, "_pipeline"):
            process_end.forgotten(self, self._pipeline)

    def __repr__(self) -> str:
        return f"Producer({self.producer_id!r}{', closed' if self._closed else ''})"

    # ── forks ───────────────────────────────────────────────────────────────────────────────

    def _is_here(self) -> bool:
        """Tell whether the threads are in this process: not in a forked child that has not sent anything."""
        return not isinstance(self._route, Forked)

    def after_fork(self) -> None:
        """In a forked child: what was sent and the name are the parent's; begin anew with the first send."""
        self._mutex = threading.RLock()
        self._forked, self._given_id = True, None
        self._pipeline.after_fork()
        self._only, self._route = None, Forked(self._begin_in_child)

    def _begin_in_child(self) -> Route:
        with self._mutex:
            if isinstance(self._route, Forked):
                if self._closed:
                    raise ProducerClosedError("the producer is closed; create a new one")
                self._start()
            return self._route


def _checked_wait(callback: Callback | None, max_block_ms: Milliseconds | None) -> int | None:
    if callback is not None:
        function("callback", callback)
    return None if max_block_ms is None else whole_milliseconds("max_block_ms", max_block_ms, -1)
