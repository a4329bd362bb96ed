"""How many requests a sink has in flight: as many as the server answers well, found by trying."""

from __future__ import annotations

__all__ = ["RequestLimit"]


class RequestLimit:
    """Goes up by one after a full round that went well, and down by half after one that did not (as TCP does).

    Args:
        most: how many there are at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.now: int = 1

    def finished(self, sent: int, refused: int) -> None:
        """Note a round.

        Args:
            sent: how many requests were sent.
            refused: how many of them were not answered, or by a server that has too much to do.
        """
        if refused:
            self.now = max(1, self.now // 2)
        elif sent >= self.now:
            self.now = min(self._most, self.now + 1)
