"""Commits takes on behalf of their owner, once a micro-batch is known to be done.

A group's owner prepares a take, and commits it when it hears that the batch is done. Any other process that hears it
earlier can commit the same take. Both may do so in any order or at once: a take is committed by its
transaction's ID, under the commit lock, and the second commit does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.group_owners import KeptPosition
from spillable_stream.engine.take_requests import Take, Takes
from spillable_stream.state.channel_state import ChannelState

__all__ = ["finish_takes"]


def finish_takes(engine: Engine, group: str, through_id: int, owner: str | None = None) -> int:
    """Commit the prepared takes of a group that end at an event or before it.

    Args:
        engine: the channel.
        group: the group's name.
        through_id: the write-order ID of the last event that is done.
        owner: the owner that prepared them (`Consumer.owner`). If another owner has taken over the group, it may
            be processing the same events again, so nothing is committed. None: any owner.

    Returns:
        How many takes were committed; 0 if they were already committed.

    Raises:
        StorageError: the file system refused; the takes stay prepared.
    """
    with engine.snapshot() as state:
        takes = _done_takes(state, group, through_id)
    if not takes:
        return 0
    position = engine.owners.position_of(group)
    request = _Finish(takes, lambda: owner is None or engine.owners.owner_of(group) == owner, position)
    try:
        engine.commit(request)
    finally:
        if position is not None:
            position.close()
    return request.finished


@dataclass(slots=True)
class _Finish(Takes):
    """Commits those of the takes that are still prepared, under the commit lock."""

    may_finish: Callable[[], bool]
    position: KeptPosition | None
    finished: int = 0

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Commit what is still prepared, if the owner is the same: a new one waits for this lock before it resumes."""
        self.finished = 0
        if self.may_finish():
            for take in self.takes:
                if plan.open_take(take.prepared) is not None:
                    take.plan(plan)
                    self.finished += 1
        if self.finished and self.position is not None:  # its owner may die before it keeps that
            plan.positions[self.takes[0].group] = self.position
        return CommitResult()


def _done_takes(state: ChannelState, group: str, through_id: int) -> list[Take]:
    """Return the commits of a group's prepared takes that end at an event or before it, oldest first.

    The list is empty if the commit would advance the group's position over events that were taken ahead. The owner
    commits these takes once it knows that the next batch is done too.
    """
    known = state.groups.get(group)
    if known is None or through_id + 1 in known.ahead:
        return []
    return [
        Take(group, ranges, tx)
        for tx, ranges in state.taking(group).items()
        if ranges and max(last for _, last in ranges) <= through_id
    ]
