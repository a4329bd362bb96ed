"""What messages call an option: as the user of this process writes it.

A Python program gives ``keep_alive=…``. Spark's options, configuration files and the command line have ``keepAlive``.
"""

from __future__ import annotations

from functools import cache

__all__ = ["keyword_of", "name_as_in_files", "name_as_keywords", "name_of", "named", "named_like"]

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


def name_as_in_files() -> None:
    """Call options by their names in camelCase: this process gets them from Spark, a file or the command line."""
    global _as_keywords
    _as_keywords = False


def name_as_keywords() -> None:
    """Call options as keyword arguments, as at first."""
    global _as_keywords
    _as_keywords = True
