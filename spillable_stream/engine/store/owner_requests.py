"""Requests that say who owns a group of a channel in an object store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.requests import Control, Request
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.state.contents import OwnerRecord
from spillable_stream.storage.process_identity import NO_PROCESS, process_name

__all__ = ["Claim", "GiveUp", "Own"]

_RECORD_BYTES = 4096


@dataclass(slots=True)
class Own(Request):
    """Become a group's owner, or say that one still is.

    Args:
        group: the group's name.
        note: what the owner says of itself.
        over: the owner, as it was seen last: if that has changed, nothing is written.
        is_answer: whether this is the owner, which lives.
        losses: returns how many losses the handle has met.

    Attributes:
        epoch: set by the plan: the number of the ownership; 0 if nothing was written.
        met: set by the plan: how many losses the handle had met.
    """

    group: str
    note: str
    over: OwnerRecord | None
    is_answer: bool = False
    losses: Callable[[], int] = lambda: 0
    epoch: int = 0
    met: int = 0
    _may_be_there: bool = False

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks who the owner is."""
        self._may_be_there = True
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return _RECORD_BYTES

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if the owner is the one that was seen last; if not, find out whether it is there already."""
        known, self.epoch, self.met = plan.state.owners.get(self.group), 0, self.losses()
        if self._may_be_there and known is not None and known.note == self.note:
            self.epoch = known.epoch
        if known != self.over:
            return CommitResult()
        self.epoch = self.over.epoch if self.is_answer and self.over is not None else plan.next_transaction
        record: GroupRecord = {
            "group": self.group,
            "owner": self.note,
            "epoch": self.epoch,
            "process": process_name(),
        }
        return Control(FrameType.GROUP, record).plan(plan)


@dataclass(slots=True)
class Claim(Request):
    """Ask a group's owner whether it lives, unless somebody else asks.

    Args:
        group: the group's name.
        over: the owner, as it was seen last.
        by: the name of the one that asks.
    """

    group: str
    over: OwnerRecord
    by: str

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks who the owner is."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return _RECORD_BYTES

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if the owner is the one that was seen last."""
        if plan.state.owners.get(self.group) != self.over:
            return CommitResult()
        return Control(FrameType.GROUP, GroupRecord(group=self.group, claim=self.by)).plan(plan)


@dataclass(slots=True)
class GiveUp(Request):
    """Own a group no more.

    Args:
        group: the group's name.
        epoch: the number of the ownership.
        note: what the next owner finds; "" for nothing.
    """

    group: str
    epoch: int
    note: str = ""

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks who the owner is."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return _RECORD_BYTES

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if the ownership still is the one that is given up.

        The note of a stream's own group stays: by it upkeep sees, later, that an owner came and went.
        """
        known = plan.state.owners.get(self.group)
        if known is None or known.epoch != self.epoch:
            return CommitResult()
        group = plan.state.groups.get(self.group)
        note = self.note or (known.note if group is not None and group.is_automatic else "")
        record = GroupRecord(group=self.group, owner="", epoch=self.epoch)
        if note:  # an owner whose process is gone, and who can't be taken for this one
            record = GroupRecord(group=self.group, owner=note, epoch=plan.next_transaction, process=NO_PROCESS)
        return Control(FrameType.GROUP, record).plan(plan)
