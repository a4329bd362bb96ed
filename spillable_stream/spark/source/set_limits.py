"""How the limits of a micro-batch are shared by the channels of a set: as evenly as what they have allows.

A channel that has less than its share leaves the rest to the others. The remainder goes to another channel each time,
so that none starves where the limit is smaller than their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spillable_stream.spark.source.latest_offset import Backlog
from spillable_stream.spark.source.read_options import StreamOptions

__all__ = ["fair_shares", "limits_of_each"]


def limits_of_each(
    waiting: Sequence[Backlog], options: StreamOptions, turn: int, *, is_last: bool
) -> list[StreamOptions | None]:
    """Return the limits that count for each channel in the next micro-batch; None: it has to wait for another one.

    Args:
        waiting: what each has.
        options: the limits of the set.
        turn: which channel comes first where not all can: any number that is another one each time.
        is_last: whether the query ends with what is there: ``minEventsPerTrigger`` does not count then.
    """
    least, total = options.min_events_per_trigger, sum(w.events for w in waiting)
    if least and 0 < total < least and not is_last and not any(w.is_overdue for w in waiting):
        return [None if w.events else options for w in waiting]
    free = replace(options, min_events_per_trigger=None)
    if not options.max_events_per_trigger and not options.max_bytes_per_trigger:
        return [free] * len(waiting)
    counts = [w.events for w in waiting]
    sizes = [max(w.size_bytes, w.events) for w in waiting]  # an event counts as a byte at least, as where a batch ends
    events = fair_shares(options.max_events_per_trigger or sum(counts), counts, turn)
    size_bytes = fair_shares(options.max_bytes_per_trigger or sum(sizes), sizes, turn)
    return [_limits(free, *each) for each in zip(counts, events, sizes, size_bytes, strict=True)]


def _limits(free: StreamOptions, count: int, events: int, size: int, size_bytes: int) -> StreamOptions | None:
    """Return the limits of a channel; what is put after it was asked waits.

    Args:
        free: the options without limits.
        count: how many events the channel has.
        events: how many of them may be in the micro-batch.
        size: how many bytes the channel has.
        size_bytes: how many of them may be in the micro-batch.
    """
    if count and not (events and size_bytes):
        return None
    of_bytes = size_bytes if size_bytes < size else None
    return replace(free, max_events_per_trigger=max(1, events), max_bytes_per_trigger=of_bytes)


def fair_shares(limit: int, wanted: Sequence[int], turn: int) -> list[int]:
    """Divide a number: nobody gets more than is wanted, and who gets less than that gets as much as anybody, but for 1.

    Args:
        limit: what there is.
        wanted: how much of it each wants.
        turn: which of them is the first to get a part of the remainder.
    """
    shares = [0] * len(wanted)
    hungry = [i for i, most in enumerate(wanted) if most > 0]
    while hungry and limit >= len(hungry):
        each = min(limit // len(hungry), min(wanted[i] - shares[i] for i in hungry))
        for i in hungry:
            shares[i] += each
        limit -= each * len(hungry)
        hungry = [i for i in hungry if shares[i] < wanted[i]]
    for k in range(min(limit, len(hungry))):
        shares[hungry[(turn + k) % len(hungry)]] += 1
    return shares
