"""The recent past of a channel, as one handle saw it: a sample a second, for rates and for plots."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from spillable_stream.channel.state import ChannelState

__all__ = ["Rates", "Sample", "Samples"]

_EVERY_SECONDS = 1.0
_KEPT = 3600


class Sample(NamedTuple):
    """A channel at one moment.

    Args:
        time: in seconds since 1970.
        memory_events: what the memory tier held.
        disk_events: what the disk tier held.
        overflow: whether overflow was active.
        last_id: the last write-order ID.
        taken: how many events each group had taken.
    """

    time: float
    memory_events: int
    disk_events: int
    overflow: bool
    last_id: int
    taken: dict[str, int]


class Rates(NamedTuple):
    """Events per second over the last minute, or since the handle was opened.

    Args:
        put: how many were put, by everybody.
        taken: how many the fastest group took.
        seconds: over how long.
    """

    put: float
    taken: float
    seconds: float


class Samples:
    """The samples of the last hour in which anything happened."""

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=_KEPT)
        self._due = float("-inf")

    def note(self, state: ChannelState, *, now: bool = False) -> None:
        """Take a sample if the last one is a second old.

        Args:
            state: the channel, up to date.
            now: take one whatever the last one's age.
        """
        clock = time.monotonic()
        if clock < self._due and not now:
            return
        self._due = clock + _EVERY_SECONDS
        taken = {name: g.position + g.ahead.size() for name, g in state.groups.items()}
        memory, disk = state.use(in_memory=True).events, state.use(in_memory=False).events
        self._kept.append(Sample(time.time(), memory, disk, state.overflow, state.last_id, taken))

    def all(self) -> list[Sample]:
        """Return the samples, oldest first."""
        return list(self._kept)

    def rates(self, state: ChannelState, over_seconds: float = 60.0) -> Rates:
        """Return how fast events came and went."""
        now = time.time()
        recent = [s for s in self._kept if now - s.time <= over_seconds]
        if not recent:
            return Rates(0.0, 0.0, 0.0)
        elapsed = max(now - recent[0].time, 1e-3)
        taken = [0]
        for name, group in state.groups.items():
            base = next((s.taken[name] for s in recent if name in s.taken), None)
            if base is not None:  # a group that came later began where it did
                taken.append(group.position + group.ahead.size() - base)
        return Rates((state.last_id - recent[0].last_id) / elapsed, max(taken) / elapsed, elapsed)
