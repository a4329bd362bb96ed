"""Makes the named tuples of every transaction in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

__all__ = ["NewTuple", "new_tuple"]

T = TypeVar("T", bound=tuple[Any, ...])


class NewTuple(Protocol):
    """Returns a tuple of a class."""

    def __call__(self, cls: type[T], values: Iterable[Any], /) -> T:
        """Return a tuple of ``cls`` with ``values``."""


new_tuple: NewTuple = tuple.__new__
"""Return a named tuple of its class and all of its values: `new_tuple(Position, (file_id, offset))`.

`Position(file_id, offset)` calls a function of Python's, which takes twice as long: a put makes a dozen of them.
Defaults do not apply here.
"""
