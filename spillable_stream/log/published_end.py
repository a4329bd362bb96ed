"""The published end of one tier's log: its part of what the head says."""

from __future__ import annotations

from spillable_stream.format.head_page import TierEnd
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.tier_files import TierFiles

__all__ = ["PublishedEnd"]


class PublishedEnd:
    """How far the log of one tier may be trusted.

    Args:
        lock: the commit lock and head.
        policy: the tier's.
    """

    def __init__(self, lock: CommitLock, policy: TierFiles) -> None:
        self._lock = lock
        self._policy = policy

    def published(self) -> TierEnd:
        """Return what the head publishes of this tier.

        Raises:
            CorruptionError: the head is damaged; opening the channel again rebuilds it.
        """
        return self._policy.end(self._lock.published())

    def current(self) -> TierEnd:
        """Return what the head says of this tier; while the lock is held, without a look at it."""
        return self._policy.end(self._lock.current())

    def publish(self, end: TierEnd, last_id: int | None = None) -> None:
        """Write the head; the lock is held.

        Args:
            end: this tier's end.
            last_id: the last write-order ID, where it changes.
        """
        self._lock.publish(self._policy.with_end(self._lock.current(), end, last_id))
