"""What a flow says of the times of the events that it puts into a channel: for all of them, or by their headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.arguments import text
from spillable_stream.channel.due_time import due_ms
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.channel.ttl import MOST_TTL_US, ttl_us
from spillable_stream.flow.durations import durations_us
from spillable_stream.flow.event_batch import header, select_rows
from spillable_stream.flow.interceptors.base import Rejected
from spillable_stream.option_parsers import MOST_DELAY_SECONDS
from spillable_stream.quantities import DURATION_RANGE, Duration

__all__ = ["EventTimes", "TimedEvents"]

_MOST_DELAY_US = MOST_DELAY_SECONDS * 1_000_000
_MILLISECONDS = r"^[0-9]{1,15}$"
_NONE = pa.scalar(None, pa.int64())

# What turns a header's texts into numbers; null for a text that says none that can be.
_Parser = Callable[[pa.StringArray], pa.Int64Array]


class TimedEvents(NamedTuple):
    """Events with their times, and those whose headers say times that can't be."""

    batch: pa.RecordBatch
    times: RowTimes
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class EventTimes:
    """For how long events count, and when they are due. A header goes before what is for all events.

    Args:
        ttl: for how long events count after their commit, such as 90, in seconds, "2h", or a timedelta; None: forever.
        ttl_header: the header with an event's ttl, as ``90``, which is seconds, or ``2h``.
        deliver_after: how long after they are routed events are delivered, likewise; None: at once.
        deliver_after_header: the header that says so, likewise.
        deliver_at_header: the header with the time at which an event is delivered, in milliseconds since 1970, as the
            ``timestamp`` interceptor has it; it goes before ``deliver_after_header``.

    Raises:
        OptionError: a time is none that can be.
    """

    ttl: Duration | None = None
    ttl_header: str | None = None
    deliver_after: Duration | None = None
    deliver_after_header: str | None = None
    deliver_at_header: str | None = None
    _ttl_us: int = field(init=False, repr=False, compare=False)
    _after_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("ttl_header", "deliver_after_header", "deliver_at_header"):
            if getattr(self, name) is not None:
                text(name, getattr(self, name))
        object.__setattr__(self, "_ttl_us", ttl_us(self.ttl))
        object.__setattr__(self, "_after_ms", due_ms(self.deliver_after, None, 0))

    @property
    def may_delay(self) -> bool:
        """Whether events may be due later."""
        return self._after_ms > 0 or self.deliver_after_header is not None or self.deliver_at_header is not None

    def divide(self, batch: pa.RecordBatch, now_ms: int) -> TimedEvents:
        """Return the times of events, and apart from them those with a header that says none that can be.

        Args:
            batch: the events.
            now_ms: the time, in milliseconds since 1970.
        """
        found = _Headers(batch)
        ttls: int | pa.Int64Array = self._ttl_us
        dues: int | pa.Int64Array = now_ms + self._after_ms if self._after_ms else 0
        if self.ttl_header is not None:
            wanted = f"{DURATION_RANGE}; more than 0 and at most 100 years"
            ttls = found.read(self.ttl_header, _spans_us(1, MOST_TTL_US), wanted).fill_null(self._ttl_us)
        if self.deliver_after_header is not None:
            wanted = f"{DURATION_RANGE}; at most a year"
            after_us = found.read(self.deliver_after_header, _spans_us(0, _MOST_DELAY_US), wanted)
            dues = pc.add(pc.divide(pc.add(after_us, 999), 1000), now_ms).fill_null(dues)
        if self.deliver_at_header is not None:
            wanted = "milliseconds since 1970, at most a year from now"
            at_ms = found.read(self.deliver_at_header, _moments_ms(now_ms + 1000 * MOST_DELAY_SECONDS), wanted)
            dues = pc.coalesce(at_ms, dues)
        if not isinstance(dues, int):
            dues = pc.if_else(pc.greater(dues, now_ms), dues, 0)
        return found.without_wrong(RowTimes(ttls, dues))


class _Headers:
    """The headers of a batch that say times, and the events with one that says none that can be."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._wrong: dict[int, Rejected] = {}

    def read(self, name: str, values_of: _Parser, wanted: str) -> pa.Int64Array:
        """Return the values of a header; null for an event that does not have it, or has a wrong one."""
        texts = header(self._batch, name)
        values = values_of(texts)
        is_wrong = pc.and_(pc.is_valid(texts), pc.is_null(values))
        for row in pc.indices_nonzero(is_wrong).to_pylist():  # few, or none
            error = f"OptionError: the header {name} is {texts[row].as_py()!r}; it must be {wanted}"
            self._wrong.setdefault(row, Rejected(self._batch.slice(row, 1), name, error))
        return values

    def without_wrong(self, times: RowTimes) -> TimedEvents:
        """Return the events that are right, with their times, and the others."""
        if not self._wrong:
            return TimedEvents(self._batch, times, [])
        right = [row for row in range(self._batch.num_rows) if row not in self._wrong]
        rows = pa.array(right, pa.int64())
        kept = RowTimes(*(value if isinstance(value, int) else value.take(rows) for value in times))
        return TimedEvents(select_rows(self._batch, rows), kept, [self._wrong[row] for row in sorted(self._wrong)])


def _spans_us(least_us: int, most_us: int) -> _Parser:
    """Return a parser of time spans, in microseconds."""

    def parse(texts: pa.StringArray) -> pa.Int64Array:
        found = durations_us(texts)
        return pc.if_else(pc.and_(pc.greater_equal(found, least_us), pc.less_equal(found, most_us)), found, _NONE)

    return parse


def _moments_ms(most_ms: int) -> _Parser:
    """Return a parser of moments, in milliseconds since 1970."""

    def parse(texts: pa.StringArray) -> pa.Int64Array:
        digits = pc.if_else(pc.match_substring_regex(texts, _MILLISECONDS), texts, pa.scalar(None, pa.string()))
        found = digits.cast(pa.int64())
        return pc.if_else(pc.less_equal(found, most_ms), found, _NONE)

    return parse
