"""The producer: send and forget, with nothing forgotten (the Aliyun LOG Java Producer's model, on durable channels)."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN, Event, batch_from_rows, check_events
from spillable_stream.channel.producers import PASSING
from spillable_stream.errors import OptionError, ProducerClosedError, SchemaError, SpillableError
from spillable_stream.format.batch import accept_batch
from spillable_stream.names import check_producer
from spillable_stream.producer.batch import Callback, ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.dead_letters import DeadLetters
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.pipeline import Pipeline
from spillable_stream.producer.routing import ByName, Only, Route, Sharded
from spillable_stream.producer.stats import ProducerStats
from spillable_stream.producer.target import ChannelTarget, Target, as_target

__all__ = ["Producer"]

_EVENT_BYTES = 64  # what an event takes beside its body: the object's head, a place in a list
_HEADERS_BYTES = 64
_HEADER_BYTES = 110
_AT_EXIT_SECONDS = 60.0

_log = logging.getLogger("spillable_stream.producer")


class Producer:
    """Sends events from any thread, and goes on at once: they are batched, committed, retried and reported.

    Args:
        target: where events go: a path, a `Channel` or a `Target`; a mapping of keys to some of these, of which the
            key of a send chooses one; or a sequence of some, which share the keys.
        producer_id: the producer's name, for a program that goes on as the same producer after a restart; by default it
            is another one each time.
        dead_letter: where events go that can't be committed: a path, a `Channel` or a `Target` that takes events.
        clock: the time, for tests.
        rng: the jitter of retries, for tests.
        config: the producer's options (`spillable_stream.options`).

    Raises:
        OptionError: an unknown option, or a value that is not allowed or contradicts another one.
        ProducerBusyError: another live producer has the ID.
        SchemaError: the dead-letter channel is a typed one.
        SpillableError: a channel can't be opened; all that `Channel` raises.
    """

    def __init__(
        self,
        target: Any,
        *,
        producer_id: str | None = None,
        dead_letter: Any = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **config: Any,
    ) -> None:
        self._given_id = None if producer_id is None else check_producer(producer_id)
        self._clock = clock or Clock()
        self._rng = rng or random.Random()
        self._mutex = threading.RLock()
        self._closed = False
        self._targets: list[Target] = []
        try:
            self._keys = self._open(target)
            self._dead = None if dead_letter is None else self._open_one(dead_letter)
            self._config = self._configured(config)
            self._start()
        except BaseException:
            for opened in self._targets:
                opened.close()
            raise
        _live.add(self)

    def _open(self, target: Any) -> Any:
        """Open all targets and return them as they were given: one, a mapping or a list."""
        if isinstance(target, Mapping):
            found: Any = {key: self._open_one(one) for key, one in target.items()}
        elif isinstance(target, Sequence) and not isinstance(target, str):
            found = [self._open_one(one) for one in target]
        else:
            return self._open_one(target)
        if not found:
            raise OptionError("a producer needs at least one channel to send to")
        return found

    def _open_one(self, target: Any) -> Target:
        opened = as_target(target)
        self._targets.append(opened)
        return opened

    def _configured(self, given: Mapping[str, Any]) -> ProducerConfig:
        receiving = [t for t in self._targets if t is not self._dead]
        most = min(t.max_events for t in receiving)
        if self._dead is not None and self._dead.max_events < max(t.max_events for t in receiving):
            raise OptionError(
                f"the dead-letter channel {self._dead.name} takes {self._dead.max_events:,} events at once, fewer than "
                "a batch may have; raise its transactionCapacity"
            )
        local = all(isinstance(t, ChannelTarget) for t in receiving)
        channels = len(self._keys) if isinstance(self._keys, list) else 1
        return ProducerConfig.of(given, local=local, max_events=most, channels=channels)

    def _start(self) -> None:
        """Start the threads; again in a forked child."""
        self.producer_id = self._given_id or _passing_id()
        keys = self._keys
        if isinstance(keys, Mapping):
            by_name = {key: self._destination_of(target) for key, target in keys.items()}
            route: Route = ByName(by_name)
            destinations = list(by_name.values())
        elif isinstance(keys, list):
            destinations = [self._destination_of(target) for target in keys]
            route = Sharded(destinations, self._config.buckets, self._config.adjust_shard_hash)
        else:
            destinations = [self._destination_of(keys)]
            route = Only(destinations[0])
        dead_letters = None if self._dead is None else DeadLetters(self._dead, _passing_id())
        name = f"spillable-producer-{self.producer_id}"
        self._pipeline = Pipeline(name, self._config, destinations, dead_letters, self._targets, self._clock, self._rng)
        self._add = self._pipeline.accumulator.add
        self._route = route
        self._only = destinations[0] if isinstance(route, Only) else None

    def _destination_of(self, target: Target) -> Destination:
        if self._given_id is not None:
            target.claim(self.producer_id)
        return Destination(target, self.producer_id, target.last_sequence(self.producer_id))

    # ── sending ─────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        event: Event | bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        callback: Callback | None = None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Send one event and return at once, unless the buffer is full.

        Args:
            event: an `Event`, a body, or for a typed channel a mapping of column to value.
            headers: of a body.
            key: which of several channels; of those that share the keys, None for each in turn.
            callback: called with the `Result`, in another thread, which must not wait for another send.
            max_block_ms: how long to wait for room, in milliseconds: -1 for ever; None for as long as the producer's
                other sends.

        Returns:
            The future of the `Result`.

        Raises:
            SchemaError: the event does not fit the channel.
            ProducerTimeoutError: the buffer stayed full for ``max_block_ms``; says how full.
            ProducerClosedError: the producer is closed.
            EventTooLargeError: the event is larger than the buffer.
            OptionError: the key leads nowhere.
        """
        destination = self._only if key is None else None
        if destination is None:
            destination = self._route.to(key)
        if type(event) is bytes and headers is None and not destination.typed:
            return self._add(destination, event, len(event) + _EVENT_BYTES, None, callback, max_block_ms)
        if destination.typed:
            row, size_bytes = _checked_row(event, headers, destination)
            return self._add(destination, row, size_bytes, None, callback, max_block_ms)
        body, own, size_bytes = _checked_event(event, headers)
        return self._add(destination, body, size_bytes, own, callback, max_block_ms)

    def send_many(
        self,
        events: Iterable[Event | bytes | Mapping[str, Any]],
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Send events that are committed together, with one future; raises what `send` does.

        Args:
            events: at least one, at most the channel's ``transactionCapacity``.
            key: which of several channels.
            callback: called with the `Result`.
            sequence: the number of the batch that they are then by themselves. A program that can send its input again
                chooses numbers that grow with its input: a batch whose number is in the channel is not stored twice,
                batches are committed in their order, and `last_sequence` tells from where to go on.
            max_block_ms: as of `send`.

        Raises:
            TransactionCapacityError: they are too many.
            ProducerSequenceError: a batch before it failed and was not sent again.
        """
        destination = self._route.to(key)
        found = list(events)
        if not found:
            raise OptionError("send_many needs at least one event")
        headers: dict[int, dict[str, str]] = {}
        if destination.typed:
            bodies, size_bytes = _checked_rows(found, destination)
        else:
            bodies, size_bytes = [], 0
            for i, event in enumerate(found):
                body, own, event_bytes = _checked_event(event, None)
                bodies.append(body)
                size_bytes += event_bytes
                if own:
                    headers[i] = own
        accumulator = self._pipeline.accumulator
        if sequence is None:
            return accumulator.add_many(destination, bodies, headers, size_bytes, callback, max_block_ms)

        def fill(batch: ProducerBatch) -> None:
            batch.bodies, batch.headers = bodies, headers

        self._require_name(sequence)
        return accumulator.add_whole(destination, fill, len(bodies), size_bytes, callback, sequence, max_block_ms)

    def send_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: int | None = None,
    ) -> SendFuture:
        """Send an Arrow batch or table as a batch of its own; arguments and errors are those of `send_many`."""
        destination = self._route.to(key)
        if isinstance(batch, pa.Table):
            (batch,) = batch.combine_chunks().to_batches() or [None]
        if batch is None or not batch.num_rows:
            raise OptionError("send_batch needs at least one event")
        fitted = accept_batch(batch, destination.target.schema, ID_COLUMN)
        self._require_name(sequence)

        def fill(of: ProducerBatch) -> None:
            of.record_batch = fitted

        accumulator = self._pipeline.accumulator
        rows, size_bytes = fitted.num_rows, fitted.nbytes
        return accumulator.add_whole(destination, fill, rows, size_bytes, callback, sequence, max_block_ms)

    def _require_name(self, sequence: int | None) -> None:
        if sequence is not None and self._given_id is None:
            raise OptionError("a sequence means nothing without a producer_id that outlives this producer; give it one")

    def last_sequence(self, key: str | None = None) -> int:
        """Return the highest number of this producer's batches that is in a channel, 0 if none is.

        Args:
            key: which of several channels.
        """
        destination = self._route.to(key)
        return destination.target.last_sequence(self.producer_id)

    @property
    def max_block_ms(self) -> int:
        """How long a send waits for room that says nothing else, in milliseconds; -1 for ever."""
        return self._config.max_block_ms

    def watch_room(self, watcher: Callable[[], None]) -> None:
        """Call a watcher whenever there may be more room, or none any more, until `unwatch_room`.

        It is called in any thread, and must neither wait nor raise nor use the producer.
        """
        self._pipeline.accumulator.watchers[watcher] = None

    def unwatch_room(self, watcher: Callable[[], None]) -> None:
        """Call a watcher no more."""
        self._pipeline.accumulator.watchers.pop(watcher, None)

    def commits_here(self) -> bool:
        """Tell whether this thread is one of those in which the producer commits."""
        return self._pipeline.own_threads.commit_here()

    # ── the rest ────────────────────────────────────────────────────────────────────────────

    def stats(self) -> ProducerStats:
        """Return what is queued, and what became of the rest."""
        return self._pipeline.stats(self.producer_id)

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Commit what was sent so far, and wait for it; from a callback, wait for nothing.

        Args:
            timeout_seconds: how long to wait; None for as long as it takes, retries included.

        Raises:
            ProducerTimeoutError: it was not done in time; it goes on.
        """
        if self._is_here():
            self._pipeline.flush(_checked_timeout(timeout_seconds))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Commit what was sent, tell everybody, and end; from a callback, wait for nothing.

        What waits for a retry is tried once more. May be called again, and from many threads.

        Args:
            timeout_seconds: how long to wait for all of it; 0 for not at all, None for as long as it takes.

        Raises:
            ProducerTimeoutError: it was not done in time: the futures of what had not been sent fail, with the events;
                what is being committed then still tells.
            ProducerError: a channel could not be closed.
        """
        timeout_seconds = _checked_timeout(timeout_seconds)
        self._closed = True
        _live.discard(self)
        if self._is_here():
            self._pipeline.close(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer({self.producer_id!r}{', closed' if self._closed else ''})"

    # ── forks ───────────────────────────────────────────────────────────────────────────────

    def _is_here(self) -> bool:
        """Tell whether the threads are in this process: not in a forked child that has not sent anything."""
        return not isinstance(self._route, _Forked)

    def _after_fork(self) -> None:
        """In a forked child: what was sent is the parent's; begin anew with the first send."""
        self._mutex = threading.RLock()
        self._leave_claims()
        self._pipeline.after_fork()
        self._only, self._route = None, _Forked(self)

    def _leave_claims(self) -> None:
        for target in self._targets:
            if isinstance(target, ChannelTarget):
                target.leave_claims()

    def _begin_in_child(self) -> Route:
        with self._mutex:
            if isinstance(self._route, _Forked):
                if self._closed:
                    raise ProducerClosedError("the producer is closed; make a new one")
                try:
                    self._start()
                except BaseException:
                    self._leave_claims()
                    raise
            return self._route


class _Forked:
    """The route of a producer in a forked child, until its first send."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def to(self, key: str | None) -> Destination:
        """Start the producer's threads and return the destination."""
        return self._producer._begin_in_child().to(key)


def _passing_id() -> str:
    return PASSING + uuid.uuid4().hex[:16]


def _checked_timeout(seconds: float | None) -> float | None:
    if seconds is not None and seconds < 0:
        raise OptionError(f"timeout_seconds must be 0 or more, or None, not {seconds!r}")
    return seconds


def _checked_event(event: Any, headers: Mapping[str, str] | None) -> tuple[bytes, dict[str, str] | None, int]:
    """Return the body, a copy of the headers, and how much both hold; raises SchemaError."""
    if not isinstance(event, Event):
        if headers is not None and not isinstance(headers, Mapping):
            raise SchemaError(f"an event's headers must be a mapping, not {type(headers).__name__}")
        event = Event(event, headers or {})
    elif headers is not None:
        raise SchemaError("an Event has its own headers; give headers with a body only")
    check_events((event,))
    size_bytes = len(event.body) + _EVENT_BYTES
    if not event.headers:
        return event.body, None, size_bytes
    own = dict(event.headers)
    size_bytes += _HEADERS_BYTES + sum(len(k) + len(v or "") + _HEADER_BYTES for k, v in own.items())
    return event.body, own, size_bytes


def _checked_row(event: Any, headers: Any, destination: Destination) -> tuple[Any, int]:
    if headers is not None:
        raise SchemaError(f"{destination.name} is a typed channel: its events have no headers")
    rows, size_bytes = _checked_rows([event], destination)
    return rows[0], size_bytes


def _checked_rows(events: Sequence[Any], destination: Destination) -> tuple[list[Any], int]:
    """Return a copy of rows, and how much they hold; raises SchemaError."""
    found = batch_from_rows(events, destination.target.schema)
    return [dict(row) for row in events], found.nbytes + _EVENT_BYTES * len(events) * (1 + found.num_columns)


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


def _close_at_exit() -> None:
    for producer in list(_live):
        try:
            producer.close(_AT_EXIT_SECONDS)
        except SpillableError:
            _log.exception("%r was not closed before the program's end, and could not be closed then", producer)


def _after_fork_in_child() -> None:
    for producer in list(_live):
        producer._after_fork()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
