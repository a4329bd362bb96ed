"""Looking again where other processes may change what is looked at: trouble counts if nothing moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Look", "looks"]

_LOOKS = 5

_Sight = TypeVar("_Sight")


class Look(Generic[_Sight]):
    """One look.

    Args:
        number: which one it is, from 1 on.
        sight: reads what changes with every change that the look could meet.

    Attributes:
        before: what that said when the look began.
    """

    def __init__(self, number: int, sight: Callable[[], _Sight]) -> None:
        self.number = number
        self.before = sight()
        self._sight = sight

    def is_unmoved(self) -> bool:
        """Tell whether nothing changed since the look began."""
        return self._sight() == self.before


def looks(sight: Callable[[], _Sight], most: int = _LOOKS) -> Iterator[Look[_Sight]]:
    """Yield looks until the caller believes one.

    Args:
        sight: reads what changes with every change that a look could meet.
        most: how many looks to take.
    """
    for number in range(1, most + 1):
        yield Look(number, sight)
