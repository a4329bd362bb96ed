"""How many events the next batch of a source has at most: fewer where a channel could not hold as many."""

from __future__ import annotations

__all__ = ["BatchLimit"]


class BatchLimit:
    """The most events of the next batch: halved after one that was too large for a channel, and then doubled again.

    Args:
        most: the source's batch size.

    Attributes:
        events: how many events the next batch has at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.events: int = most

    def was_too_large(self, events: int) -> None:
        """Let the next batch have half as many events as one that was too large.

        Args:
            events: how many that had, two or more.
        """
        self.events = events // 2

    def was_stored(self) -> None:
        """Let the next batch have twice as many events, up to the batch size."""
        self.events = min(2 * self.events, self._most)
