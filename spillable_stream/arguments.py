"""Checks of what callers give, so that a wrong argument is named where it comes in, and not where it first fails."""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from operator import index
from types import FunctionType, MethodType
from typing import Any, SupportsIndex, TypeVar, cast

from spillable_stream.errors import OptionError
from spillable_stream.quantities import (
    DURATION_RANGE,
    MILLISECONDS_RANGE,
    SIZE_RANGE,
    duration_seconds,
    milliseconds,
    size_bytes,
)
from spillable_stream.shown_value import shown

__all__ = [
    "flag",
    "function",
    "instance",
    "is_coroutine_function",
    "path_text",
    "require_resolvable",
    "seconds",
    "text",
    "timeout_seconds",
    "whole_bytes",
    "whole_milliseconds",
    "whole_number",
    "why_unresolvable",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_HOME = re.compile(r"~[^/]*")
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")


def whole_number(name: str, value: object, least: int | None = 1, most: int | None = None) -> int:
    """Return a whole number.

    Args:
        name: what the caller calls it.
        value: what was given.
        least: the least that it may be; None for no bound.
        most: the most that it may be; None for no bound. With it there is a ``least``.

    Raises:
        OptionError: it is not an integer, or out of bounds.
    """
    if type(value) is int or (isinstance(value, SupportsIndex) and not isinstance(value, bool)):
        found = index(value)
        if (least is None or found >= least) and (most is None or found <= most):
            return found
    bounds = "" if least is None else f", {least:,} or more" if most is None else f" from {least:,} to {most:,}"
    raise OptionError(f"{name} must be an integer{bounds}, not {shown(value)}")


def seconds(name: str, value: object) -> float:
    """Return a time span in seconds, at most the longest that a thread can wait.

    Args:
        name: what the caller calls it.
        value: what was given: a `Duration`, and `math.inf` for no limit.

    Raises:
        OptionError: it is none, or negative.
    """
    try:
        found = duration_seconds(value)
    except ValueError:
        raise OptionError(f"{name} must be {DURATION_RANGE}, or a timedelta, not {shown(value)}") from None
    if found < 0:
        raise OptionError(f"{name} must be 0 or more, not {shown(value)}; math.inf means no limit")
    return min(found, threading.TIMEOUT_MAX)


def timeout_seconds(value: object) -> float | None:
    """Return how long to wait, in seconds; None for as long as it takes.

    Args:
        value: what was given as ``timeout_seconds``.

    Raises:
        OptionError: it is none, or negative.
    """
    return None if value is None else seconds("timeout_seconds", value)


def whole_milliseconds(name: str, value: object, least: int) -> int:
    """Return a time span in milliseconds.

    Args:
        name: what the caller calls it.
        value: what was given: `Milliseconds`.
        least: the least that it may be; -1, which means no limit, or more.

    Raises:
        OptionError: it is not a time span, or less than that.
    """
    try:
        return whole_number(name, milliseconds(value), least)
    except OptionError:
        bounds = "or -1 for no limit" if least == -1 else f"{least} or more"
        raise OptionError(f"{name} must be {MILLISECONDS_RANGE}; {bounds}, not {shown(value)}") from None


def whole_bytes(name: str, value: object) -> int:
    """Return a size in bytes.

    Args:
        name: what the caller calls it.
        value: what was given: a `Size`.

    Raises:
        OptionError: it is not a size, or less than a byte.
    """
    try:
        return whole_number(name, size_bytes(value))
    except OptionError:
        raise OptionError(f"{name} must be {SIZE_RANGE}; 1 or more, not {shown(value)}") from None


def flag(name: str, value: object) -> bool:
    """Return a truth value.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it is neither True nor False: a text such as "false" would count as true.
    """
    if value is not True and value is not False:
        raise OptionError(f"{name} must be True or False, not {shown(value)}")
    return value


def text(name: str, value: object) -> str:
    """Return text.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it is not a str of valid Unicode.
    """
    try:
        is_valid = isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise OptionError(f"{name} must be a str of valid Unicode, not {shown(value)}")
    return cast(str, value)


def function(name: str, value: F) -> F:
    """Return what can be called, and is done when it returns.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it can't be called, or is a coroutine function.
    """
    if not callable(value):
        raise OptionError(f"{name} must be a function, or another callable, not {shown(value)}")
    if is_coroutine_function(value):
        raise OptionError(
            f"the {name} {shown(value)} is a coroutine function, which nobody would await: give a plain function"
        )
    return value


def is_coroutine_function(call: Any) -> bool:
    """Tell whether whatever is called returns a coroutine: a function, an object like one, or a `partial` of either."""
    if type(call) is FunctionType:  # as most are: a producer asks with each send
        return bool(call.__code__.co_flags & inspect.CO_COROUTINE)
    if type(call) is MethodType:
        return is_coroutine_function(call.__func__)
    if isinstance(call, partial):
        return is_coroutine_function(call.func)
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def instance(name: str, value: object, kind: type[T]) -> T:
    """Return an object of a class.

    Args:
        name: what the caller calls it.
        value: what was given.
        kind: the class.

    Raises:
        OptionError: it is of another class.
    """
    if not isinstance(value, kind):
        raise OptionError(f"{name} must be an instance of {kind.__name__}, not {shown(value)}")
    return value


def path_text(name: str, value: object) -> str:
    """Return a path as text.

    Args:
        name: what the caller calls it.
        value: what was given.

    Raises:
        OptionError: it is neither a str nor an `os.PathLike` of one, or empty, or no file can have such a name.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise OptionError(f"{name} must be a path, as a str or a pathlib.Path, not {shown(value)}")
    if not text:
        raise OptionError(f"{name} is empty: give a path")
    try:
        is_possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise OptionError(f"{name} can't be {shown(text)}: no file can have this name")
    return text


def why_unresolvable(path: str) -> str:
    """Return why a path leads nowhere as it is written; "" if it leads somewhere.

    One does not that begins with ``~`` or a variable, which only a shell replaces, unless it exists: a ``$`` further on
    is a letter like any other. Nor does a relative one if the working directory was removed.

    Args:
        path: the path.
    """
    begins = _HOME.match(path) or _VARIABLE.match(path)
    if begins is not None and not os.path.lexists(path):
        expand = "expanduser" if path[0] == "~" else "expandvars"
        return f"only a shell replaces {begins[0]}, so give os.path.{expand}({shown(path)})"
    if os.path.isabs(path):
        return ""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "it is relative, and the working directory was removed: change to another one, or give an absolute path"
    return ""


def require_resolvable(name: str, path: str) -> None:
    """Refuse a path that leads nowhere as it is written (`why_unresolvable`).

    Args:
        name: what the caller calls it.
        path: the path.

    Raises:
        OptionError: it is such a path.
    """
    if why := why_unresolvable(path):
        raise OptionError(f"{name} can't be {shown(path)}: {why}")
