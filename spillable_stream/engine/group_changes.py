"""Changes of groups that nobody owns: many in one append, and what is left of a group that is dropped."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.requests import Control, Request, Rollback
from spillable_stream.errors import StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.log.layout import Layout
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["GroupChanges", "drop_of", "remove_files_of"]


@dataclass(slots=True)
class GroupChanges(Request):
    """Change groups, each in a transaction of its own, all in one append.

    Args:
        records: the changes.
        rolled_back: their take transactions that `Prepare` wrote and nobody will commit, by ID.
    """

    records: list[GroupRecord]
    rolled_back: list[int] = field(default_factory=list)

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        changes = sum(Control(FrameType.GROUP, record).size_bytes() for record in self.records)
        return changes + Rollback(self.rolled_back).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the rollbacks, then the changes."""
        Rollback(self.rolled_back).plan(plan)
        return [Control(FrameType.GROUP, record).plan(plan) for record in self.records][-1]


def drop_of(group: str, state: ChannelState) -> GroupChanges:
    """Return the change that drops a group, and rolls back what its last owner left in flight."""
    dropped: GroupRecord = {"group": group, "drop": True}
    return GroupChanges([dropped], state.open_takes(group))


def remove_files_of(fs: FileSystem, layout: Layout, group: str) -> None:
    """Remove the files of an automatic group that was dropped: there may be thousands, and few come again.

    The group's lock is held, exclusively. If the file system refuses, they stay, and nothing depends on them.
    """
    with contextlib.suppress(StorageError):
        for path in (layout.group_query(group), layout.group_position(group), layout.group_lock(group)):
            fs.remove(path)
