"""How far a query is behind: the events that none of its batches has covered."""

from __future__ import annotations

from dataclasses import dataclass

from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import count_of

__all__ = ["Lag"]


@dataclass(frozen=True, slots=True)
class Lag:
    """What a query has yet to take.

    Args:
        events: how many events.
        put_time_us: when the first of them was put, by the clock's setting now, in microseconds since 1970; None if
            there are none, or it can't be told.
    """

    events: int
    put_time_us: int | None

    @classmethod
    def beyond(cls, state: ChannelState, group: str | None, covered_id: int) -> Lag:
        """Return what a group has yet to take after an event.

        Args:
            state: the channel's state.
            group: the group, which may have been dropped; None for one whose position does not say yet where it reads.
            covered_id: everything up to this event is in a batch.
        """
        known = None if group is None else state.groups.get(group)
        first = max(covered_id, known.position if known else state.beginning() - 1) + 1
        waiting = list(known.ahead.gaps(first, state.last_id)) if known else [(first, state.last_id)]
        events = count_of(waiting)
        return cls(events, state.put_at_us(waiting[0][0]) if events else None)
