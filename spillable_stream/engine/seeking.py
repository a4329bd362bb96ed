"""Moving a group to another position, back or forward.

Under the channel's lock, in one append: what the group has in flight is rolled back, and the group continues elsewhere.
What the group's file says that it has taken (`spillable_stream.engine.position_hint`) is forgotten before that. If it
were still there, the loss of a memory tier would move the group forward again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.groups import existing_group, have_left, without_owner
from spillable_stream.engine.position_hint import PositionHint
from spillable_stream.engine.requests import Control, Request, Rollback
from spillable_stream.errors import GroupOwnedError, OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.names import check_group
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import RangeSet

__all__ = ["Seek", "checked_position", "seek_group"]

Choose = Callable[[ChannelState], int]
"""Returns the position to move to, given the state under the channel's lock, or raises: then nothing is changed."""


def checked_position(position: int, state: ChannelState, path: str | Path) -> int:
    """Return a position that a group can have now.

    Args:
        position: the event before the one that the group is to take next.
        state: the channel's state.
        path: the channel's directory, for the error.

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
            f"the event {position + 1} is beyond the next event of {path}, {state.next_id}, where 'latest' begins"
        )
    return position


@dataclass(slots=True)
class Seek(Request):
    """Move a group.

    Args:
        group: the group's name.
        choose: chooses the position.
        hint: the file that keeps the group's position.
        path: the channel's directory, for errors.
        reset: the move's name, if it must not be done twice: a second one of that name changes nothing.
        require_owner: raises if the caller does not own the group.
        give_back: called before the move is written, with the first transaction ID that is not in use.
        next_id: set by the plan: the event that the group takes next.
    """

    group: str
    choose: Choose
    hint: PositionHint
    path: Path
    reset: str
    require_owner: Callable[[], None]
    give_back: Callable[[int], None]
    next_id: int = 0

    def size_bytes(self) -> int:
        """Return about how much it takes in the log, in bytes; rollbacks are not counted."""
        return Control(FrameType.GROUP, self._record(0)).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Roll back what is in flight and move the group, or raise and change nothing."""
        self.require_owner()
        state = plan.state
        group = existing_group(state, self.group, self.path)
        if self.reset and group.reset == self.reset:
            self.next_id = _next_of(group.ahead, group.position, state)
            return CommitResult()
        position = self.choose(state)
        record = self._record(position)
        if left := state.left_after(position):
            record["left"] = left
        self.hint.forget()
        self.give_back(plan.next_transaction)
        Rollback(state.open_takes(self.group)).plan(plan)
        self.next_id = _next_of(state.gone().union(left), position, state)
        return Control(FrameType.GROUP, record).plan(plan)

    def _record(self, position: int) -> GroupRecord:
        record: GroupRecord = {"group": self.group, "seek": position}
        if self.reset:
            record["reset"] = self.reset
        return record


def _next_of(passed: RangeSet, position: int, state: ChannelState) -> int:
    return next((first for first, _ in passed.gaps(position + 1, state.last_id)), state.next_id)


def seek_group(engine: Engine, group: str, choose: Choose) -> int:
    """Move a group that nobody owns, and return the event that it takes next.

    Args:
        engine: the channel.
        group: the group's name.
        choose: chooses the position.

    Raises:
        GroupOwnedError: a live consumer owns the group.
        OptionError: the channel has no group of this name, or the name is invalid.
        StorageError: the file system refused; the group is where it was.

    It raises what ``choose`` raises, too.
    """
    check_group(group)
    with without_owner(engine, group, ", or seek through its own handle") as lock:

        def require_owner() -> None:
            if not lock.is_in_place():
                moved = f"{lock.path} was moved, removed or replaced during a seek of {group!r}; try again"
                raise GroupOwnedError(moved)

        hint = PositionHint(engine.fs, engine.layout, group, engine.position_files)
        try:
            seek = Seek(group, choose, hint, engine.layout.path, "", require_owner, lambda _: None)
            engine.commit(seek)
        finally:
            hint.close()
    return seek.next_id
