"""Every metric once: name, kind, meaning and value. Prometheus, OpenTelemetry and the docs take them from here.

The names stay. Those of Spark's queries are in `spillable_stream.spark.progress.query_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from typing import NamedTuple

from spillable_stream.channel.stats import ChannelStats, GroupStats, SpoolStats, WorkerStats
from spillable_stream.observe.observation import Observation
from spillable_stream.state.ranges import count_of

__all__ = ["METRICS", "MOST_GROUPS", "Metric", "MetricKind", "Point"]

MOST_GROUPS = 100
"""So many groups of a channel have series, those with most to take; and so many workers, those in trouble first."""


class MetricKind(StrEnum):
    """How a metric changes."""

    GAUGE = "gauge"  # up and down
    COUNTER = "counter"  # up, or to 0 when it begins anew


class Point(NamedTuple):
    """One value.

    Args:
        labels: the values of the metric's labels.
        value: the value.
    """

    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Args:
        name: its name for Prometheus, without ``_total``.
        kind: how it changes.
        labels: the names of its labels; ``channel`` is the path.
        text: what it is, in one sentence.
        points: returns its values in an observation; none where they are unknown.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    text: str
    points: Callable[[Observation], Iterable[Point]]

    @property
    def series(self) -> str:
        """The name of its series: what a query asks for."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


_Points = Callable[[Observation], Iterator[Point]]

_CHANNEL, _TIER, _GROUP = ("channel",), ("channel", "tier"), ("channel", "group")


def _of_channel(value: Callable[[ChannelStats], float | None]) -> _Points:
    def points(seen: Observation) -> Iterator[Point]:
        if seen.stats is not None and (found := value(seen.stats)) is not None:
            yield Point((seen.path,), found)

    return points


def _of_handle(value: Callable[[ChannelStats], float]) -> _Points:
    """Return the points of what a handle counts: only a program's own counts anything."""
    return lambda seen: _of_channel(value)(seen) if seen.own else iter(())


def _of_spool(value: Callable[[SpoolStats], float | None]) -> _Points:
    return _of_channel(lambda stats: None if stats.spool is None else value(stats.spool))


def _of_tiers(memory: Callable[[ChannelStats], float | None], disk: Callable[[ChannelStats], float | None]) -> _Points:
    def points(seen: Observation) -> Iterator[Point]:
        for tier, value in (("memory", memory), ("disk", disk)):
            if seen.stats is not None and (found := value(seen.stats)) is not None:
                yield Point((seen.path, tier), found)

    return points


def _of_groups(
    value: Callable[[Observation, str, GroupStats], float | None],
) -> _Points:
    def points(seen: Observation) -> Iterator[Point]:
        groups = {} if seen.stats is None else seen.stats.groups
        for name in nlargest(MOST_GROUPS, groups, key=lambda n: groups[n].lag):
            if (found := value(seen, name, groups[name])) is not None:
                yield Point((seen.path, name), found)

    return points


def _of_workers(value: Callable[[Sequence[WorkerStats]], float]) -> _Points:
    """Return the points of a group's workers, those that have ended included."""

    def points(seen: Observation) -> Iterator[Point]:
        by_group: dict[str, list[WorkerStats]] = {}
        for worker in () if seen.stats is None else seen.stats.workers:
            by_group.setdefault(worker.group, []).append(worker)
        for group in nlargest(MOST_GROUPS, by_group, key=lambda name: by_group[name][-1].is_troubled):
            yield Point((seen.path, group), value(by_group[group]))

    return points


def _sum_of_workers(value: Callable[[WorkerStats], int]) -> _Points:
    return _of_workers(lambda workers: sum(map(value, workers)))


def _age(seconds: float | None, waiting: int) -> float | None:
    return seconds if waiting else 0.0


