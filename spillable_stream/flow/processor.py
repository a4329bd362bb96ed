"""The channel processor: a batch goes through the interceptors, the selector, and into each of its channels.

With a producer's name the batches are numbered, and each channel remembers the number of the last one that it has::

    batch 7 ── chain, selector ──┬── part for c1 ── put as (a1.r1, 7) ── stored
                                 └── part for c2 ── put as (a1.r1, 7) ── full

A repetition puts the same parts under the same number, so c1 says that it has its part, and c2 gets its own. With each
part goes a note: which channels have parts of this batch, and what the source says of its input. After a crash the newest
note in any of the channels tells which batch may be in some of them only: one at most, since the next begins when all
have it. The source reads that one again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ProducerClaim
from spillable_stream.errors import DeliveryError, OptionError, SpillableError
from spillable_stream.flow.dead_letters import Stuck, as_dead_letters
from spillable_stream.flow.event_batch import EventInput, as_event_batch, concat, select_rows
from spillable_stream.flow.interceptors.base import AnyInterceptor, InterceptorChain, Rejected
from spillable_stream.flow.selectors import Replicating, Selector
from spillable_stream.flow.surroundings import REAL, Surroundings
from spillable_stream.format.record import BY_PRODUCER, MAX_NOTE_BYTES, MALFORMED, NumberedBatch, Numbers, pack, unpack
from spillable_stream.names import check_producer

__all__ = ["ChannelProcessor", "LastBatchNote", "Processed", "RoutedBatch"]

_log = logging.getLogger("spillable_stream.flow")


class Processed(NamedTuple):
    """What became of a batch.

    Args:
        number: its number.
        received: how many events it had.
        passed: how many the interceptors let pass.
        dead: how many went to the dead-letter channel.
        stored: how many went to each required channel.
    """

    number: int
    received: int
    passed: int
    dead: int
    stored: Mapping[str, int]


class LastBatchNote(NamedTuple):
    """What a processor's channels say of the last batch.

    Args:
        number: its number; 0 if there was none.
        note: what the source said with it.
        missing: the required channels that do not have their part of it. If there are any, the next call of
            `ChannelProcessor.process` must be given this batch again.
    """

    number: int
    note: bytes
    missing: tuple[str, ...]


class RoutedBatch:
    """A batch behind the interceptors and the selector, on its way into the channels.

    Attributes:
        number: its number.
        required: the part of each channel that must have one.
        optional: the part of each channel that may have one.
        done: the channels that have theirs.
    """

    def __init__(
        self,
        given: object,
        number: int,
        required: Mapping[str, pa.RecordBatch],
        optional: Mapping[str, pa.RecordBatch],
        result: Processed,
        note: bytes,
    ) -> None:
        self.given = given
        self.number = number
        self.required = required
        self.optional = optional
        self.result = result
        self.note = note
        self.done: set[str] = set()


class ChannelProcessor:
    """Puts a source's batches into its channels.

    Without a producer any number of threads may use it at once, and a batch that failed in some channels is in the
    others: send the `RoutedBatch` again rather than the events. With one, batches come one at a time and in order, each
    is in each required channel once, and a batch that failed must be processed again before the next.

    Args:
        channels: the channels, by name. They stay open at the end.
        interceptors: what batches go through first; or an `InterceptorChain`.
        selector: which events go where; each to all channels by default.
        producer: the name under which the channels remember the numbers of batches, as ``a1.r1``; None for no numbers.
        dead_letter: the name of that of the channels which gets the events that an interceptor can't pass, and no others.
        surroundings: the clock and the host that interceptors see.

    Attributes:
        channels: the channels, by name.
        chain: the interceptors.
        selector: the selector.
        stuck: the event that can't pass the interceptors, where there is no dead-letter channel.

    Raises:
        OptionError: there are no channels, the selector names one that is not there, or the producer can't be named so.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        interceptors: Iterable[AnyInterceptor] | InterceptorChain = (),
        selector: Selector | None = None,
        *,
        producer: str | None = None,
        dead_letter: str | None = None,
        surroundings: Surroundings = REAL,
    ) -> None:
        if dead_letter is not None and dead_letter not in channels:
            raise OptionError(f"the dead-letter channel {dead_letter!r} is not among the processor's channels")
        targets = [name for name in channels if name != dead_letter]
        if not targets:
            raise OptionError("a channel processor needs a channel")
        self.chain: InterceptorChain = (
            interceptors if isinstance(interceptors, InterceptorChain) else InterceptorChain(interceptors, surroundings)
        )
        self.channels: Mapping[str, Channel] = dict(channels)
        self.selector: Selector = selector if selector is not None else Replicating()
        self.selector.bind(targets)
        self.producer: str | None = None if producer is None else check_producer(producer)
        self.dead_letter = dead_letter
        self.stuck: Stuck = Stuck(producer or "a source", surroundings.now_ms)
        self._surroundings = surroundings
        self._mutex = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None
        self._claims: list[ProducerClaim] = []
        self._started = self._closed = False
        self._number = 1  # of the next batch
        self._last: dict[str, int] = {}  # the last number of each channel
        self._found = LastBatchNote(0, b"", ())
        self._parts: Mapping[str, int] = {}  # of the batch that is incomplete
        self._pending: RoutedBatch | None = None

    # ── life ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> LastBatchNote:
        """Initialize the interceptors, claim the producer's name, and return what the channels say of its last batch.

        `process` does it if nobody did.

        Raises:
            ProducerBusyError: another live processor or producer has the name in one of the channels.
            OptionError: two of the channels are one.
        """
        with self._mutex:
            if self._closed:
                raise SpillableError("the channel processor is closed; make another one")
            if not self._started:
                try:
                    if self.producer is not None:
                        self._claim(self.producer)
                    self.chain.initialize()
                except BaseException:
                    self._release()
                    raise
                self._started = True
            return self._found

    def _claim(self, producer: str) -> None:
        names: dict[str, str] = {}
        for name, channel in self.channels.items():
            other = names.setdefault(channel.put_port().place(), name)
            if other != name:
                raise OptionError(f"{other} and {name} are one channel, {channel.path}; name it once")
        for channel in self.channels.values():
            self._claims.append(channel.put_port().claim_producer(producer))
        found = {name: channel.last_batch(producer) for name, channel in self.channels.items()}
        self._last = {name: last.sequence for name, last in found.items()}
        number = max(self._last.values())
        note = next((last.note for last in found.values() if last.sequence == number), b"")
        self._parts, of_source = _read_note(note)
        missing = tuple(name for name in self._parts if self._last.get(name, number) < number)
        self._found = LastBatchNote(number, of_source, missing)
        self._number = number if missing else number + 1

    def close(self) -> None:
        """Close the interceptors, and give up the producer's name. The channels stay open."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            if self._pool is not None:
                self._pool.shutdown()
            self._release()
            if self._started:
                self.chain.close()

    def _release(self) -> None:
        for claim in self._claims:
            claim.release()
        self._claims = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── batches ─────────────────────────────────────────────────────────────────────────────

    def process(self, events: EventInput, note: bytes = b"") -> Processed:
        """Put a batch into its channels, durably, or raise.

        Args:
            events: the batch. With a producer, after this raised: the same object again.
            note: what to find again with the batch's number after a restart (`start`), such as how far the input was
                read before the batch, and behind it; kept only with a producer.

        Raises:
            DeliveryError: some required channels did not get their part; `DeliveryError.failures` has why. Optional
                channels were not tried.
            SchemaError: the events do not fit an event channel.
            OptionError: the note is too large.
            Exception: what an interceptor raises, where there is no dead-letter channel.
        """
        if self.producer is None:
            return self.deliver(self.route(events))
        with self._mutex:
            self.start()
            if self._pending is None:
                self._pending = self.route(events, note)
            elif self._pending.given is not events:
                raise SpillableError(
                    f"batch {self._pending.number:,} of {self.producer} is not in all of its channels yet; process it again "
                    "before another one"
                )
            result = self.deliver(self._pending)
            self._pending = None
            return result

    def route(self, events: EventInput, note: bytes = b"") -> RoutedBatch:
        """Run the interceptors and the selector on a batch, and return its parts for `deliver`.

        Raises what `process` raises, but for a `DeliveryError`.
        """
        self.start()
        batch = as_event_batch(events)
        passed, rejected = self._screen(batch)
        with self._mutex:
            number = self._number
            if self.producer is None:
                self._number += 1
        routes = self.selector.select(passed, number) if passed.num_rows else None
        required, optional = (
            ({}, {})
            if routes is None
            else ({n: select_rows(passed, r) for n, r in found.items()} for found in routes)
        )
        if rejected and self.dead_letter is not None:
            required = {**required, self.dead_letter: self._dead(rejected, number)}
        counts = {name: part.num_rows for name, part in required.items()}
        result = Processed(number, batch.num_rows, passed.num_rows, len(rejected), counts)
        packed = b"" if self.producer is None else _write_note(counts, note)
        return RoutedBatch(events, number, required, optional, result, packed)

    def _screen(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejected]]:
        if self.dead_letter is not None:
            return self.chain.screen(batch)
        try:
            passed = self.chain.intercept(batch)
        except Exception:
            for i, rejected in enumerate(self.chain.screen(batch).rejected[:1]):
                self.stuck.at(self._event_id(self._number, i), rejected.error)
            raise
        self.stuck.passed()
        return passed, []

    def _dead(self, rejected: list[Rejected], number: int) -> pa.RecordBatch:
        ids = [self._event_id(number, i) for i in range(len(rejected))]
        component = self.producer or "source"
        letters = [
            as_dead_letters(r.event, f"{component}/{r.interceptor}", [r.error], [id_], self._surroundings.now_ms())
            for r, id_ in zip(rejected, ids, strict=True)
        ]
        return concat(letters)

    def _event_id(self, number: int, index: int) -> str:
        return f"{self.producer or 'source'}:{number}:{index}"

    # ── delivery ────────────────────────────────────────────────────────────────────────────

    def deliver(self, routed: RoutedBatch) -> Processed:
        """Put the parts of a batch into the channels that do not have theirs.

        Args:
            routed: the batch; after this raised, the same one again.

        Raises:
            DeliveryError: some required channels did not get their part.
        """
        if self._parts:
            self._compare(routed)
        left = [name for name in routed.required if name not in routed.done]
        failures = self._put_all(routed, routed.required, left, is_optional=False)
        if failures:
            raise _delivery_error(self.producer, routed, failures)
        left = [name for name in routed.optional if name not in routed.done]
        for name, error in self._put_all(routed, routed.optional, left, is_optional=True).items():
            _log.warning("the optional channel %s did not get %d events: %s", name, routed.optional[name].num_rows, error)
        if self.producer is not None and (routed.required or routed.optional):
            self._number = routed.number + 1
        return routed.result

    def _compare(self, routed: RoutedBatch) -> None:
        """Warn where a batch that is put again has other parts than before."""
        before, self._parts = self._parts, {}
        if routed.number == self._found.number and self._found.missing and before != dict(routed.result.stored):
            _log.warning(
                "batch %d of %s has other parts than before the restart: %s events then, %s now. Channels that have theirs "
                "keep them. The interceptors, the selector or the input changed in between",
                routed.number,
                self.producer,
                dict(before),
                dict(routed.result.stored),
            )

    def _put_all(
        self, routed: RoutedBatch, parts: Mapping[str, pa.RecordBatch], names: list[str], *, is_optional: bool
    ) -> dict[str, Exception]:
        """Put parts into several channels at once, and return what failed."""
        if not names:
            return {}
        others: dict[str, Future[Exception | None]] = {}
        if len(names) > 1:
            pool = self._threads()
            others = {name: pool.submit(self._put, routed, name, parts[name], is_optional) for name in names[1:]}
        first = names[0]
        try:
            found = {first: self._put(routed, first, parts[first], is_optional)}
        finally:
            done = {name: future.exception() or future.result() for name, future in others.items()}
        for error in done.values():
            if error is not None and not isinstance(error, Exception):
                raise error
        return {name: e for name, e in (found | done).items() if isinstance(e, Exception)}

    def _threads(self) -> ThreadPoolExecutor:
        with self._mutex:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(len(self.channels) - 1, "spillable-flow-put")
            return self._pool

    def _put(self, routed: RoutedBatch, name: str, part: pa.RecordBatch, is_optional: bool) -> Exception | None:
        """Put a part into a channel; return why that failed."""
        try:
            channel = self.channels[name]
            tx = channel.put_transaction()
            if self.producer is not None:
                numbers = Numbers(self._last[name] + 1, routed.number, BY_PRODUCER)
                tx.producer = NumberedBatch(self.producer, numbers, routed.note)
            if is_optional:
                options = channel.options
                tx.waited_seconds = options["keep_alive"] + options["overflow_timeout"]  # it does not wait for room
            with tx:
                tx.put_batch(part)
        except Exception as e:
            return e
        self._last[name] = routed.number
        routed.done.add(name)
        return None


def _delivery_error(producer: str | None, routed: RoutedBatch, failures: Mapping[str, Exception]) -> DeliveryError:
    batch = f"batch {routed.number:,} of {producer}" if producer else "a batch"
    stored = [name for name in routed.required if name in routed.done]
    where = f"is in {', '.join(stored)}, and not in {', '.join(failures)}" if stored else f"is not in {', '.join(failures)}"
    name, first = next(iter(failures.items()))
    error = DeliveryError(f"{batch} {where}: {name}: {first}. Send it again", dict(failures), tuple(stored))
    error.__cause__ = first
    return error


def _write_note(parts: Mapping[str, int], note: bytes) -> bytes:
    packed = pack({"parts": dict(parts), "note": note})
    if len(packed) > MAX_NOTE_BYTES:
        raise OptionError(
            f"the note of a batch has {len(note):,} bytes, and {MAX_NOTE_BYTES - len(packed) + len(note):,} are kept"
        )
    return packed


def _read_note(packed: bytes) -> tuple[dict[str, int], bytes]:
    """Return the parts of a batch and the source's note; neither of a note that no processor wrote."""
    if not packed:
        return {}, b""
    try:
        found = unpack(packed)
        return {str(name): int(count) for name, count in found["parts"].items()}, bytes(found["note"])
    except MALFORMED:
        return {}, b""
