"""Changes of groups that nobody owns: many in one append."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.requests import Control, Request
from spillable_stream.engine.take_requests import Rollback
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.state.channel_state import ChannelState

__all__ = ["GroupChanges", "drop_of"]


@dataclass(slots=True)
class GroupChanges(Request):
    """Change groups, each in a transaction of its own, all in one append.

    Args:
        records: the changes.
        rolled_back: their take transactions that `Prepare` wrote and nobody will commit, by ID.
        require: raises if the caller may not change them any more; asked where the change is planned.
    """

    records: list[GroupRecord]
    rolled_back: list[int] = field(default_factory=list)
    require: Callable[[], None] | None = None
    _may_be_there: bool = False

    def may_repeat(self) -> bool:
        """Tell that it may: each record states a result, and a group that is not there is dropped already."""
        self._may_be_there = True
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        changes = sum(Control(FrameType.GROUP, record).size_bytes() for record in self.records)
        return changes + Rollback(self.rolled_back).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the rollbacks, then the changes."""
        if self._may_be_there and not any(record["group"] in plan.state.groups for record in self.records):
            return CommitResult()
        if self.require is not None:
            self.require()
        Rollback(self.rolled_back).plan(plan)
        return [Control(FrameType.GROUP, record).plan(plan) for record in self.records][-1]


def drop_of(group: str, state: ChannelState, require: Callable[[], None] | None = None) -> GroupChanges:
    """Return the change that drops a group, and rolls back what its last owner left in flight."""
    dropped: GroupRecord = {"group": group, "drop": True}
    return GroupChanges([dropped], state.open_takes(group), require)
