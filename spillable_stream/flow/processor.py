"""The channel processor: a batch goes through the interceptors, the selector, and into each of its channels.

A source that can read its input again numbers its batches, and each channel remembers the last number that it has::

    batch 7 ── chain, selector ──┬── part for c1 ── put as (a1.r1, 7) ── stored
                                 └── part for c2 ── put as (a1.r1, 7) ── full

A repetition puts the same parts under the same number, so c1 says that it has its part, and c2 gets its own. With each
part goes a note: which channels have parts of this batch, and what the source says of its input. After a crash the
newest note in any of the channels tells which batch may be in some of them only: one at most, since the next begins
when all have it. The source reads that one again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from itertools import chain, count
from types import TracebackType
from typing import Self

import pyarrow as pa

from spillable_stream.arguments import instance, text
from spillable_stream.channel.channel import Channel
from spillable_stream.errors import TOO_LARGE, OptionError, SpillableError, says_nothing_stored
from spillable_stream.flow.batch_numbers import BatchNumbers, write_note
from spillable_stream.flow.dead_letters import Stuck
from spillable_stream.flow.event_batch import EventInput, as_event_batch
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.interceptors.base import AnyInterceptor, InterceptorChain
from spillable_stream.flow.late_channel import is_open
from spillable_stream.flow.left_out import LeftOut
from spillable_stream.flow.optional_puts import OptionalPuts
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.flow.routed_batch import Processed, RoutedBatch
from spillable_stream.flow.router import Router
from spillable_stream.flow.selectors import Replicating, Selector
from spillable_stream.flow.sources.base import Noted
from spillable_stream.flow.surroundings import REAL, Surroundings
from spillable_stream.flow.tap_point import TapPoint
from spillable_stream.shown_value import shown

__all__ = ["ChannelProcessor"]

_NO_NAME = "source"
_DEAD_LETTER = "deadLetter"


class ChannelProcessor:
    """Puts a source's batches into its channels.

    Batches without a number may come from any number of threads at once. One that failed in some channels is in the
    others: give the same `RoutedBatch` to `deliver` again rather than its events to `process`. Batches with a number
    come one at a time and in order; each is in each required channel once, however often it is put.

    Args:
        channels: the channels, by name. They stay open at the end.
        interceptors: what batches go through first; or an `InterceptorChain`.
        selector: which events go where; each to all channels by default.
        producer: the name under which the channels remember the numbers of batches, as ``a1.r1``.
        dead_letter: the channel for events that an interceptor can't pass; without one their batch fails.
        surroundings: the clock and the host that interceptors see.
        times: for how long events count in a channel, and when they are due there, by the channel's name.
        name: what the log and dead letters call the source; ``producer`` by default.
        division: names what the interceptors and the selector are. A batch that a crash left in some channels only is
            completed under its number by the same division, and put anew by another one; "" for always the same.

    Attributes:
        chain: the interceptors.
        selector: the selector.
        stuck: the event that can't pass the interceptors, where there is no dead-letter channel.
        entrance: where batches can be seen as they come.
        left_out: the events that optional channels did not get.
        puts: the puts into its channels, for those that deliver batches themselves.
        optional_puts: those into its optional channels, likewise.

    Raises:
        OptionError: there are no channels, the selector or ``times`` names one that is not there, no producer has such
            a name, or events would be delayed in a channel that can't.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        interceptors: Iterable[AnyInterceptor] | InterceptorChain = (),
        selector: Selector | None = None,
        *,
        producer: str | None = None,
        dead_letter: Channel | None = None,
        surroundings: Surroundings = REAL,
        times: Mapping[str, EventTimes] | None = None,
        name: str | None = None,
        division: str = "",
    ) -> None:
        if not instance("channels", channels, Mapping):  # type: ignore[type-abstract]
            raise OptionError("a channel processor needs a channel")
        for key, channel in channels.items():
            _require_channel(f"the channel {text('a channel', key)!r}", channel)
        if dead_letter is not None:
            _require_channel("dead_letter", dead_letter)
        if producer is not None:
            text("producer", producer)
        called = producer or _NO_NAME if name is None else text("name", name)
        instance("surroundings", surroundings, Surroundings)
        self.chain: InterceptorChain = (
            interceptors if isinstance(interceptors, InterceptorChain) else InterceptorChain(interceptors, surroundings)
        )
        self.entrance: TapPoint = TapPoint()
        self.selector: Selector = Replicating() if selector is None else instance("selector", selector, Selector)
        self.selector.bind(tuple(channels))
        self.left_out: LeftOut = LeftOut(called, surroundings.now_ms)
        self._channels = dict(channels)
        self.puts: PartPuts = PartPuts(self._channels)
        checked_times = self._checked_times({} if times is None else times)
        rejects = None if dead_letter is None else self._name_of(dead_letter)
        self._aside = aside = self.selector.never_required() - {rejects}
        self.optional_puts: OptionalPuts = OptionalPuts(called, aside, self.puts, self.left_out)
        text("division", division)
        self._numbers = None if producer is None else BatchNumbers(producer, self._channels, aside, division)
        self._mutex = threading.RLock()
        self._is_started = self._is_closed = False
        self._turn = 0  # of the next batch without a number
        self._pending: RoutedBatch | None = None
        self._router = Router(called, self._channels, self.chain, self.selector, checked_times, rejects, surroundings)
        self.stuck: Stuck = self._router.stuck

    def _checked_times(self, times: Mapping[str, EventTimes]) -> dict[str, EventTimes]:
        for name, of_channel in instance("times", times, Mapping).items():  # type: ignore[type-abstract]
            instance(f"the times of {name!r}", of_channel, EventTimes)
            if name not in self._channels:
                raise OptionError(f"times are for {shown(name)}, and the channels are {', '.join(self._channels)}")
            if of_channel.may_delay and is_open(self._channels[name]):  # others are asked when they are opened
                self._channels[name].put_transaction().require_delays()
        return {name: of_channel for name, of_channel in times.items() if of_channel != EventTimes()}

    def _name_of(self, dead_letter: Channel) -> str:
        """Return the name of the dead-letter channel, which may be one of the others; else it becomes one."""
        place = dead_letter.put_port().place()
        for name, channel in self._channels.items():
            if is_open(channel) and channel.put_port().place() == place:
                return name
        names = chain([_DEAD_LETTER], (f"{_DEAD_LETTER}{i}" for i in count(2)))
        free = next(name for name in names if name not in self._channels)
        self._channels[free] = dead_letter
        return free

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The channels by name, the dead-letter channel among them."""
        return dict(self._channels)

    @property
    def producer(self) -> str | None:
        """The name under which the channels remember the numbers of batches."""
        return None if self._numbers is None else self._numbers.producer

    @property
    def most_events(self) -> int:
        """How many events a batch can have at most: the least ``transaction_capacity`` of the channels that can say it.

        One that can't, as after a storage failure, refuses the put, and its source holds the batch.
        """
        found = [sys.maxsize]
        for channel in filter(is_open, self._channels.values()):
            with suppress(SpillableError):
                found.append(channel.put_options().transaction_capacity)
        return min(found)

    # ── life ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Initialize the interceptors; the first batch does it if nobody did.

        Raises:
            SpillableError: the processor is closed.
        """
        with self._mutex:
            if self._is_closed:
                raise SpillableError("the channel processor is closed; create another one")
            if not self._is_started:
                self.chain.initialize()
                self._is_started = True

    def close(self) -> None:
        """Close the interceptors, and give up the producer's name. The channels stay open.

        Closing twice is fine: after an interrupt the second one does what is left to do.
        """
        with self._mutex:
            if self._is_closed:
                return
            with ExitStack() as ending:  # which calls all, the last one first
                if self._is_started:
                    ending.callback(self.chain.close)
                if self._numbers is not None:
                    ending.callback(self._numbers.release)
                ending.callback(self.puts.close)
                ending.callback(self.left_out.close)
                ending.callback(self.optional_puts.close)
            self._is_closed = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── numbers ─────────────────────────────────────────────────────────────────────────────

    def newest(self, is_settled: Callable[[int], bool] | None = None) -> Noted | None:
        """Return the newest numbered batch that one of the channels has; for a source that begins, also once more.

        What `process` could not put into all channels is forgotten: the source puts that again, as the note says.

        Args:
            is_settled: whether the source knows of a batch, by its number, that all of its channels had their parts,
                also those that are not among these any more; None if it can't know.

        Returns:
            Its number, its note, and whether it is complete; None if no channel has any.

        Raises:
            ProducerBusyError: another live processor or producer has the name in one of the channels.
            OptionError: the processor was given no producer, or two of the channels are one.
        """
        with self._mutex:
            numbers = self._required_numbers()
            numbers.look_again(is_settled)
            self._pending = None
            return numbers.newest

    def _required_numbers(self) -> BatchNumbers:
        if self._numbers is None:
            raise OptionError("batches with numbers need a producer's name; give one to the ChannelProcessor")
        return self._numbers

    # ── batches ─────────────────────────────────────────────────────────────────────────────

    def process(self, events: EventInput, *, number: int | None = None, note: bytes = b"") -> Processed:
        """Put a batch into its channels, durably, or raise.

        Args:
            events: the batch.
            number: its number, from 1, higher than that of the batch before; after this raised, the same number again:
                then what was routed before is put, and channels that have their part say so.
            note: what to find again with the number after a restart (`newest`), such as where the input of the batch
                begins and ends.

        Raises:
            DeliveryError: some required channels did not get their part; `DeliveryError.failures` says why. Optional
                channels were not tried.
            SchemaError: the events do not fit an event channel.
            OptionError: the note is too large, or there is no producer's name to go with the number.
            ProducerBusyError: another live processor has the producer's name.
            SpillableError: another number is not in all of its channels yet.
            TransactionCapacityError: a channel's part has more events than a transaction of it; no channel has any.
            PutTooLargeError: a channel could not hold its part if it were empty; no channel has any. One event that is
                too large for a channel goes to the dead-letter channel, where there is one.
            Exception: what an interceptor raises, where there is no dead-letter channel.
        """
        if number is None:
            return self.deliver(self.route(events))
        with self._mutex:
            self._required_numbers().claim()
            if self._pending is None:
                self._pending = self.route(events, number=number, note=note)
            elif self._pending.number != number:
                raise SpillableError(
                    f"batch {self._pending.number} of {self.producer} is not in all of its channels yet; put that "
                    f"again before batch {number}"
                )
            try:
                result = self.deliver(self._pending)
            except TOO_LARGE:  # its source divides it, and what comes has the number
                self._pending = None
                raise
            self._pending = None
            return result

    def route(self, events: EventInput, *, number: int | None = None, note: bytes = b"") -> RoutedBatch:
        """Run the interceptors and the selector on a batch, and return its parts for `deliver`.

        The arguments are those of `process`. Raises what that raises, but for a `DeliveryError`.
        """
        self.start()
        batch = as_event_batch(events)
        self.entrance.passed(batch)
        with self._mutex:
            turn = number if number is not None else self._turn
            self._turn += number is None

        is_begun = number is not None and self._numbers is not None and self._numbers.is_begun(number)

        def divide() -> RoutedBatch:
            parts = self._router.divide(batch, turn, comes_again=number is not None, must_fit=not is_begun)
            counts = {name: part.num_rows for name, part in parts.required.items()}
            result = Processed(batch.num_rows, parts.passed, parts.rejected, counts)
            division = "" if self._numbers is None else self._numbers.division
            packed = b"" if number is None else write_note(counts, note, division)
            return RoutedBatch(number, parts.required, parts.optional, result, packed, parts.times, divide, is_begun)

        return divide()

    # ── delivery ────────────────────────────────────────────────────────────────────────────

    def deliver(self, routed: RoutedBatch) -> Processed:
        """Put the parts of a batch into the channels that do not have theirs.

        A batch that waited meets the channels as they are now: where one of them can't hold its part any more, since a
        capacity was lowered, and none has any, the batch is routed again.

        Args:
            routed: the batch; after this raised, the same one again.

        Raises:
            DeliveryError: some required channels did not get their part.
            SpillableError: what `route` raises of a batch that is too large; no channel has any of it.
        """
        try:
            return self._deliver(routed)
        except TOO_LARGE:
            routed.divide_again()
            return self._deliver(routed)

    def _deliver(self, routed: RoutedBatch) -> Processed:
        if routed.number is not None and self._numbers is not None:
            self._numbers.compare(routed.number, routed.result.stored)
        failures = self._put_required(routed)
        if failures:
            too_large = next((e for e in failures.values() if isinstance(e, TOO_LARGE)), None)
            if too_large is not None and routed.is_nowhere:
                raise too_large
            raise routed.delivery_error(self.producer, failures)
        rest = {name: part for name, part in routed.optional.items() if name not in routed.done}
        self.optional_puts.put(rest, lambda name: self._put_optional(routed, name))
        return routed.result

    def adopt(self, routed: RoutedBatch) -> int:
        """Take over a batch of another processor that could not deliver it, to deliver it to the channels of this one.

        What is an optional channel by now need not take its part.

        Args:
            routed: the batch; some channels have their parts, or may have them.

        Returns:
            How many events are in parts of required channels that this processor does not have.
        """
        routed.let_off(self._aside)
        return routed.without_channels({*routed.required, *routed.optional} - self._channels.keys())

    def hanging(self) -> list[Channel]:
        """Return the optional channels in which a put is still under way, though nobody waits for it."""
        return [self._channels[name] for name in self.optional_puts.under_way()]

    def _put_required(self, routed: RoutedBatch) -> dict[str, Exception]:
        """Put parts into the required channels that do not have theirs, and return what failed."""
        names = [name for name in routed.required if name not in routed.done]
        if not names:
            return {}
        return self.puts.at_once(names, lambda name: self._put(routed, name, routed.required[name], is_optional=False))

    def _put_optional(self, routed: RoutedBatch, name: str) -> Exception | None:
        """Put a part into an optional channel, without a number in pieces where it is too large; return why not."""
        part = routed.optional[name]
        error = self._put(routed, name, part, is_optional=True)
        if routed.number is not None or part.num_rows < 2 or not isinstance(error, TOO_LARGE):
            return error
        for half in routed.optional_halves(name):
            if (error := self._put_optional(half, name)) is not None:
                self.left_out.add(name, half.optional[name].num_rows, error)
        routed.done.add(name)
        return None

    def _put(self, routed: RoutedBatch, name: str, part: pa.RecordBatch, *, is_optional: bool) -> Exception | None:
        """Put a part into a channel; return why that failed."""
        number, numbered, claim = routed.number, None, None
        try:
            if number is not None and self._numbers is not None:
                self._numbers.join(name, number)
                numbered, claim = self._numbers.numbered(name, number, routed.note), self._numbers.claim_in(name)
            self.puts.put(routed, name, part, numbered, claim, may_wait=not is_optional)
        except Exception as e:
            if not (says_nothing_stored(e) or isinstance(e, TOO_LARGE)):
                routed.in_doubt.add(name)
            return e
        if number is not None and self._numbers is not None:
            self._numbers.stored(name, number)
        routed.done.add(name)
        return None


def _require_channel(name: str, channel: object) -> None:
    """Refuse what is not a channel, such as a path; something that stands for a channel is one."""
    if isinstance(channel, type) or not callable(getattr(channel, "put_transaction", None)):
        raise OptionError(f"{name} must be an open Channel, not {shown(channel)}")
