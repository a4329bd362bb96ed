"""Creates, finds and drops a channel's groups. Owning one is the job of a `Consumer`."""

from __future__ import annotations

import contextlib
import os
import re

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_changes import GroupChanges, drop_of
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.requests import Control
from spillable_stream.errors import DataLossError, OptionError, SpillableError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.names import check_group, is_name
from spillable_stream.shown_value import shown
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.image import GroupImage
from spillable_stream.state.ranges import events_in

__all__ = [
    "create_group",
    "drop_group",
    "existing_group",
    "has_stayed",
    "have_left",
    "record_owner",
    "record_plan",
    "starting_position",
]

_EVENT_ID = re.compile(r"[0-9]{1,100}\+?")
_NAMED_GROUPS = 20  # named in an error message


def create_group(
    engine: Engine, group: str, starting: str, *, automatic: bool = False, since: int | None = None
) -> int:
    """Create a group unless it exists, and return its position. The group needs no owner.

    If several processes create it at once, the first one decides where it starts.

    Args:
        engine: the channel.
        group: the group's name.
        starting: where it starts, as in `starting_position`.
        automatic: whether a stream creates it for itself.
        since: for a stream that had a group before: the last event that it had read when that was dropped. The new
            group continues there, whatever ``starting`` says; events that have left meanwhile count as removed.

    Raises:
        DataLossError: the event to start at has left the channel.
        OptionError: the name is invalid, or the group would start beyond the next event's ID.
        StorageError: the file system refused.
    """
    check_group(group)
    with engine.snapshot() as state:
        if group in state.groups:
            return state.groups[group].position
        if since is None:
            position = starting_position(starting, state, engine.path)
        else:
            position = _position_since(since, state, engine.path)
    engine.owners.forget_former(group)
    # A sink's note of an earlier group of this name, maybe of before a restore, may name events that are yet to come.
    record: GroupRecord = {"group": group, "position": position, "token": os.urandom(8).hex()}
    if automatic:
        record["auto"] = True
    if since is not None:
        record["since"] = since
    engine.commit(Control(FrameType.GROUP, record))
    if automatic:
        engine.upkeep.ensure()
    with engine.follower.as_known as state:  # it was just committed
        return state.groups[group].position if group in state.groups else position  # it was dropped meanwhile


def record_owner(engine: Engine, group: str) -> None:
    """Record that an automatic group has an owner: one that goes soon may go before any upkeep looks at the group.

    Args:
        engine: the channel.
        group: the group, owned by the caller.

    Raises:
        StorageError: the file system refused.
    """
    engine.commit(Control(FrameType.GROUP, GroupRecord(group=group, idle=0)))


def record_plan(engine: Engine, group: str) -> None:
    """Record that a stream has planned a batch without events as the group that it created for itself.

    Its checkpoint has that batch, so the group is no longer one that nobody would miss.

    Args:
        engine: the channel.
        group: the group, owned by the caller.

    Raises:
        StorageError: the file system refused.
    """
    with engine.snapshot() as state:
        known = state.groups[group]
    if known.is_automatic and not known.has_planned:
        engine.commit(Control(FrameType.GROUP, GroupRecord(group=group, idle=0, planned=True)))


def starting_position(starting: str, state: ChannelState, path: ChannelPath) -> int:
    """Return the position of a new group. It may start at any event that the channel keeps.

    Args:
        starting: "earliest" for the first event that is kept, "latest", or the write-order ID of its first event; with
            a "+" after the ID, it is that event or, if that has left, the first that is kept.
        state: the channel's state.
        path: what users call the channel, for the error.

    Raises:
        DataLossError: that event has left the channel; the message names the first that is kept.
        OptionError: the ID is beyond the next event's, or that of no event, or ``starting`` is none of these.
    """
    beginning = state.beginning()
    if starting == "earliest":
        return beginning - 1
    if starting == "latest":
        return state.last_id
    if not isinstance(starting, str) or not _EVENT_ID.fullmatch(starting):
        raise OptionError(
            f"a group starts at 'earliest', 'latest', or the ID of an event as text, not at {shown(starting)}"
        )
    wanted = int(starting.removesuffix("+"))
    if wanted < 1:
        raise OptionError(
            f"no event has the ID {wanted}: the first event of {path} was 1; 'earliest' is the first kept"
        )
    if wanted < beginning and not starting.endswith("+"):
        raise have_left(wanted, state, path)
    if wanted > state.last_id + 1:
        raise OptionError(f"the start {wanted} is after the next event of {path}, {state.last_id + 1}")
    return max(wanted, beginning) - 1


