"""For how long what was sent counts, and when it is due: as a send is told it, and as its batch remembers it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.channel.row_times import RowTimes
from spillable_stream.quantities import Duration, duration_seconds

__all__ = ["SendTimes", "TimedRun", "as_due_time", "row_times"]


class SendTimes(NamedTuple):
    """The times of what is sent at once.

    Args:
        ttl_us: the ttl, in microseconds; 0 for none.
        due_ms: when it is due, in milliseconds since 1970; 0 for now.
    """

    ttl_us: int
    due_ms: int


class TimedRun(NamedTuple):
    """Neighbouring events of a batch with times of their own.

    Args:
        first: the index of the first one.
        events: how many they are.
        times: their times.
        delayed_before: how many events before them wait until they are due.
    """

    first: int
    events: int
    times: SendTimes
    delayed_before: int = 0

    def delayed_up_to(self, index: int) -> int:
        """Return how many of the events before an index, which is not before these, wait until they are due."""
        own = min(index - self.first, self.events) if self.times.due_ms else 0
        return self.delayed_before + own


def as_due_time(deliver_after: Duration | None, deliver_at: datetime | None) -> tuple[Duration | None, datetime | None]:
    """Return the same delay as a due time, for a send that may have to wait; what is wrong stays, to be refused."""
    if deliver_after is None or deliver_at is not None:
        return deliver_after, deliver_at
    try:
        span = timedelta(seconds=duration_seconds(deliver_after))
        due = datetime.now(UTC) + span
    except (ValueError, OverflowError):
        return deliver_after, None
    return (None, due) if span >= timedelta(0) else (deliver_after, None)


def row_times(runs: Sequence[TimedRun], count: int, ttl_us: int) -> RowTimes:
    """Return the times of a batch's events.

    Args:
        runs: those that have times of their own.
        count: the number of all events.
        ttl_us: the ttl of the others, in microseconds; 0 for none.
    """
    if not runs:
        return RowTimes(ttl_us)
    if runs[0].events == count:
        return RowTimes(*runs[0].times)
    ttls_us, dues_ms = [ttl_us] * count, [0] * count
    for first, events, (run_ttl_us, due_ms), _ in runs:
        ttls_us[first : first + events] = [run_ttl_us] * events
        dues_ms[first : first + events] = [due_ms] * events
    return RowTimes(pa.array(ttls_us, pa.int64()), pa.array(dues_ms, pa.int64()))
