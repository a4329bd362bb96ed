"""Makes the named tuples of every transaction in one call."""

from __future__ import annotations

__all__ = ["new_tuple"]


new_tuple = tuple.__new__
"""Return a named tuple of its class and all of its values: `new_tuple(Position, (file_id, offset))`.

`Position(file_id, offset)` calls a function of Python's, which takes twice as long: a put makes a dozen of them.
Defaults do not apply here.
"""
