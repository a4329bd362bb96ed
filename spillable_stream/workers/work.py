"""The work of a worker: events that its function is called with, and those that wait to be tried again."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import NamedTuple

from spillable_stream.state.ranges import Range, count_of

__all__ = ["Care", "Deferred", "Fate", "Work", "WorkQueue", "backoff_seconds", "halves"]

_LONGEST_BACKOFF_SECONDS = 300.0


class Fate(Enum):
    """What becomes of events that the function is done with."""

    DONE = "done"
    DROPPED = "dropped"
    DEAD = "dead-lettered"


class Care(Enum):
    """The care that a call needs, since its events may end the process."""

    NONE = "none"
    NOTED = "it is written down"
    ALONE = "it is written down, and no other call is under way"


@dataclass(slots=True)
class Work:
    """Events that are claimed: only their IDs, since they are read again for each call.

    Args:
        ranges: the events.
        attempts: how many calls with this one event alone have failed.
        pauses: how often it has waited in a row because the function, or a channel, asked for it.
        error: why the last call failed. If the call was left behind, nobody has judged this yet.
        is_left: whether that call was left behind.
        fate: what becomes of the events, once the function is done with them.
        is_refused: whether a channel could not commit its fate when that was tried last.
        prepared: the take transaction that `Transfer` wrote; 0 before.
        care: the care that each call needs.
    """

    ranges: list[Range]
    attempts: int = 0
    pauses: int = 0
    error: BaseException | None = None
    is_left: bool = False
    fate: Fate | None = None
    is_refused: bool = False
    prepared: int = 0
    care: Care = Care.NONE

    @property
    def count(self) -> int:
        """How many events there are."""
        return count_of(self.ranges)

    @property
    def first_id(self) -> int:
        """The first event."""
        return self.ranges[0][0]

    @property
    def last_id(self) -> int:
        """The last event."""
        return self.ranges[-1][1]

    def __str__(self) -> str:
        """Return the events for a message."""
        return f"the event {self.last_id}" if self.count == 1 else f"the events {self.first_id} to {self.last_id}"


class Deferred(NamedTuple):
    """Work that must wait."""

    work: Work
    seconds: float


def halves(ranges: list[Range]) -> tuple[list[Range], list[Range]]:
    """Return the first half of some events, and the second one."""
    first: list[Range] = []
    second: list[Range] = []
    left = count_of(ranges) // 2
    for a, b in ranges:
        middle = min(b, a + left - 1)
        if middle >= a:
            first.append((a, middle))
            left -= middle - a + 1
        if middle < b:
            second.append((max(a, middle + 1), b))
    return first, second


def backoff_seconds(first_seconds: float, failures: int, random: float) -> float:
    """Return how long to wait before another attempt: twice as long each time, less up to a half by chance.

    Args:
        first_seconds: the longest wait after the first failure.
        failures: how many attempts have failed; at least one.
        random: a number from 0 to 1, which keeps workers that failed together from trying again together.
    """
    longest = min(first_seconds * 2.0 ** min(failures - 1, 60), max(first_seconds, _LONGEST_BACKOFF_SECONDS))
    return longest * (1 - random / 2)


class WorkQueue:
    """Work that waits until it is due. Not thread-safe: the worker's mutex is held.

    Attributes:
        events: how many events wait.
    """

    def __init__(self) -> None:
        self.events: int = 0
        self._heap: list[tuple[float, int, int, Work]] = []
        self._number = count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, work: Work, due: float = 0.0) -> None:
        """Let work wait until ``due``, in seconds of the worker's clock; at 0 it comes before all other work."""
        heapq.heappush(self._heap, (due, work.first_id, next(self._number), work))
        self.events += work.count

    def next_due(self) -> float | None:
        """Return when the first work is due; None if none waits."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Work | None:
        """Return the work that has been due longest, which waits no more; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        work = heapq.heappop(self._heap)[3]
        self.events -= work.count
        return work
