"""The events that a query should have had, and that left the channel before it read them."""

from __future__ import annotations

from collections.abc import Iterable

from spillable_stream.channel.channel import Channel
from spillable_stream.spark.source.partition import check_loss
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["tell_missed"]


def tell_missed(
    channel: Channel, state: ChannelState, group: str, after: int, told: RangeSet, options: StreamOptions
) -> RangeSet:
    """Report what a group missed of a query's events, and return all of it.

    Args:
        channel: the channel.
        state: its state, in a snapshot.
        group: the group that takes the query's batches.
        after: the query's events are those after this one.
        told: what was reported before.
        options: the query's options.

    Raises:
        DataLossError: there is more of it, and ``failOnDataLoss`` is set.
    """
    known = state.groups[group]
    lost, removed = _beyond(known.lost, after, told), _beyond(known.removed, after, told)
    check_loss(channel, state, lost, options, removed)
    return told.union([*lost, *removed])


def _beyond(missed: Iterable[Range], after: int, told: RangeSet) -> list[Range]:
    """Return what a group missed after an event, without what was reported before."""
    return [r for first, last in missed for r in told.gaps(max(first, after + 1), last)]
