"""Interceptors of your own, and the chain that runs a source's interceptors one after the other.

A chain runs each interceptor on a whole batch. Where one raises, and rejected events are wanted, the batch is halved
until the events that make it raise are found: the others continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from spillable_stream.channel.event import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.error_text import type_and_text
from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.event_batch import EventInput, Header, add_headers, as_event_batch, concat, events_of
from spillable_stream.flow.surroundings import REAL, Surroundings
from spillable_stream.flow.tap_point import TapPoint
from spillable_stream.shown_value import shown

__all__ = [
    "AnyInterceptor",
    "EventInterceptor",
    "HeaderInterceptor",
    "Interceptor",
    "InterceptorChain",
    "Rejected",
    "Screened",
]


class Interceptor:
    """Changes a batch of events: a batch in, a batch out.

    Attributes:
        surroundings: the clock and the host; the chain sets them before `initialize`.
    """

    surroundings: Surroundings = REAL

    def initialize(self) -> None:
        """Prepare, right before the source starts."""

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch as it continues: events may be changed, and dropped.

        Args:
            batch: the events, of the schema (headers: map of strings, body: binary).
        """
        raise NotImplementedError(f"{type(self).__name__} has no intercept()")

    def close(self) -> None:
        """Clean up, right after the source stopped."""


class EventInterceptor:
    """Changes one event after the other. It is some ten times slower than an `Interceptor`."""

    surroundings: Surroundings = REAL

    def initialize(self) -> None:
        """Prepare, right before the source starts."""

    def intercept(self, event: Event) -> Event | None:
        """Return the event as it continues; None to drop it.

        Args:
            event: the event. It can't be changed: return another one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no intercept()")

    def close(self) -> None:
        """Clean up, right after the source stopped."""


class HeaderInterceptor(Interceptor):
    """An interceptor that only sets headers; a chain sets those of neighbours in one pass."""

    def headers(self, batch: pa.RecordBatch) -> Sequence[Header]:
        """Return the headers to set, which do not depend on those that neighbours set.

        Args:
            batch: the events.
        """
        raise NotImplementedError(f"{type(self).__name__} has no headers()")

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the headers."""
        return add_headers(batch, self.headers(batch))


AnyInterceptor: TypeAlias = Interceptor | EventInterceptor


class Rejected(NamedTuple):
    """An event that an interceptor can't pass.

    Args:
        event: a batch of one: the event as it came to the interceptor.
        interceptor: the interceptor's class.
        error: what it raised.
    """

    event: pa.RecordBatch
    interceptor: str
    error: str


class Screened(NamedTuple):
    """What a chain made of a batch: the events that passed, and those that can't."""

    passed: pa.RecordBatch
    rejected: list[Rejected]


