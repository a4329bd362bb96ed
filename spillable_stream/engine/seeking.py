"""Moving a group to another position, back or forward.

Under the commit lock, in one append: what the group has in flight is rolled back, and the group continues elsewhere.
The position that is kept beside the log (`KeptPosition`; on this host `PositionHint`) is forgotten before that, and so
is the note about its last owner. If the former were still there, the loss of a memory tier would move the group forward
again; what the latter says of failures would count against events that come again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.group_owners import GroupHold
from spillable_stream.engine.groups import existing_group, have_left
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.requests import Control, Request
from spillable_stream.engine.take_requests import Rollback
from spillable_stream.errors import OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.names import check_group
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import RangeSet

__all__ = ["Seek", "checked_position", "seek_group"]

Choose = Callable[[ChannelState], int]
"""Returns the position to move to, given the state under the commit lock, or raises: then nothing is changed."""


def checked_position(position: int, state: ChannelState, path: ChannelPath) -> int:
    """Return a position that a group can have now.

    Args:
        position: the event before the one that the group is to take next.
        state: the channel's state.
        path: what users call the channel, for the error.

    Raises:
        DataLossError: the event after it has left the channel; the message names the first that is kept.
        OptionError: it is beyond the last event, or no ID.
    """
    if position < 0:
        raise OptionError(f"no event has the ID {position + 1}: the first event of {path} was 1")
    if position + 1 < state.beginning():
        raise have_left(position + 1, state, path)
    if position > state.last_id:
        raise OptionError(
            f"the event {position + 1} is after the next event of {path}, {state.next_id}, where 'latest' begins"
        )
    return position


@dataclass(slots=True)
class Seek(Request):
    """Move a group.

    Args:
        group: the group's name.
        choose: chooses the position.
        hold: the group, which nobody but the caller owns.
        path: what users call the channel, for errors.
        reset: the move's name, if it must not be done twice: a second one of that name changes nothing.
        give_back: called before the move is written, with the first transaction ID that is not in use.
        token: says of a sink's note whether it is of this beginning or of an earlier one.
        next_id: set by the plan: the event that the group takes next.
    """

    group: str
    choose: Choose
    hold: GroupHold
    path: ChannelPath
    reset: str
    give_back: Callable[[int], None]
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    next_id: int = 0

    def may_repeat(self) -> bool:
        """Tell that it may: the group is owned, so it is where it was, or where it should be."""
        return True

    def size_bytes(self) -> int:
        """Return about how much it takes in the log, in bytes; rollbacks are not counted."""
        return Control(FrameType.GROUP, self._record(0)).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Roll back what is in flight and move the group, or raise and change nothing."""
        self.hold.require()
        state = plan.state
        group = existing_group(state, self.group, self.path)
        if self.reset and group.reset == self.reset:
            self.next_id = _next_of(group.ahead, group.position, state)
            return CommitResult()
        position = self.choose(state)
        record = self._record(position)
        if left := state.left_after(position):
            record["left"] = left
        self.hold.forget_note()
        if self.hold.position is not None:
            self.hold.position.forget()
        self.give_back(plan.next_transaction)
        Rollback(state.open_takes(self.group)).plan(plan)
        self.next_id = _next_of(state.gone().union(left), position, state)
        return Control(FrameType.GROUP, record).plan(plan)

    def _record(self, position: int) -> GroupRecord:
        record: GroupRecord = {"group": self.group, "seek": position, "token": self.token}
        if self.reset:
            record["reset"] = self.reset
        return record


def _next_of(passed: RangeSet, position: int, state: ChannelState) -> int:
    return next((first for first, _ in passed.gaps(position + 1, state.last_id)), state.next_id)


def seek_group(engine: Engine, group: str, choose: Choose) -> int:
    """Move a group that nobody owns, and return the event that it takes next.

    Raises:
        GroupOwnedError: a live consumer owns the group.
        OptionError: the channel has no group of this name, or the name is invalid.
        StorageError: the file system refused; the group is where it was.

    It raises what ``choose`` raises, too.
    """
    check_group(group)
    with engine.owners.without_owner(group, ", or seek through its own handle") as hold:
        seek = Seek(group, choose, hold, engine.path, "", lambda _: None)
        engine.commit(seek)
    return seek.next_id
