"""The published end of one tier's log: its part of what the head says."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from spillable_stream.format.file_names import MEMORY, Tier
from spillable_stream.format.head_page import CommitPoint, TierEnd
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.log.commit_lock import CommitLock

__all__ = ["PublishedEnd"]


class PublishedEnd:
    """How far the log of one tier may be trusted.

    Args:
        lock: the commit lock and head.
        tier: the tier.

    Attributes:
        within: returns the tier's end of what the head says.
    """

    def __init__(self, lock: CommitLock, tier: Tier) -> None:
        self.within: Callable[[CommitPoint], TierEnd] = attrgetter(tier.value)
        self._lock = lock
        self._tier = tier

    def published(self) -> TierEnd:
        """Return what the head publishes of this tier.

        Raises:
            CorruptionError: the head is damaged; opening the channel again rebuilds it.
        """
        return self.within(self._lock.published())

    def current(self) -> TierEnd:
        """Return what the head says of this tier; while the lock is held, without a look at it."""
        return self.within(self._lock.current())

    def publish(self, end: TierEnd, last_id: int | None = None) -> None:
        """Write the head; the lock is held.

        Args:
            end: this tier's end.
            last_id: the last write-order ID, where it changes.
        """
        disk, memory, last, checkpoint_ms, pid = self._lock.current()
        if self._tier is MEMORY:
            memory = end
        else:
            disk = end
        last = last if last_id is None else last_id
        self._lock.publish(new_tuple(CommitPoint, (disk, memory, last, checkpoint_ms, pid)))
