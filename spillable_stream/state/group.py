"""A group's position: what it has taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spillable_stream.format.record import GroupTaken
from spillable_stream.state.image import GroupImage
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["GroupState"]


@dataclass(slots=True)
class GroupState:
    """A group's position.

    Args:
        position: every event up to this ID was taken.
        ahead: events after it that were taken too.
        lost: events that count as taken, but went with a memory tier before; until a later one is taken.
    """

    position: int
    ahead: RangeSet = field(default_factory=RangeSet)
    lost: RangeSet = field(default_factory=RangeSet)

    def take(self, first: int, last: int) -> None:
        """Note that the events of a range were taken."""
        if not self.ahead and first <= self.position + 1:
            self.position = max(self.position, last)
            return
        self.ahead.add(max(first, self.position + 1), last)
        for start, end in self.ahead:
            if start == self.position + 1:
                self.position = end
                self.ahead.remove(start, end)
            break

    def lose(self, first: int, last: int) -> None:
        """Note that the events of a range, as far as they were not taken, can't be any more."""
        for a, b in list(self.ahead.gaps(max(first, self.position + 1), last)):
            self.lost.add(a, b)
        self.take(first, last)

    def taken_count(self) -> int:
        """Return how many events the group has taken, those before its beginning included."""
        return self.position + self.ahead.size()

    def taken(self) -> GroupTaken:
        """Return what the group has taken, as plain values: its position and the ranges ahead of it."""
        return self.position, list(self.ahead)

    def merge(self, position: int, ahead: Iterable[Range]) -> None:
        """Note what another source says that the group has `taken`."""
        self.take(1, position)
        for first, last in ahead:
            self.take(first, last)

    def image(self) -> GroupImage:
        """Return the group as plain values."""
        return (*self.taken(), list(self.lost)) if self.lost else self.taken()
