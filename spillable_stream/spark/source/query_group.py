"""Which group a query reads as: the one that the option names, or a position of its own.

::

    option ``group`` ─▶ OPTION

    none ─▶ NEW ── hear an offset with another name ──▶ CHECKPOINT    as the query was called before a restart
             │
             └──── hear an offset without a name ─────▶ EARLIER       the group `default`, as an earlier version had it

A stream without the option makes up a name, and says it in every offset, so that the query's checkpoint remembers it.
The group itself is created when the first batch is asked for, where the query begins; if it is gone when the query
resumes, it is created again where the checkpoint is.
"""

from __future__ import annotations

from enum import Enum
from uuid import uuid4

from spillable_stream.engine.port import HighWater
from spillable_stream.spark.source.offset import Offset

__all__ = ["DEFAULT_GROUP", "GroupOrigin", "QueryGroup"]

DEFAULT_GROUP = "default"
"""The group of a stream without the option `group`, before such a stream had a position of its own."""


class GroupOrigin(Enum):
    """What said which group it is."""

    OPTION = "option"
    NEW = "new"
    CHECKPOINT = "checkpoint"
    EARLIER = "earlier"


class QueryGroup:
    """The state machine of one query's group. It knows nothing of the channel.

    Args:
        option: the option `group`, or None.

    Attributes:
        name: the group's name.
        origin: what said so.
        read_id: the query has everything up to this event; None if nothing has said so yet.
        resumes: whether Spark's checkpoint said so first: the query began before this worker did.
        made_at: how far the channel was when the query created the group for itself; None if it did not, or not here.
        unused: the automatic group that the checkpoint names, though the option names another one; None without.
    """

    def __init__(self, option: str | None) -> None:
        self._own_name = f"auto-{uuid4().hex}"
        self.name: str = option or self._own_name
        self.origin: GroupOrigin = GroupOrigin.OPTION if option else GroupOrigin.NEW
        self.read_id: int | None = None
        self.resumes: bool = False
        self.made_at: HighWater | None = None
        self.unused: str | None = None

    @property
    def is_automatic(self) -> bool:
        """Whether the query created the group for itself."""
        return self.origin in (GroupOrigin.NEW, GroupOrigin.CHECKPOINT)

    @property
    def label(self) -> str | None:
        """What offsets say of the group: its name, or None where the options say it."""
        return self.name if self.is_automatic else None

    def begin(self, position_id: int) -> None:
        """Note where the query begins if it is new.

        Args:
            position_id: the event after which its first batch begins.
        """
        if self.read_id is None:
            self.read_id = position_id

    def is_made_up(self, began: Offset, ended: Offset) -> bool:
        """Tell whether a batch's beginning has a name that this worker made up, and the end has the query's.

        So it is where Spark plans the first batch of a query again after a restart, and asks anew where it begins.
        """
        return began.group == self._own_name != ended.group

    def hear(self, offset: Offset, read_id: int) -> bool:
        """Note an offset of Spark's, and return whether it is of another group than the query had before.

        Args:
            offset: where a batch begins or ends.
            read_id: the query has everything up to this event.
        """
        self.resumes = self.resumes or self.read_id is None
        self.read_id = read_id
        if self.origin is GroupOrigin.OPTION:
            self.unused = offset.group
            return False
        if offset.group == self.name:
            return False
        before, self.name = self.name, offset.group or DEFAULT_GROUP
        self.origin = GroupOrigin.CHECKPOINT if offset.group else GroupOrigin.EARLIER
        return before != self.name
