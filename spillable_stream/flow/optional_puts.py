"""Puts into optional channels. One that never must have any event is waited for a second, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.flow.bulkhead import Bulkhead, BulkheadCall, LateCallError, call_in_time
from spillable_stream.flow.left_out import LeftOut
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.log_records import log_of

__all__ = ["OptionalPuts"]

_log = log_of("spillable_stream.flow")

_Put = Callable[[str], "Exception | None"]


class OptionalPuts:
    """Puts parts of a source's batches into its optional channels. Thread-safe.

    Args:
        source: the source's name.
        never_required: the channels that never must have any event; there, a put is made in a thread of its own.
        puts: makes the puts into the others: a channel that must have some events is waited for anyway.
        left_out: counts what the channels do not get.
    """

    def __init__(self, source: str, never_required: Collection[str], puts: PartPuts, left_out: LeftOut) -> None:
        self._source, self._puts, self._left_out = source, puts, left_out
        self._bulkheads = {name: Bulkhead(name, counts_late=True) for name in never_required}
        self._told_late: set[str] = set()  # channels that were said to be slow, and have not answered in time since

    def put(self, parts: Mapping[str, pa.RecordBatch], put: _Put) -> None:
        """Put parts into their channels, as far as these take them in time.

        Args:
            parts: the parts, by the channel's name.
            put: puts into one of them, in this thread or another one, and returns why that failed. It may end later.
        """

        def put_or_leave_out(name: str) -> None:
            if (error := put(name)) is not None:
                self._left_out.add(name, parts[name].num_rows, error)

        waited = [name for name in parts if name not in self._bulkheads]
        if waited:
            self._puts.at_once(waited, put_or_leave_out)
        aside = [name for name in parts if name in self._bulkheads]
        calls = [BulkheadCall(self._bulkheads[name], partial(put_or_leave_out, name)) for name in aside]
        for name, error in zip(aside, call_in_time(calls), strict=True):
            if isinstance(error, LateCallError):
                self._tell_late(name, parts[name].num_rows)
            elif error is not None:
                self._left_out.add(name, parts[name].num_rows, error)
            elif not self._bulkheads[name].is_slow:
                self._told_late.discard(name)

    def _tell_late(self, name: str, events: int) -> None:
        """Say, until the channel answers in time again no second time, that nobody waits for it any more."""
        if name in self._told_late:
            return
        self._told_late.add(name)
        _log.of(self._source, count=events).warning(
            "the optional channel %s has not answered within a second, and is not waited for: whether it gets %s "
            "shows later, and what comes before it answers is left out and counted; check its disk or its store",
            name,
            counted(events, "event"),
        )

    def under_way(self) -> list[str]:
        """Return the names of the channels in which a put is under way in a thread of its own."""
        return [name for name, bulkhead in self._bulkheads.items() if bulkhead.is_busy]

    def close(self) -> None:
        """Let the puts under way end, a second at most; later ones end with the process, or when they are answered."""
        end = time.monotonic() + Bulkhead.limit_seconds()
        for bulkhead in self._bulkheads.values():
            bulkhead.close(end)
        for name in self.under_way():
            _log.of(self._source).warning(
                "a put into the optional channel %s has not ended, so it is not known whether that gets the events",
                name,
            )
