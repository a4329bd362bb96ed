"""Upkeep of a channel in an object store: what has to be done in time, whether anybody commits or not."""

from __future__ import annotations

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.object_checkpointing import ObjectCheckpointing
from spillable_stream.engine.object_log import ObjectLog
from spillable_stream.engine.object_owners import ObjectOwners

__all__ = ["ObjectUpkeep"]


class ObjectUpkeep:
    """Looks after a channel in the background. Thread-safe.

    Args:
        log: the channel's log.
        follower: its state.
        owners: who owns its groups.
        checkpointing: makes checkpoints, trims and collects.
        active_calls: the calls that are under way in this process.
    """

    def __init__(
        self,
        log: ObjectLog,
        follower: Follower,
        owners: ObjectOwners,
        checkpointing: ObjectCheckpointing,
        active_calls: ActiveCalls,
    ) -> None:
        self._log = log
        self._follower = follower
        self._owners = owners
        self._checkpointing = checkpointing
        self._active_calls = active_calls

    def ensure(self) -> None:
        """Do nothing yet."""

    def close(self, *, forked: bool = False) -> None:
        """Do nothing yet."""