class InterceptorChain:
    """Runs interceptors one after the other.

    Args:
        interceptors: the interceptors, in order.
        surroundings: the clock and the host that they see.
        names: their names; i1, i2 and so on by default.

    Attributes:
        taps: where batches leave each interceptor, by its name.

    Raises:
        OptionError: one is not an interceptor.
    """

    @checked
    def __init__(
        self,
        interceptors: Iterable[AnyInterceptor] = (),
        surroundings: Surroundings = REAL,
        *,
        names: Sequence[str] = (),
    ) -> None:
        self.interceptors: list[AnyInterceptor] = list(interceptors)
        for interceptor in self.interceptors:
            if not isinstance(interceptor, (Interceptor, EventInterceptor)):
                raise OptionError(
                    f"an interceptor must be an Interceptor or an EventInterceptor, not {shown(interceptor)}"
                )
            interceptor.surroundings = surroundings
        self._steps = [(step, TapPoint()) for step in _steps(self.interceptors)]
        numbered = [f"i{n}" for n in range(1, len(self.interceptors) + 1)]
        self.taps: dict[str, TapPoint] = {name: TapPoint() for name in names or numbered}

    def _running(self) -> list[tuple[Interceptor, TapPoint]]:
        """Return the steps, and where their batches can be seen: one for each interceptor while somebody looks."""
        if not any(self.taps.values()):
            return self._steps
        return list(zip(map(_alone, self.interceptors), self.taps.values(), strict=True))

    def initialize(self) -> None:
        """Initialize the interceptors; where one fails, close those before it."""
        for i, interceptor in enumerate(self.interceptors):
            try:
                interceptor.initialize()
            except BaseException:
                with suppress(Exception):
                    _close(self.interceptors[:i])
                raise

    def close(self) -> None:
        """Close the interceptors, each of them, and then raise what the last one raises that can't be closed."""
        _close(self.interceptors)

    def intercept(self, events: EventInput) -> pa.RecordBatch:
        """Return the batch as it continues; raises what an interceptor raises.

        Args:
            events: the events.
        """
        batch = as_event_batch(events)
        for step, exit_ in self._running():
            if not batch.num_rows:
                break
            batch = as_event_batch(step.intercept(batch))
            exit_.passed(batch)
        return batch

    def screen(self, events: EventInput) -> Screened:
        """Return the batch as it continues, and the events that an interceptor can't pass.

        Args:
            events: the events.
        """
        batch = as_event_batch(events)
        rejected: list[Rejected] = []
        for step, exit_ in self._running():
            if not batch.num_rows:
                break
            batch = _screen(step, batch, rejected)
            exit_.passed(batch)
        return Screened(batch, rejected)

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch as it continues, as Spark's ``df.mapInArrow(chain.apply, df.schema)`` wants it.

        Args:
            batches: batches of the columns headers and body.
        """
        self.initialize()
        try:
            for batch in batches:
                yield self.intercept(batch)
        finally:
            self.close()


def _close(interceptors: Sequence[AnyInterceptor]) -> None:
    with ExitStack() as ending:
        for interceptor in reversed(interceptors):
            ending.callback(interceptor.close)


class _EventByEvent(Interceptor):
    """Runs an `EventInterceptor` on a batch."""

    def __init__(self, interceptor: EventInterceptor) -> None:
        self.interceptor = interceptor

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = [out for event in events_of(batch) if (out := self.interceptor.intercept(event)) is not None]
        return batch_from_events(kept)


class _Headers(Interceptor):
    """Sets the headers of neighbours in one pass."""

    def __init__(self, interceptors: Sequence[HeaderInterceptor]) -> None:
        self.interceptors = interceptors

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return add_headers(batch, [h for interceptor in self.interceptors for h in interceptor.headers(batch)])


def _steps(interceptors: Sequence[AnyInterceptor]) -> Iterator[Interceptor]:
    run: list[HeaderInterceptor] = []
    for interceptor in interceptors:
        if isinstance(interceptor, HeaderInterceptor) and type(interceptor).intercept is HeaderInterceptor.intercept:
            run.append(interceptor)
            continue
        if run:
            yield _Headers(run)
            run = []
        yield _alone(interceptor)
    if run:
        yield _Headers(run)


def _alone(interceptor: AnyInterceptor) -> Interceptor:
    return _EventByEvent(interceptor) if isinstance(interceptor, EventInterceptor) else interceptor


def _screen(step: Interceptor, batch: pa.RecordBatch, rejected: list[Rejected]) -> pa.RecordBatch:
    """Return what a step makes of a batch without the events at which it raises, which go to ``rejected``."""
    try:
        return as_event_batch(step.intercept(batch))
    except Exception as e:
        if batch.num_rows == 1:
            inner = step.interceptor if isinstance(step, _EventByEvent) else step
            rejected.append(Rejected(batch, type(inner).__name__, type_and_text(e)))
            return batch.slice(0, 0)
    half = batch.num_rows // 2
    return concat([_screen(step, batch.slice(0, half), rejected), _screen(step, batch.slice(half), rejected)])
