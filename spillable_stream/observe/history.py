"""The recent past of channels, as far as somebody looked: for lines over time, and for what spilled when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from spillable_stream.observe.observation import Observation

__all__ = ["History", "Sample", "Spill"]

_MOST_SAMPLES = 600  # ten minutes of a look a second
_MOST_SPILLS = 50


class Sample(NamedTuple):
    """A channel at one moment.

    Args:
        at: in seconds since 1970.
        memory_events: what the memory tier held.
        disk_events: what the disk tier held.
        puts: events put a second.
        takes: events a second that the fastest group took.
        age_seconds: the age of the oldest event that some group has yet to take, or the first one to come.
    """

    at: float
    memory_events: int
    disk_events: int
    puts: float
    takes: float
    age_seconds: float


class Spill(NamedTuple):
    """Put transactions that went to disk for lack of memory, between two looks.

    Args:
        at: when the later look was, in seconds since 1970.
        transactions: how many.
    """

    at: float
    transactions: int


class History:
    """Remembers what was seen of some channels lately."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._spills: dict[str, deque[Spill]] = {}

    def add(self, observations: Iterable[Observation]) -> None:
        """Add a look; one without rates, such as the first, tells nothing."""
        for seen in observations:
            stats, rates = seen.stats, seen.rates
            if stats is None or rates is None:
                continue
            samples = self._samples.setdefault(seen.path, deque(maxlen=_MOST_SAMPLES))
            if samples and samples[-1].at >= seen.at:
                continue
            age = seen.oldest_age_seconds or 0.0
            held = stats.memory.events, stats.disk.events
            samples.append(Sample(seen.at, *held, rates.puts, rates.takes, age))
            if spilled := round(rates.spills * rates.seconds):
                self._spills.setdefault(seen.path, deque(maxlen=_MOST_SPILLS)).append(Spill(seen.at, spilled))

    def samples(self, path: str) -> list[Sample]:
        """Return a channel's samples, the oldest first."""
        return list(self._samples.get(path, ()))

    def spills(self, path: str) -> list[Spill]:
        """Return a channel's spills, the latest first."""
        return list(reversed(self._spills.get(path, ())))
