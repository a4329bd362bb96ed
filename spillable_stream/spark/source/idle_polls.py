"""How long a source that has nothing new waits within one of Spark's calls.

Spark asks an idle source a hundred times a second; a look at the channel costs less than an answer. Both get rarer the
longer nothing comes, but a source of a query with several must not keep the others waiting for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from spillable_stream.spark.side_by_side import side_by_side

__all__ = ["IdlePolls", "Polled", "PolledTogether"]

_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 0.2
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.02


class Polled(Protocol):
    """Tells whether something came: a channel's port (`ChannelPort`), or several."""

    def position(self) -> Hashable:
        """Return another value after every commit; looks at the channel."""

    def latest_position(self) -> Hashable:
        """Return the value that was seen last."""

    def least_pause_seconds(self) -> float:
        """Return how long to wait between two looks, at least."""


class PolledTogether:
    """Several channels, asked at the same time. It implements `Polled`."""

    def __init__(self, ports: Sequence[Polled]) -> None:
        self._ports = ports

    def position(self) -> Hashable:
        """Return another value after every commit to one of them."""
        if self.least_pause_seconds() == 0:  # a look at a disk is shorter than the start of a thread
            return tuple([port.position() for port in self._ports])
        return tuple(side_by_side([port.position for port in self._ports]))

    def latest_position(self) -> Hashable:
        """Return the value that was seen last."""
        return tuple([port.latest_position() for port in self._ports])

    def least_pause_seconds(self) -> float:
        """Return the longest of their pauses."""
        return max([port.least_pause_seconds() for port in self._ports], default=0.0)


class IdlePolls:
    """Counts how many times in a row there was nothing, and no batch of any source of the query."""

    def __init__(self) -> None:
        self._count = 0

    def are_over(self) -> None:
        """Begin anew: a batch went by."""
        self._count = 0

    def record(self, *, nothing: bool) -> None:
        """Count a poll that found nothing; begin anew after one that found something."""
        self._count = self._count + 1 if nothing else 0

    def may_wait(self) -> bool:
        """Tell whether the last poll found nothing either: the first one is answered at once."""
        return self._count > 0

    def wait(self, port: Polled, is_there: Callable[[], bool]) -> None:
        """Wait a moment for something to read, longer after each poll that found nothing.

        Args:
            port: the channel, or channels, asked only after a commit.
            is_there: tells whether there is something by now.
        """
        wait_seconds = min(_SHORTEST_WAIT_SECONDS * self._count, _LONGEST_WAIT_SECONDS)
        pause_seconds = min(_SHORTEST_PAUSE_SECONDS * self._count, _LONGEST_PAUSE_SECONDS)
        if (least_seconds := port.least_pause_seconds()) > pause_seconds:  # each look is a request, which costs money
            pause_seconds = wait_seconds = least_seconds
        deadline, before = time.monotonic() + wait_seconds, port.latest_position()
        while time.monotonic() < deadline:
            time.sleep(pause_seconds)
            if (now := port.position()) != before and is_there():
                return
            before = now
