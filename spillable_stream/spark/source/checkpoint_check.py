"""Checks that Spark's checkpoint and a group's position belong together when a query resumes."""

from __future__ import annotations

from itertools import pairwise

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.source.offset import Offset, starting_option
from spillable_stream.spark.source.query_group import DEFAULT_GROUP, GroupOrigin, QueryGroup
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Restore
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range, RangeSet, events_in, listed

__all__ = [
    "check_batch",
    "check_end",
    "check_history",
    "check_new_group",
    "check_put_time",
    "never_taken",
    "not_the_default",
    "pass_over",
]

_log = log_of(__name__)

_RENAMED = "the query had another option group before"


def check_end(state: ChannelState, read_id: int, path: str) -> None:
    """Refuse a checkpoint that has read more than the channel has.

    Args:
        state: the channel's state.
        read_id: the query has, or plans to have, everything up to this event.
        path: the channel's path, for the message.

    Raises:
        CheckpointMismatchError: the channel has fewer events.
    """
    if read_id > state.last_id:
        raise CheckpointMismatchError(
            f"the Spark checkpoint has read {path} up to the event {read_id}, but that has only {state.last_id}: it is "
            "an older copy of the channel. Use a new checkpointLocation"
        )


def check_history(
    state: ChannelState, group: QueryGroup, end: Offset, read_id: int | None, path: str, *, of_set: bool = False
) -> None:
    """Refuse a checkpoint with events that a restore, or a copy, left out: their IDs are, or will be, those of others.

    Args:
        state: the channel's state.
        group: the query's group.
        end: how far the query has read, or plans to have.
        read_id: the query has everything up to this event; None if it is not known whether its last batch was done.
        path: the channel's path, for the message.
        of_set: whether the query reads a set of channels, for the message.

    Raises:
        CheckpointMismatchError: the channel was created from a backup that does not have the event, or is another copy
            of the one that was read.
    """
    if state.may_have(end.event_id, end.restore, end.recovery):
        return
    if end.restore == state.restore_before(end.event_id):
        raise CheckpointMismatchError(_of_another_copy(state, group, end, read_id, path, of_set=of_set))
    shared_ids = {before.token: restore.last_id for before, restore in pairwise([Restore(0, ""), *state.restores])}
    shared_id = shared_ids.get(end.restore)
    if shared_id is None:
        raise CheckpointMismatchError(
            f"the Spark checkpoint has {_extent(end, read_id, path)} after a restore that the channel there now does "
            f"not come from: it {_events_now(state, end)}. Use a new checkpointLocation: a sink then has twice what it "
            "has of the events that are still there"
        )
    raise CheckpointMismatchError(
        f"the Spark checkpoint has {_extent(end, read_id, path)}, but the channel was restored from a backup that ends "
        f"with the event {shared_id}, and gives the later IDs to other events. "
        f"{_way_on_of_restored(state, group, end, read_id, shared_id, of_set=of_set)}"
    )


def check_put_time(end: Offset, now_us: int, read_id: int | None, path: str) -> None:
    """Refuse a checkpoint whose event is another one by now, since a bucket was put back, and others have put to it.

    Args:
        end: how far the query has read, or plans to have.
        now_us: when the event that has the ID now was put; 0 if it is not known.
        read_id: the query has everything up to this event; None if it is not known whether its last batch was done.
        path: the channel's path, for the message.

    Raises:
        CheckpointMismatchError: the event was put at another time.
    """
    if end.put_us and now_us and end.put_us != now_us:
        raise CheckpointMismatchError(
            f"the Spark checkpoint has {_extent(end, read_id, path)}, and the event {end.event_id} is another one by "
            "now: the bucket was put back to an earlier version, and others have put to it. Use a new "
            "checkpointLocation: a sink then has twice what it has of the events that are still there"
        )


def _of_another_copy(
    state: ChannelState, group: QueryGroup, end: Offset, read_id: int | None, path: str, *, of_set: bool
) -> str:
    """Return the refusal of a checkpoint of another copy of the channel, be it the original."""
    ends = {before.token: after.last_id for before, after in pairwise(state.recoveries)}
    shared_id = ends.get(end.recovery)
    if shared_id is None:
        return (
            f"the Spark checkpoint has {_extent(end, read_id, path)} in another copy of the channel: the one there now "
            f"{_events_now(state, end)}. Use a new checkpointLocation: a sink then has twice what it has of the events "
            "that both have"
        )
    return (
        f"the Spark checkpoint has {_extent(end, read_id, path)}, but the channel there now is a copy that has only "
        f"the events up to {shared_id} of that, and gives the later IDs to other events. "
        f"{_way_on_of_restored(state, group, end, read_id, shared_id, of_set=of_set)}"
    )


