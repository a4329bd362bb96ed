"""What messages call an option: as the user of this process writes it.

A Python program gives ``keep_alive=…``. Spark's options, configuration files and the command line have ``keepAlive``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

__all__ = ["keyword_of", "name_as_in_files", "name_of", "named", "named_like", "nearest_name"]

_MOST_COMPARED = 200  # characters: several times as many as any name has
_as_keywords = True


@cache
def keyword_of(name: str) -> str:
    """Return the name of an option as a keyword argument."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def name_of(keyword: str) -> str:
    """Return the name of an option that has it in camelCase."""
    first, *rest = keyword.split("_")
    return first + "".join(map(str.capitalize, rest))


def named(option: str) -> str:
    """Return what to call an option in a message.

    Args:
        option: its name in camelCase, or its keyword.
    """
    return keyword_of(option) if _as_keywords else name_of(option)


def named_like(given: str, name: str) -> str:
    """Return what to call an option where one was given.

    Args:
        given: what was given, which may be written otherwise, or be a slip.
        name: the option's name, in the table.
    """
    if "_" in given:
        return keyword_of(name)
    return name if given != given.lower() or "_" in name else named(name)


def nearest_name(given: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return the known name that is most like another, for a message; "" if none is.

    Args:
        given: the name, which may be anything, and of any length.
        known: the names that there are.
        cutoff: how like they must be, from 0 to 1.
    """
    if len(given) > _MOST_COMPARED:  # like none, and a comparison would take seconds
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, known, 1, cutoff)), "")


def name_as_in_files() -> None:
    """Call options by their names in camelCase: this process gets them from Spark, a file or the command line."""
    global _as_keywords
    _as_keywords = False
