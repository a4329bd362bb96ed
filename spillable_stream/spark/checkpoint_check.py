"""Checks that Spark's checkpoint and a group's position belong together when a query resumes."""

from __future__ import annotations

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet, shown

__all__ = ["check_batch", "never_taken"]


def check_batch(state: ChannelState, group: str, begin: int, end: int, path: str) -> None:
    """Refuse a checkpoint whose next batch is beyond the channel's end or behind the group's position.

    Batches behind the group's position can't be planned again as they were. A sink that has their batch IDs would skip
    the events that are in them now. No option allows that.

    Args:
        state: the channel's state.
        group: the group that takes the query's batches.
        begin: the query has everything up to this event.
        end: the last event of the batch; ``begin`` if there is no batch yet.
        path: the channel's path, for the message.

    Raises:
        CheckpointMismatchError: the channel has fewer events, or the group has taken more.
    """
    if (read := max(begin, end)) > state.last_id:
        raise CheckpointMismatchError(
            f"the Spark checkpoint has read {path} up to the event {read}, but that has only {state.last_id}: it is an "
            "older copy of the channel. Use a new checkpointLocation"
        )
    position = state.groups[group].position
    if taken := list(state.gone().gaps(begin + 1, position)):
        raise CheckpointMismatchError(
            f"the Spark checkpoint has read {path} up to the event {begin}, but the group {group!r} has taken "
            f"{shown(taken)} too: another query or consumer continued with it, or the checkpoint is an old copy. Use a "
            "new checkpointLocation, or another group"
        )


def never_taken(state: ChannelState, group: str, begin: int) -> list[Range]:
    """Return the events up to ``begin`` that are neither taken by the group nor in a take under way.

    In an older copy of the channel that has new events by now, the query has never read these. They may also be a false
    alarm: the group was dropped and created again, or a consumer rolled back the query's takes.

    Args:
        state: the channel's state.
        group: the group that takes the query's batches.
        begin: the query claims to have everything up to this event.
    """
    known = state.groups[group]
    taking = RangeSet(r for ranges in state.taking(group).values() for r in ranges)
    return list(known.ahead.union(taking).gaps(known.position + 1, begin))
