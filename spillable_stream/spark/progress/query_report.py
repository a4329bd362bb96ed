"""What a listener reports of a query."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillable_stream.event_age import age_seconds
from spillable_stream.spark.progress.lag import Lag

__all__ = ["QueryReport"]


@dataclass(frozen=True, slots=True)
class QueryReport:
    """How far a query is in one of its channels, after its last batch, or while it is idle.

    A channel is one partition, in Kafka's words, so that all three `…_offsets_behind_latest` are the lag.

    Args:
        query: the query's name, or None.
        query_id: its ID, which stays over restarts.
        run_id: the ID of its run.
        channel: the channel's UUID.
        path: the channel's directory; None where Spark does not say it (before 4.2).
        group: the group; None likewise.
        active: whether the run is still active.
        last_batch: the ID of the last batch that is done; -1 if none is.
        last_id: the write-order ID up to which the query is done.
        lag_events: how many events it has yet to take; None where that can't be told.
        events_per_second: how fast the last batch was; 0 while the query is idle or over.
        oldest_age_seconds: how long ago the oldest of these was put; None if there are none, or it can't be told.
    """

    query: str | None
    query_id: str
    run_id: str
    channel: str
    path: str | None
    group: str | None
    active: bool
    last_batch: int
    last_id: int
    lag_events: int | None
    events_per_second: float
    oldest_age_seconds: float | None

    @property
    def min_offsets_behind_latest(self) -> int | None:
        """What `lag_events` is, in Kafka's words."""
        return self.lag_events

    @property
    def max_offsets_behind_latest(self) -> int | None:
        """What `lag_events` is, in Kafka's words."""
        return self.lag_events

    @property
    def avg_offsets_behind_latest(self) -> float | None:
        """What `lag_events` is, in Kafka's words."""
        return None if self.lag_events is None else float(self.lag_events)

    def with_lag(self, lag: Lag | None) -> QueryReport:
        """Return the report with a lag; with None if that can't be told."""
        if lag is None:
            return replace(self, lag_events=None, oldest_age_seconds=None)
        return replace(self, lag_events=lag.events, oldest_age_seconds=age_seconds(lag.put_time_us))
