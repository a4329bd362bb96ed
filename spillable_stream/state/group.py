"""A group's position: what it has taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from spillable_stream.format.take_record import GroupTaken, Ranges
from spillable_stream.state.image import GroupDetails, GroupImage
from spillable_stream.state.ranges import Range, RangeSet, count_of

__all__ = ["GroupState"]


@dataclass(slots=True)
class GroupState:
    """A group's position.

    Args:
        position: every event up to this ID was taken.
        ahead: events after it that were taken too.
        lost: events that count as taken, but went with a memory tier or with damage; until a later one is taken.
        removed: events that count as taken, but left by age or size before; until a later one is taken.
        is_automatic: whether a stream created it for itself.
        has_planned: whether an automatic group has ever planned a batch.
        idle_ms: how long an automatic group has had no owner while the channel was open, in milliseconds.
        is_sought: whether it was moved by a seek and has taken nothing since.
        reset: the name of the last seek that must not be done twice.
        token: a random text of its beginning; "" where an earlier version created it.
        passed: how many expired events its takes have passed over.
        missed: how many events it could not take, as far as this handle has seen that; for rates, and in no image.
    """

    position: int
    ahead: RangeSet = field(default_factory=RangeSet)
    lost: RangeSet = field(default_factory=RangeSet)
    removed: RangeSet = field(default_factory=RangeSet)
    is_automatic: bool = False
    has_planned: bool = False
    idle_ms: int = 0
    is_sought: bool = False
    reset: str = ""
    token: str = ""
    passed: int = 0
    missed: int = field(default=0, compare=False)

    def untaken(self, first: int, last: int) -> Iterator[Range]:
        """Yield the ranges between two events that the group has yet to take."""
        return self.ahead.gaps(max(first, self.position + 1), last)

    def count_as_taken(self, first: int, last: int) -> None:
        """Count the events of a range as taken: they were, or the group can't take them any more."""
        if not self.ahead and first <= self.position + 1:
            self.position = max(self.position, last)
        else:
            self._take_ahead(first, last)

    def _take_ahead(self, first: int, last: int) -> None:
        self.ahead.add(max(first, self.position + 1), last)
        for start, end in self.ahead:
            if start == self.position + 1:
                self.position = end
                self.ahead.remove(start, end)
            break

    def lose(self, first: int, last: int) -> None:
        """Note that the events of a range, as far as they were not taken, can't be any more."""
        self._miss(first, last, self.lost)

    def remove(self, first: int, last: int) -> None:
        """Note that the events of a range have left by age or size, as far as they were not taken."""
        self._miss(first, last, self.removed)

    def _miss(self, first: int, last: int, missed: RangeSet) -> None:
        for a, b in list(self.untaken(first, last)):
            missed.add(a, b)
            self.missed += b - a + 1
        self.count_as_taken(first, last)

    def took(self, first: int, last: int) -> None:
        """Note that the group itself took the events of a range: it has been told what was missing before it."""
        if not self.ahead and first <= self.position + 1:  # as in `count_as_taken`: every take comes here
            self.position = max(self.position, last)
        else:
            self._take_ahead(first, last)
        self.lost.remove(0, first - 1)
        self.removed.remove(0, last)
        self.is_sought = False

    def give_back(self, first: int, last: int) -> None:
        """Count the events of a range as not taken."""
        taken = self.ahead.union([(1, self.position)])
        taken.remove(first, last)
        self.position = min(self.position, first - 1)
        self.ahead = RangeSet(r for r in taken if r[0] > self.position)

    def pass_over(self, first: int, last: int) -> None:
        """Count the expired events of a range that the group is about to take, as far as it has not."""
        self.passed += count_of(self.untaken(first, last))

    def seek(self, position: int, reset: str, token: str) -> None:
        """Move the group: it takes every event after ``position``, whatever it has taken, and has another beginning."""
        self.position = position
        self.ahead, self.lost, self.removed = RangeSet(), RangeSet(), RangeSet()
        self.is_sought = True
        self.reset = reset or self.reset
        self.token = token

    def taken_count(self) -> int:
        """Return how many events the group has taken, those before its beginning included."""
        return self.position + self.ahead.size()

    def taken(self) -> GroupTaken:
        """Return what the group has taken, as plain values: its position and the ranges ahead of it."""
        return self.position, list(self.ahead)

    def merge(self, position: int, ahead: Iterable[Range]) -> None:
        """Note what another source says that the group has `taken`."""
        before = self.position, list(self.ahead)
        self.count_as_taken(1, position)
        for first, last in ahead:
            self.count_as_taken(first, last)
        if (self.is_sought or self.is_automatic) and (self.position, list(self.ahead)) != before:
            self.is_sought, self.has_planned, self.idle_ms = False, self.is_automatic, 0

    def image(self) -> GroupImage:
        """Return the group as plain values."""
        if details := self._details():
            return (*self.taken(), list(self.lost), details)
        return (*self.taken(), list(self.lost)) if self.lost else self.taken()

    def _details(self) -> GroupDetails:
        """Return what only some groups have."""
        details: GroupDetails = {}
        if self.removed:
            details["expired"] = list(self.removed)
        if self.is_automatic:
            details["auto"] = True
        if self.has_planned:
            details["planned"] = True
        if self.idle_ms:
            details["idle"] = self.idle_ms
        if self.is_sought:
            details["sought"] = True
        if self.reset:
            details["reset"] = self.reset
        if self.token:
            details["token"] = self.token
        if self.passed:
            details["passed"] = self.passed
        return details

    @classmethod
    def of(cls, image: GroupImage) -> GroupState:
        """Return the group that `image` returned; any other values raise one of `NONSENSE`."""
        position, ahead, *more = image
        lost = cast("Ranges", more[0]) if more else []
        group = cls(position, RangeSet((a, b) for a, b in ahead), RangeSet((a, b) for a, b in lost))
        if len(more) > 1:
            details = cast("GroupDetails", more[1])
            group.removed = RangeSet((a, b) for a, b in details.get("expired", ()))
            group.is_automatic = bool(details.get("auto"))
            group.has_planned = bool(details.get("planned"))
            group.idle_ms = int(details.get("idle", 0))
            group.is_sought = bool(details.get("sought"))
            group.reset = str(details.get("reset", ""))
            group.token = str(details.get("token", ""))
            group.passed = int(details.get("passed", 0))
        return group