def _events_now(state: ChannelState, end: Offset) -> str:
    """Return what a channel has for a query's IDs whose events are not its own; nothing tells where the two part."""
    if end.event_id > state.last_id:
        return f"has only events up to {state.last_id}, and gives the later IDs to others"
    return "has other events under these IDs"


def _extent(end: Offset, read_id: int | None, path: str) -> str:
    """Return how far a query has read and planned, as messages say it."""
    if read_id is None:
        return f"read, or only planned, {path} up to the event {end.event_id}"
    planned = f", and planned it up to the event {end.event_id}" if read_id < end.event_id else ""
    return f"read {path} up to the event {read_id}{planned}"


def _way_on_of_restored(
    state: ChannelState, group: QueryGroup, end: Offset, read_id: int | None, shared_id: int, *, of_set: bool
) -> str:
    """Return how to continue in a restored or copied channel that has the query's events up to ``shared_id``."""
    first = max(min(shared_id, end.event_id if read_id is None else read_id) + 1, state.beginning())
    way = _new_checkpoint(group, first, of_set=of_set)
    if of_set:
        return f"{way}: the other channels' events since then come again, and a sink has twice what it has of them"
    if read_id is None:
        return f"{way} if a sink has the last batch; if it has not, with the first event of that"
    if first <= shared_id:
        return f"{way}: a sink that has the planned batch then has {events_in([(first, shared_id)])} twice"
    return f"{way}: it continues with the events that are new"


def check_batch(
    state: ChannelState, group: QueryGroup, begin: int, end: int, path: str, *, of_set: bool = False
) -> None:
    """Refuse a checkpoint whose next batch is beyond the channel's end or behind the group's position.

    Batches behind the group's position can't be planned again as they were, though the channel may keep their events. A
    sink that has their batch IDs would skip the events that are in them now. No option allows that.

    Args:
        state: the channel's state.
        group: the group that takes the query's batches.
        begin: the query has everything up to this event.
        end: the last event of the batch; ``begin`` if there is no batch yet.
        path: the channel's path, for the message.
        of_set: whether the query reads a set of channels, for the message.

    Raises:
        CheckpointMismatchError: the channel has fewer events, or the group has taken more, or a seek moved the group.
    """
    check_end(state, max(begin, end), path)
    _check_position(state, group, state.groups[group.name], begin, path, of_set=of_set)


def check_new_group(
    state: ChannelState, group: QueryGroup, position: int, begin: int, path: str, *, fail: bool, of_set: bool = False
) -> None:
    """Refuse a checkpoint that would not fit a group that is still to be created: it would hold events for nobody.

    Args:
        state: the channel's state.
        group: the group that the options name.
        position: where it would begin: after this event.
        begin: the query has everything up to this event.
        path: the channel's path, for the message.
        fail: whether to refuse a checkpoint with events that the group would yet have to take.
        of_set: whether the query reads a set of channels, for the message.

    Raises:
        CheckpointMismatchError: the group would begin elsewhere than where the query is.
    """
    check_end(state, begin, path)
    known = GroupState(max(position, state.beginning() - 1))
    for first, last in (*state.gone(), *state.left_after(known.position)):
        known.count_as_taken(first, last)
    _check_position(state, group, known, begin, path, of_set=of_set)
    if fail:
        pass_over(list(known.ahead.gaps(known.position + 1, begin)), group, begin, path, fail=True)