METRICS: tuple[Metric, ...] = (
    Metric("spillable_channel_up", MetricKind.GAUGE, _CHANNEL,
           "Whether the channel can be looked at: 1 or 0.",
           lambda seen: [] if seen.is_to_come else [Point((seen.path,), float(seen.stats is not None))]),
    Metric("spillable_channel_events", MetricKind.GAUGE, _TIER,
           "Events that some group has yet to take.",
           _of_tiers(lambda s: s.memory.events, lambda s: s.disk.events)),
    Metric("spillable_channel_payload_bytes", MetricKind.GAUGE, _TIER,
           "Size of the payloads of these events.",
           _of_tiers(lambda s: s.memory.payload_bytes, lambda s: s.disk.payload_bytes)),
    Metric("spillable_channel_capacity_events", MetricKind.GAUGE, _TIER,
           "The most events that the tier holds.",
           _of_tiers(lambda s: s.memory.event_capacity, lambda s: s.disk.event_capacity)),
    Metric("spillable_channel_capacity_bytes", MetricKind.GAUGE, _TIER,
           "The most bytes of payloads that the tier holds; on disk free space decides, and there is no series.",
           _of_tiers(lambda s: s.memory.byte_capacity, lambda s: s.disk.byte_capacity)),
    Metric("spillable_channel_fill_ratio", MetricKind.GAUGE, _CHANNEL,
           "Events in both tiers by the most that both hold, 0 to 1.",
           _of_channel(lambda s: s.channel_fill_percentage / 100)),
    Metric("spillable_channel_oldest_age_seconds", MetricKind.GAUGE, _CHANNEL,
           "Age of the oldest event that some group has yet to take; 0 if there are none.",
           _of_channel(lambda s: _age(s.oldest_age_seconds, s.channel_size))),
    Metric("spillable_channel_kept_events", MetricKind.GAUGE, _CHANNEL,
           "Events that every group has taken and that are kept.",
           _of_channel(lambda s: s.kept.events)),
    Metric("spillable_channel_kept_bytes", MetricKind.GAUGE, _CHANNEL,
           "Size of the payloads of kept events.",
           _of_channel(lambda s: s.kept.payload_bytes)),
    Metric("spillable_channel_delayed_events", MetricKind.GAUGE, _CHANNEL,
           "Events that wait until they are due; those of the disk tier count them, too.",
           _of_channel(lambda s: s.delayed.events)),
    Metric("spillable_channel_delayed_bytes", MetricKind.GAUGE, _CHANNEL,
           "Size of the payloads of these events.",
           _of_channel(lambda s: s.delayed.payload_bytes)),
    Metric("spillable_channel_delayed_next_timestamp_seconds", MetricKind.GAUGE, _CHANNEL,
           "When the next of these events is due, since 1970; no series if none waits.",
           _of_channel(lambda s: s.delayed.next_due)),
    Metric("spillable_channel_put_events", MetricKind.COUNTER, _CHANNEL,
           "Events that were ever put, by everybody: the last write-order ID.",
           _of_channel(lambda s: s.last_id)),
    Metric("spillable_channel_transactions", MetricKind.COUNTER, _CHANNEL,
           "Transactions that there ever were, of puts, takes and changes.",
           _of_channel(lambda s: s.transactions)),
    Metric("spillable_channel_spilled_transactions", MetricKind.COUNTER, _CHANNEL,
           "Put transactions that ever went to disk for lack of memory.",
           _of_channel(lambda s: s.spilled_transactions)),
    Metric("spillable_channel_syncs", MetricKind.COUNTER, _CHANNEL,
           "Appends to the disk tier by everybody, each one sync, since the channel was first looked at.",
           _of_channel(lambda s: s.disk_appends)),
    Metric("spillable_channel_overflow_active", MetricKind.GAUGE, _CHANNEL,
           "Whether puts for which memory has no room go to disk without waiting: 1 or 0.",
           _of_channel(lambda s: s.overflow_active)),
    Metric("spillable_channel_lost_events", MetricKind.GAUGE, _CHANNEL,
           "Events lost with a memory tier or to damage, as long as the channel remembers them.",
           _of_channel(lambda s: count_of(s.lost))),
    Metric("spillable_channel_doubtful_events", MetricKind.GAUGE, _CHANNEL,
           "IDs that a lost memory tier may have used: nobody knows.",
           _of_channel(lambda s: count_of(s.doubtful))),
    Metric("spillable_channel_unhealthy", MetricKind.GAUGE, _CHANNEL,
           "Whether a failure closed the log of the handle that looks: 1 or 0.",
           _of_channel(lambda s: s.unhealthy)),
    Metric("spillable_channel_data_files", MetricKind.GAUGE, _CHANNEL,
           "Data files.",
           _of_channel(lambda s: s.data_files)),
    Metric("spillable_channel_segments", MetricKind.GAUGE, _CHANNEL,
           "Segments in both tiers, staged ones included.",
           _of_channel(lambda s: s.segments)),
    Metric("spillable_channel_groups_without_owner", MetricKind.GAUGE, _CHANNEL,
           "Groups that streams created for themselves and that nobody reads as now.",
           _of_channel(lambda s: len(s.without_owner))),
    Metric("spillable_channel_spool_events", MetricKind.GAUGE, _CHANNEL,
           "Events in this host's spool, acknowledged and not in the store yet.",
           _of_spool(lambda spool: spool.events)),
    Metric("spillable_channel_spool_bytes", MetricKind.GAUGE, _CHANNEL,
           "Size of the payloads in the spool.",
           _of_spool(lambda spool: spool.size_bytes)),
    Metric("spillable_channel_spool_oldest_age_seconds", MetricKind.GAUGE, _CHANNEL,
           "Age of the oldest event in the spool; 0 if there are none.",
           _of_spool(lambda spool: _age(spool.oldest_seconds, spool.events))),
    Metric("spillable_group_lag_events", MetricKind.GAUGE, _GROUP,
           "Events that the group has yet to take.",
           _of_groups(lambda _, __, g: g.lag)),
    Metric("spillable_group_oldest_age_seconds", MetricKind.GAUGE, _GROUP,
           "Age of the oldest event that the group has yet to take; 0 if there are none.",
           _of_groups(lambda _, __, g: _age(g.oldest_age_seconds, g.lag))),
    Metric("spillable_group_in_flight_events", MetricKind.GAUGE, _GROUP,
           "Events in take transactions of the group that are prepared and not committed.",
           _of_groups(lambda _, __, g: g.in_flight)),
    Metric("spillable_group_position", MetricKind.GAUGE, _GROUP,
           "The group has taken every event up to this write-order ID.",
           _of_groups(lambda _, __, g: g.position)),
    Metric("spillable_group_taken_events", MetricKind.COUNTER, _GROUP,
           "Events that the group took since it was first looked at.",
           _of_groups(lambda seen, name, _: seen.taken.get(name, 0))),
    Metric("spillable_group_expired_events", MetricKind.COUNTER, _GROUP,
           "Events that the group's takes have passed over because their ttl had ended.",
           _of_groups(lambda _, __, g: g.expired_events)),
    Metric("spillable_group_missed_events", MetricKind.GAUGE, _GROUP,
           "Events that were lost or removed before the group took them, until it takes a later one.",
           _of_groups(lambda _, __, g: count_of(g.lost) + count_of(g.removed))),
    Metric("spillable_worker_healthy", MetricKind.GAUGE, _GROUP,
           "Whether the group's worker, the last one that was created, runs and works as it should: 1 or 0.",
           _of_workers(lambda workers: workers[-1].is_healthy)),
    Metric("spillable_worker_done_events", MetricKind.COUNTER, _GROUP,
           "Events for which the function of the group's workers returned: the program's own, or else the last one.",
           _sum_of_workers(lambda w: w.done_events)),
    Metric("spillable_worker_dropped_events", MetricKind.COUNTER, _GROUP,
           "Events that this function dropped.",
           _sum_of_workers(lambda w: w.dropped_events)),
    Metric("spillable_worker_dead_letter_events", MetricKind.COUNTER, _GROUP,
           "Events that these workers put into the dead-letter channel.",
           _sum_of_workers(lambda w: w.dead_letter_events)),
    Metric("spillable_worker_failed_calls", MetricKind.COUNTER, _GROUP,
           "Calls of this function that took too long or raised an error.",
           _sum_of_workers(lambda w: w.failed_calls)),
    Metric("spillable_worker_waiting_events", MetricKind.GAUGE, _GROUP,
           "Events that wait to be tried again.",
           _sum_of_workers(lambda w: w.waiting_events)),
    Metric("spillable_handle_put_events", MetricKind.COUNTER, _CHANNEL,
           "Events that the program's own handle put.",
           _of_handle(lambda s: s.counters.event_put_success_count)),
    Metric("spillable_handle_put_errors", MetricKind.COUNTER, _CHANNEL,
           "Commits of puts by the program's own handle that failed.",
           _of_handle(lambda s: s.counters.event_put_error_count)),
    Metric("spillable_handle_taken_events", MetricKind.COUNTER, _CHANNEL,
           "Events that the program's own handle took.",
           _of_handle(lambda s: s.counters.event_take_success_count)),
    Metric("spillable_handle_take_errors", MetricKind.COUNTER, _CHANNEL,
           "Takes by the program's own handle that could not be read or committed.",
           _of_handle(lambda s: s.counters.event_take_error_count)),
    Metric("spillable_handle_checkpoint_errors", MetricKind.COUNTER, _CHANNEL,
           "Checkpoints that the program's own handle could not create.",
           _of_handle(lambda s: s.counters.checkpoint_write_error_count)),
    Metric("spillable_handle_syncs", MetricKind.COUNTER, _CHANNEL,
           "Appends to the disk tier by the program's own handle.",
           _of_handle(lambda s: s.counters.disk_syncs)),
    Metric("spillable_handle_written_bytes", MetricKind.COUNTER, _CHANNEL,
           "Bytes that these appends wrote.",
           _of_handle(lambda s: s.counters.disk_bytes)),
)  # fmt: skip
"""All metrics, in the order of the docs."""
