"""Checks of what callers give, so that a wrong argument is named where it comes in, and not where it first fails."""

from __future__ import annotations

import os
import threading
from numbers import Real
from operator import index
from typing import SupportsIndex, cast

from spillable_stream.errors import OptionError

__all__ = ["path_text", "seconds", "whole_number"]


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return a whole number.

    Args:
        name: what the caller calls it.
        value: what was given.
        least: the least that it may be.

    Raises:
        OptionError: it is not an integer, or less.
    """
    is_number = type(value) is int or (isinstance(value, SupportsIndex) and not isinstance(value, bool))
    if not is_number or (found := index(cast(SupportsIndex, value))) < least:
        raise OptionError(f"{name} must be an integer, {least:,} or more, not {value!r}")
    return found


def seconds(name: str, value: object) -> float:
    """Return a time span in seconds, at most the longest that a thread can wait; a negative one is over.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)) or value != value:
        raise OptionError(f"{name} must be a number of seconds, not {value!r}")
    return float(min(value, threading.TIMEOUT_MAX))


def path_text(name: str, value: object) -> str:
    """Return a path as text.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it is neither a str nor an `os.PathLike` of one, or no file can have such a name.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise OptionError(f"{name} must be a path, as a str or a pathlib.Path, not {value!r}")
    try:
        is_possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise OptionError(f"{name} can't be {text!r}: no file can have this name")
    return text
