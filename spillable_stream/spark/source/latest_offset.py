"""Decides a stream's latest offset: where the next micro-batch ends, by ``maxEventsPerTrigger`` and similar options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, count_of

__all__ = ["Backlog", "batch_end", "latest_event_id", "waiting"]


class Backlog(NamedTuple):
    """What a channel has for the next micro-batch.

    Args:
        events: how many events.
        size_bytes: their size.
        is_overdue: whether the first of them has waited for ``maxTriggerDelay``.
    """

    events: int
    size_bytes: int
    is_overdue: bool


def waiting(
    state: ChannelState,
    untaken: Callable[[int, int], Iterable[Range]],
    begin: int,
    options: StreamOptions,
    target: int | None,
) -> Backlog:
    """Return what waits for the next micro-batch, whatever the limits. The arguments are those of `latest_event_id`."""
    last = state.last_id if target is None else min(state.last_id, target)
    ranges = list(untaken(begin + 1, last)) if last > begin else []
    if not ranges:
        return Backlog(0, 0, False)
    size_bytes = sum(state.blocks.payload_bytes(a, b) for a, b in ranges)
    return Backlog(count_of(ranges), size_bytes, _is_overdue(state, ranges[0][0], options))


def latest_event_id(
    state: ChannelState,
    untaken: Callable[[int, int], Iterable[Range]],
    begin: int,
    options: StreamOptions,
    *,
    target: int | None,
    everything: bool,
) -> int:
    """Return the event of the latest offset: the last of the next micro-batch; ``begin`` if there is none yet.

    Args:
        state: the channel's state.
        untaken: returns the events between two IDs that the group has yet to take.
        begin: the query has everything up to this ID.
        options: the source's options.
        target: where a run with ``availableNow`` ends; None for a run without an end.
        everything: whether to ignore the options' limits.
    """
    last = state.last_id if target is None else min(state.last_id, target)
    if last <= begin or everything:
        return max(last, begin)
    limits = options if target is None else replace(options, min_events_per_trigger=None)
    return batch_end(state, untaken(begin + 1, last), begin, last, limits)


def batch_end(state: ChannelState, untaken: Iterable[Range], begin: int, last: int, options: StreamOptions) -> int:
    """Return the last write-order ID of the micro-batch that begins after ``begin``; ``begin`` if there is none yet.

    Args:
        state: the channel's state.
        untaken: the events after ``begin`` up to ``last`` that the group has yet to take.
        begin: the query has everything up to this ID.
        last: the last ID that the micro-batch may include.
        options: the source's options.
    """
    ranges = list(untaken)
    if not ranges:
        return last  # all of these events were taken by others or lost: skip them
    least = options.min_events_per_trigger
    if least and count_of(ranges) < least and not _is_overdue(state, ranges[0][0], options):
        return begin
    end = min(
        _end_by_events(ranges, last, options.max_events_per_trigger),
        _end_by_bytes(state, ranges, last, options.max_bytes_per_trigger),
    )
    return _behind_what_others_took(ranges, end, last)


def _is_overdue(state: ChannelState, first_id: int, options: StreamOptions) -> bool:
    put_us = state.put_at_us(first_id)
    if put_us is None:
        return True
    # Where the clock was set back an event is of the future: it does not wait until that has come.
    return abs(time.time() - put_us / 1e6) >= options.max_trigger_delay


def _behind_what_others_took(ranges: list[Range], end: int, last: int) -> int:
    """Move an end that lies right before skipped events to the last of them, as the group's position will do."""
    for a, b in ranges:
        if end < a:
            return a - 1
        if end < b:
            return end
    return last


def _end_by_events(ranges: list[Range], last: int, most: int | None) -> int:
    if not most:
        return last
    for a, b in ranges:
        if b - a + 1 >= most:
            return a + most - 1
        most -= b - a + 1
    return last


def _end_by_bytes(state: ChannelState, ranges: list[Range], last: int, most: int | None) -> int:
    if not most:
        return last
    for a, b in ranges:
        size_bytes = state.blocks.payload_bytes(a, b)
        if size_bytes >= most:
            return state.blocks.last_id_within(a, b, most)
        most -= size_bytes
    return last
