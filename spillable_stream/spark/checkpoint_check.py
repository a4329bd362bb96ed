"""Whether Spark's checkpoint and a group's position belong together, wherever a query goes on."""

from __future__ import annotations

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet, shown

__all__ = ["check_batch", "never_taken"]


def check_batch(state: ChannelState, group: str, begin: int, end: int, path: str) -> None:
    """Refuse a checkpoint whose batch the channel does not have, or the group can't take any more.

    Behind the group's position the batches can't be planned as they were, and a sink that knows their numbers would
    pass over what is in them now: no option allows that.

    Args:
        state: the channel's state.
        group: the group that takes the query's batches.
        begin: the event up to which the query has everything.
        end: the event up to which the batch goes; ``begin`` if there is no batch yet.
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
    """Return the events up to ``begin`` that the group has not taken, nor any take under way.

    Of an older copy of the channel, which has new events by now, these are events that the query has not had. It may be
    a false alarm: the group may have been dropped and made again, or a consumer may have rolled back the query's takes.

    Args:
        state: the channel's state.
        group: the group that takes the query's batches.
        begin: the event up to which the query says that it has everything.
    """
    known = state.groups[group]
    taking = RangeSet(r for ranges in state.taking(group).values() for r in ranges)
    return list(known.ahead.union(taking).gaps(known.position + 1, begin))
