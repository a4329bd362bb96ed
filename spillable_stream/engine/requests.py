"""Requests: the kinds of commits, and how each becomes log entries under the commit lock; here the plain kinds.

Puts are in `spillable_stream.engine.put_request`, takes in `spillable_stream.engine.take_requests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.errors import DataLossError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import Frame, FrameType, frame_size
from spillable_stream.format.packing import pack
from spillable_stream.format.record import ControlRecord, GroupRecord, LostRecord, parse_record
from spillable_stream.log.wal import Entry
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import events_in

__all__ = ["COMMIT_BYTES", "SEGMENT_BYTES", "Control", "Move", "Request", "UnreadableEvents"]

COMMIT_BYTES = 512
"""An upper bound of a COMMIT frame's size without segments."""

SEGMENT_BYTES = 256
"""What a segment adds to it at most."""


class Request:
    """A change that one transaction makes to the channel."""

    def tier(self, plan: AppendPlan) -> Tier:
        """Return the tier whose log takes the request; raise if it has no room."""
        return Tier.DISK

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        raise TypeError(f"{type(self).__name__} has no size")

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the request's entries to a plan, or raise and add nothing."""
        raise TypeError(f"{type(self).__name__} can't be planned")

    def may_repeat(self) -> bool:
        """Get ready to be planned again though the log may have it, and tell whether that does no harm."""
        return False


@dataclass(slots=True)
class Control(Request):
    """A change of the channel itself, not of its events: a transaction of one record of a control type.

    Args:
        type: one of `CONTROL_TYPES`.
        value: the record, as the type has it (`spillable_stream.format.record`).
    """

    type: FrameType
    value: ControlRecord

    def may_repeat(self) -> bool:
        return True  # each states a result, and not a difference

    def size_bytes(self) -> int:
        return 2 * COMMIT_BYTES + len(pack(self.value))

    def plan(self, plan: AppendPlan) -> CommitResult:
        tx = plan.new_transaction()
        value = self.value
        if self.type == FrameType.GROUP:
            value = _of_events_left(cast("GroupRecord", value), plan.state)
        packed = pack(value)
        plan.add(Frame.of(self.type, packed), tx, record=parse_record(self.type, packed))
        plan.commit("control", 0, tx)
        return CommitResult(tx)


def _of_events_left(group: GroupRecord, state: ChannelState) -> GroupRecord:
    """Return the record of a group that begins at events that have not left since its position was chosen."""
    if "position" not in group:
        return group
    position = max(group["position"], state.beginning() - 1)
    found: GroupRecord = {**group, "position": position}
    if left := state.left_after(position):
        found["left"] = left
    return found


@dataclass(slots=True)
class UnreadableEvents(Request):
    """Report events of a file as lost.

    Args:
        file: where they are.
        first_id: the first one.
        last_id: the last one.
    """

    file: int | str
    first_id: int
    last_id: int

    def may_repeat(self) -> bool:
        return True

    def size_bytes(self) -> int:
        return 3 * COMMIT_BYTES

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Report them if the channel has them there: other events may have their IDs, or they may be elsewhere."""
        lost = [(self.first_id, self.last_id)]
        if plan.state.blocks.in_file(self.file, *lost[0]) != lost:
            were = "it was" if self.first_id == self.last_id else "they were"
            raise DataLossError(f"{events_in(lost, 'are')} no longer where {were} read")
        value: LostRecord = {"lost": lost, "doubtful": [], "next": plan.state.next_id, "groups": {}, "kept": True}
        return Control(FrameType.LOST, value).plan(plan)


@dataclass(slots=True)
class Move(Request):
    """Move events from the memory tier to the disk tier. They keep their IDs, times and transactions.

    Args:
        entries: the PUT frames, unchanged.
        segments: segments that were copied to disk, with the IDs of their events.
    """

    entries: list[Entry]
    segments: list[SegmentRef]

    def size_bytes(self) -> int:
        return (
            sum([frame_size(header.length) for header, _, _ in self.entries])
            + 2 * COMMIT_BYTES
            + SEGMENT_BYTES * len(self.segments)
        )

    def plan(self, plan: AppendPlan) -> CommitResult:
        tx = plan.new_transaction()
        plan.entries += self.entries
        count = sum(header.count for header, _, _ in self.entries) + sum(s.count for s in self.segments)
        plan.commit("move", count, tx, segments=self.segments)
        return CommitResult(tx)
