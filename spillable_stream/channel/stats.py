"""What a channel says about itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from spillable_stream.channel.engine import Engine

__all__ = ["ChannelStats", "GroupStats", "channel_stats"]


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group.

    Args:
        position: every event up to this write-order ID was taken.
        lag: how many events it has yet to take.
        in_flight: how many of them are in prepared take transactions.
    """

    position: int
    lag: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel at one moment.

    Args:
        channel: its UUID.
        stored: events that some group has yet to take.
        capacity: ``overflowCapacity``.
        fill_percentage: stored in percent of the capacity.
        first_id: the oldest of them; ``last_id + 1`` if there are none.
        last_id: the last write-order ID in use; so many events were ever put.
        oldest_age_seconds: the age of the oldest event, or None.
        payload_bytes: the size of the stored events' payloads on disk.
        data_files: how many data files there are.
        segments: how many segments there are, staged ones included.
        torn_bytes: what this handle's open cut from the log's tail.
        groups: the groups by name.
        sinks: the last committed batch of every Spark query.
    """

    channel: str
    stored: int
    capacity: int
    fill_percentage: float
    first_id: int
    last_id: int
    oldest_age_seconds: float | None
    payload_bytes: int
    data_files: int
    segments: int
    torn_bytes: int
    groups: Mapping[str, GroupStats]
    sinks: Mapping[str, int]


def channel_stats(engine: Engine) -> ChannelStats:
    """Return the channel's statistics, up to date with every process's commits."""
    with engine.looking() as state:
        stored, capacity = state.stored(), state.options["overflow_capacity"]
        groups = {}
        for name, group in state.groups.items():
            flying = [r for tx in state.open_takes(name) for t in state.pending[tx].takes for r in t.ranges]
            lag = state.last_id - group.position - group.ahead.size()
            groups[name] = GroupStats(group.position, lag, sum(b - a + 1 for a, b in flying))
        put_at = state.blocks.time_of(state.floor) if stored else None
        return ChannelStats(
            channel=engine.layout.channel,
            stored=stored,
            capacity=capacity,
            fill_percentage=100.0 * stored / capacity,
            first_id=state.floor,
            last_id=state.last_id,
            oldest_age_seconds=max(0.0, time.time() - put_at / 1e6) if put_at else None,
            payload_bytes=state.blocks.payload_bytes(state.floor, state.last_id),
            data_files=len(engine.layout.log_files(engine.fs)),
            segments=len(engine.layout.segments(engine.fs)),
            torn_bytes=engine.torn_bytes,
            groups=groups,
            sinks=dict(state.sinks),
        )
