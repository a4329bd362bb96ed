"""How the limits of a micro-batch are shared by the channels of a set: as evenly as what they have allows.

A channel that has less than its share leaves the rest to the others. The remainder goes to another channel each time,
so that none starves where the limit is smaller than their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spillable_stream.spark.latest_offset import Waiting
from spillable_stream.spark.read_options import StreamOptions

__all__ = ["fair_shares", "limits_of_each"]


def limits_of_each(
    waiting: Sequence[Waiting], options: StreamOptions, turn: int, *, is_last: bool
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
    events = _shares(options.max_events_per_trigger, [w.events for w in waiting], turn)
    size_bytes = _shares(options.max_bytes_per_trigger, [w.size_bytes for w in waiting], turn)
    return [
        None
        if w.events and (of_events == 0 or of_bytes == 0)
        else replace(free, max_events_per_trigger=of_events or None, max_bytes_per_trigger=of_bytes or None)
        for w, of_events, of_bytes in zip(waiting, events, size_bytes, strict=True)
    ]


def _shares(limit: int | None, wanted: Sequence[int], turn: int) -> Sequence[int | None]:
    return [None] * len(wanted) if limit is None else fair_shares(limit, wanted, turn)


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