def _check_position(
    state: ChannelState, group: QueryGroup, known: GroupState, begin: int, path: str, *, of_set: bool
) -> None:
    taken = list(state.gone().union(known.removed).gaps(begin + 1, known.position))
    if known.is_sought and (taken or never_taken(state, group.name, begin)):
        raise CheckpointMismatchError(
            f"the group {group.name!r} was moved by a seek to the event {known.position + 1}, but the Spark checkpoint "
            f"has read {path} up to the event {begin}: a seek serves Python consumers and new checkpoints; "
            f"{_way_on_of_sought(group, of_set=of_set)}"
        )
    if taken:
        raise CheckpointMismatchError(
            f"the Spark checkpoint has read {path} up to the event {begin}, but the group {group.name!r} has taken "
            f"{listed(taken)} too: another query or consumer continued with it, or the checkpoint is an old copy"
            f"{f', or {_RENAMED}' if _may_be_renamed(group) else ''}. {_way_back(group)}"
            f"{_way_on(state, group, begin, known.position, of_set=of_set)}"
        )


def _way_on_of_sought(group: QueryGroup, *, of_set: bool) -> str:
    if group.is_automatic:
        return f"use a new checkpointLocation (with {'startingTimestamp' if of_set else 'startingOffsets'})"
    return "use a new checkpointLocation, which begins where the seek moved the group, or another group"


def _way_on(state: ChannelState, group: QueryGroup, begin: int, position: int, *, of_set: bool) -> str:
    """Return how to continue without a checkpoint that was refused, and what a sink then has twice."""
    first = max(begin + 1, state.beginning())
    if first > position:
        return "Use a new checkpointLocation" + ("" if group.is_automatic else ", or another group")
    twice = "what was put since" if of_set else events_in([(first, position)])
    return f"{_new_checkpoint(group, first, of_set=of_set)}: a sink that has what the group took then has {twice} twice"


def _new_checkpoint(group: QueryGroup, first_id: int, *, of_set: bool) -> str:
    """Return how to begin anew with an event."""
    own = "" if group.is_automatic else " and resetGroup=true, or another group"
    return f"Use a new checkpointLocation with {starting_option(first_id, of_set=of_set)}{own}"


def _may_be_renamed(group: QueryGroup) -> bool:
    """Tell whether the query may have had another option `group` before, which its checkpoint does not name."""
    return not group.is_automatic and group.unused is None


def _way_back(group: QueryGroup) -> str:
    """Return how to continue where the query was, if it was given another option `group`; "" if it has none."""
    if _may_be_renamed(group):
        return f"If {_RENAMED}, give it that again. "
    if group.unused is None:
        return ""
    return (
        f"The query had no option group before, and its checkpoint has a position of its own, {group.unused!r}: take "
        "the option away to continue there. "
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


def pass_over(passed: list[Range], group: QueryGroup, begin: int, path: str, *, fail: bool) -> None:
    """Report events that the checkpoint says were read, and that the group never took (`never_taken`).

    Args:
        passed: the events.
        group: the group that takes the query's batches.
        begin: the query claims to have everything up to this event.
        path: the channel's path, for the message.
        fail: whether to raise rather than to warn; it raises anyhow if nothing says that the group is the query's.

    Raises:
        CheckpointMismatchError: there are such events, and the read may not continue without them.
    """
    if not passed:
        return
    if group.origin is GroupOrigin.EARLIER:
        raise CheckpointMismatchError(
            not_the_default(path, f" up to the event {begin}", f" never took {listed(passed)}")
        )
    another = f"{_RENAMED}, or " if _may_be_renamed(group) else ""
    message = (
        f"the Spark checkpoint has read {path} up to the event {begin}, but the group {group.name!r} "
        f"never took {listed(passed)}: {another}the channel is an older copy, or the group was dropped, or a consumer "
        "rolled the query's takes back"
    )
    if fail:
        raise CheckpointMismatchError(
            f"{message}. {_way_back(group)}Use a new checkpointLocation to read them, or set failOnDataLoss to false "
            "if the query has already read them"
        )
    _log.warning(
        "%s; the read continues without them",
        message,
        extra=fields(path, group=group.name, first_id=passed[0][0], last_id=passed[-1][1]),
    )


def not_the_default(path: str, read: str = "", lacking: str = " is not there") -> str:
    """Return the refusal of a checkpoint without a group's name whose group is not `default` either.

    Args:
        path: the channel's path.
        read: how far the checkpoint has read.
        lacking: what the group `default` lacks.
    """
    return (
        f"the Spark checkpoint has read {path}{read} and names no group, so the query had the option group, or is of "
        f"an earlier version and read as the group {DEFAULT_GROUP!r}; but that{lacking}. Give the query its option "
        f"group again; of an earlier version, group={DEFAULT_GROUP}; or use a new checkpointLocation"
    )