def _position_since(since: int, state: ChannelState, path: ChannelPath) -> int:
    if since > state.last_id:
        raise OptionError(
            f"a query has read {path} up to the event {since}, but its last event is {state.last_id}: it is an older "
            "copy of the channel. Start the query with a new checkpoint"
        )
    return max(since, state.beginning() - 1)


def have_left(first_id: int, state: ChannelState, path: ChannelPath) -> DataLossError:
    """Return the error that says that events have left the channel, and which is the first that has not.

    Args:
        first_id: the first event that was asked for.
        state: the channel's state.
        path: what users call the channel.
    """
    last_id = state.beginning() - 1
    left = events_in([(min(first_id, last_id), last_id)], "have")
    kept = (
        f"the first event that it keeps is {state.first_kept}"
        if state.first_kept <= state.last_id
        else f"it keeps none, and the next event will be {state.next_id}"
    )
    return DataLossError(f"{left} left the channel: {kept}. Begin there or later, or at 'earliest'", str(path))


def existing_group(state: ChannelState, group: str, path: ChannelPath) -> GroupState:
    """Return an existing group.

    Args:
        state: the channel's state.
        group: the group's name.
        path: what users call the channel, for the error.

    Raises:
        OptionError: the channel has no group of this name; the message lists its named groups.
    """
    groups = state.groups
    if isinstance(group, str) and (found := groups.get(group)) is not None:
        return found
    named = [name for name, state_of in groups.items() if not state_of.is_automatic]
    if not named:
        raise OptionError(
            f"{path} has no group {shown(group)}, nor any other: the first take as a group creates it, as does "
            "'spillable groups create'"
        )
    known = ", ".join(map(repr, named[:_NAMED_GROUPS]))
    more = f" and {len(named) - _NAMED_GROUPS:,} more" if len(named) > _NAMED_GROUPS else ""
    raise OptionError(f"{path} has no group {shown(group)}; its groups are: {known}{more}")


def has_stayed(group: str, before: GroupImage, appender: Appender, follower: Follower) -> bool:
    """Tell whether an interrupted change left a group as it was; False if nobody can tell now.

    Args:
        group: the group's name.
        before: what it was before.
        appender: waits for an append that is under way.
        follower: the channel's state.
    """
    with contextlib.suppress(SpillableError), appender.unasked(), appender.committing():
        found = follower.state.groups.get(group)
        return found is not None and found.image() == before
    return False


def drop_group(engine: Engine, group: str) -> None:
    """Drop a group, so that it no longer retains events.

    An older log may have a group whose name is invalid now. Such a group has no lock file, so it can't have an owner.

    Raises:
        GroupOwnedError: a live consumer owns it.
        OptionError: the channel has no group of this name, or the name is invalid.
    """
    if not is_name(group):
        if not isinstance(group, str) or group not in engine.follow().groups:
            check_group(group)
        engine.commit(GroupChanges([{"group": group, "drop": True}]))
        return
    with engine.owners.without_owner(group) as hold:
        with engine.snapshot() as state:
            automatic = existing_group(state, group, engine.path).is_automatic
            drop = drop_of(group, state, hold.require)
        hold.forget_note()  # first: a group that is created anew must not find it, whatever happens to the host
        if not automatic:
            engine.worker_statuses.forget(group)
        engine.commit(drop)
        if automatic:
            engine.owners.forget_files(group)
