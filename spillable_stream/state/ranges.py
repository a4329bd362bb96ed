"""Sets of write-order IDs as sorted runs, so that a backlog of any length stays small."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from spillable_stream.counted import agreeing, counted

__all__ = ["Range", "RangeSet", "among_events", "count_of", "events_in", "listed"]

_MOST_LISTED = 10

Range = tuple[int, int]
"""First and last ID, both inside."""


class RangeSet:
    """A set of integers, kept as disjoint, sorted, non-adjacent ranges.

    Args:
        ranges: inclusive ranges, in any order.
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._first, self._last, strict=True)

    def __len__(self) -> int:
        """Return how many ranges there are."""
        return len(self._first)

    def __contains__(self, value: int) -> bool:
        i = bisect_right(self._first, value) - 1
        return i >= 0 and value <= self._last[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def add(self, first: int, last: int) -> None:
        """Add every integer from ``first`` to ``last``."""
        if first > last:
            return
        i = bisect_left(self._last, first - 1)
        j = bisect_right(self._first, last + 1)
        if i < j:
            first, last = min(first, self._first[i]), max(last, self._last[j - 1])
        self._first[i:j] = [first]
        self._last[i:j] = [last]

    def remove(self, first: int, last: int) -> None:
        """Remove every integer from ``first`` to ``last``."""
        if first > last or not self._first:
            return
        i = bisect_left(self._last, first)
        j = bisect_right(self._first, last)
        if i >= j:
            return
        before, after = self._first[i], self._last[j - 1]
        self._first[i:j] = ([before] if before < first else []) + ([last + 1] if after > last else [])
        self._last[i:j] = ([first - 1] if before < first else []) + ([after] if after > last else [])

    def gaps(self, first: int, last: int) -> Iterator[Range]:
        """Yield the ranges between ``first`` and ``last`` that are not in the set."""
        i = bisect_left(self._last, first)
        while first <= last:
            if i == len(self._first) or self._first[i] > last:
                yield first, last
                return
            if first < self._first[i]:
                yield first, self._first[i] - 1
            first = self._last[i] + 1
            i += 1

    def within(self, first: int, last: int) -> list[Range]:
        """Return what is in the set from ``first`` to ``last``."""
        return [(max(a, first), min(b, last)) for a, b in self if a <= last and b >= first]

    def union(self, other: Iterable[Range]) -> RangeSet:
        """Return a new set with the ranges of both."""
        result = RangeSet(self)
        for first, last in other:
            result.add(first, last)
        return result

    @property
    def last(self) -> int:
        """The greatest integer, 0 if there is none."""
        return self._last[-1] if self._last else 0

    def size(self) -> int:
        """Return how many integers there are."""
        return sum(self._last) - sum(self._first) + len(self._first)


def count_of(ranges: Iterable[Range]) -> int:
    """Return how many integers some disjoint ranges hold."""
    count = 0
    for first, last in ranges:
        count += last - first + 1
    return count


def events_in(ranges: Iterable[Range], verb: str = "") -> str:
    """Return events for people: "the event 13", "the events 1 to 10, 36", "the event 13 is".

    Args:
        ranges: their IDs.
        verb: what follows, as it is said of many (`counted`).
    """
    every = list(ranges)
    count = count_of(every)
    said = f"the event{'' if count == 1 else 's'} {listed(every)}"
    return f"{said} {agreeing(count, verb)}" if verb else said


def among_events(first: int, last: int) -> str:
    """Return where something is, for people: "in the event 13", "among the events 1 to 10"."""
    return f"{'in' if first == last else 'among'} {events_in([(first, last)])}"


def listed(ranges: Iterable[Range]) -> str:
    """Return ranges for people, the first ten of them: "1 to 10, 36, and 2 more ranges"."""
    every = list(ranges)
    said = [f"{a} to {b}" if a < b else str(a) for a, b in every[:_MOST_LISTED]]
    if (more := len(every) - _MOST_LISTED) > 0:
        said[-1] += f", and {counted(more, 'more range')}"
    return ", ".join(said)
