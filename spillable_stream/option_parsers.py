"""Parsers of options: from a string or a value to a value of the option's type.

A parser takes any value: an integer may come as a string, from a file or from Spark. It raises one of `REFUSED` at what
it does not take; `parse_options` says what is allowed. Its annotations say which type a type checker asks of people,
and which type the value then has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spillable_stream import quantities
from spillable_stream.arguments import path_text, why_unresolvable
from spillable_stream.quantities import Duration, Milliseconds, Size

__all__ = [
    "MOST_DELAY_SECONDS",
    "REFUSED",
    "TooMuchError",
    "WrongValueError",
    "boolean",
    "columns",
    "delay",
    "directories",
    "directory",
    "directory_of_this_host",
    "duration",
    "duration_above_zero",
    "duration_of_a_second",
    "integer",
    "milliseconds",
    "mode",
    "not_empty",
    "offset",
    "one_of",
    "or_zero",
    "path",
    "power_of_two",
    "size",
    "timestamp",
]

REFUSED = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""What a parser raises at a value that it does not take."""

MOST_DELAY_SECONDS = 366 * 86_400
"""The longest delay of an event: a year."""

_MOST_SECONDS = 36_525 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_MILLISECONDS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class WrongValueError(ValueError):
    """A parser does not take a value, and can say why: the error's text."""


class TooMuchError(WrongValueError):
    """A parser takes such values, and none so large.

    Args:
        most: the largest, in words.
    """

    def __init__(self, most: str) -> None:
        super().__init__(f"the most is {most}")


def integer(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    """Return a parser of integers from ``low`` to ``high``."""

    def parse(value: int) -> int:
        if isinstance(value, bool) or (isinstance(value, float) and value % 1):
            raise ValueError
        number = int(str(value).replace("_", "")) if isinstance(value, str) else int(value)
        if number < low:
            raise ValueError
        if number > high:
            raise TooMuchError(f"{high:,}")
        return number

    return parse


def milliseconds(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    """Return a parser of time spans in milliseconds, from ``low`` to ``high``."""
    parse_integer = integer(low, high)

    def parse(value: Milliseconds) -> int:
        return parse_integer(quantities.milliseconds(value))

    return parse


def size(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    """Return a parser of sizes in bytes, from ``low`` to ``high``."""
    parse_integer = integer(low, high)

    def parse(value: Size) -> int:
        return parse_integer(quantities.size_bytes(value))

    return parse


def boolean(value: bool) -> bool:
    """Return a truth value."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a parser of some words, in any case."""

    def parse(value: Any) -> str:
        if str(value).lower() not in words:
            raise ValueError
        return str(value).lower()

    literal = f"Literal[{', '.join(map(json.dumps, words))}]"
    parse.__annotations__.update({"value": literal, "return": literal})
    return parse


def directories(value: str | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return different directories: a list of them, or text with commas between."""
    if isinstance(value, (bytes, os.PathLike)):
        raise ValueError
    given = [d for d in value.split(",") if d.strip()] if isinstance(value, str) else value
    found = [path(d) for d in (path_text("a directory", d).strip() for d in given) if d]
    if not found or len(set(found)) != len(found):
        raise ValueError
    return found


def columns(value: str | Sequence[str]) -> list[str]:
    """Return different names of columns: a list of them, or text with commas between."""
    found = value.split(",") if isinstance(value, str) else [str(v) for v in value]
    found = [name.strip() for name in found]
    if not all(found) or not found or len(set(found)) != len(found):
        raise ValueError
    return found


def mode(value: int | str) -> str:
    """Return the mode of a channel's files, as four octal digits."""
    text = f"{value:04o}" if type(value) is int else f"{int(str(value).removeprefix('0o'), 8):04o}"
    if text not in ("0700", "0750", "0770"):
        raise ValueError
    return text


def path(value: str | os.PathLike[str]) -> str:
    """Return a path that is not empty, as it is given."""
    text = path_text("a path", value)
    if why := why_unresolvable(text):
        raise WrongValueError(why)
    return text


def not_empty(value: str | os.PathLike[str]) -> str:
    """Return text that is not empty."""
    if not str(value):
        raise ValueError
    return str(value)


def directory(value: str | os.PathLike[str]) -> str:
    """Return a directory, absolute."""
    return os.path.abspath(path(value))


def directory_of_this_host(value: str | os.PathLike[str]) -> str:
    """Return a directory, absolute, that is not an address in a store."""
    if "://" in str(value):
        raise ValueError
    return directory(value)


def or_zero(low: int, parse_number: Callable[[Any], int]) -> Callable[[Any], int]:
    """Return a parser of the numbers of another one from ``low`` on, and of 0, which means none."""

    def parse(value: Any) -> int:
        number = parse_number(value)
        if 0 < number < low:
            raise ValueError
        return number

    parse.__annotations__.update(parse_number.__annotations__)
    return parse


_event_id = integer(0)


def offset(*words: str) -> Callable[[Any], str]:
    """Return a parser of write-order IDs, of offsets as Spark's progress shows them (JSON), and of some words."""

    def parse(value: int | str) -> str:
        text = str(value).strip()
        if text.startswith("{"):
            offset = json.loads(text)
            if type(offset["writeOrderId"]) is not int or not isinstance(offset.get("channel", ""), str):
                raise ValueError
            _event_id(offset["writeOrderId"])
        elif (text := text.lower()) not in words:
            if not (text.isascii() and text.isdecimal()):
                raise ValueError
            _event_id(text)
        return text

    return parse


def timestamp(value: datetime | int | str) -> int:
    """Return a point in time as microseconds since 1970, up to the year 9999."""
    if not isinstance(value, datetime):
        text = str(value).strip()
        if text.isascii() and text.isdecimal():
            milliseconds = int(text)
            if milliseconds > _MOST_MILLISECONDS:  # microseconds, or nanoseconds, by mistake
                raise TooMuchError(f"{_MOST_MILLISECONDS:,} ms, the end of the year 9999")
            return milliseconds * 1000
        value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError
    since: timedelta = value - _EPOCH
    return since // timedelta(microseconds=1)


def duration(value: Duration) -> float:
    """Return a time span in seconds, up to a century."""
    span = quantities.duration_seconds(value)
    if span < 0:
        raise ValueError
    if span > _MOST_SECONDS:
        raise TooMuchError(f"{_MOST_SECONDS:,} s, a century")
    return span


def delay(value: Duration) -> float:
    """Return a time span in seconds, up to a year: as long as an event may be delayed."""
    span = duration(value)
    if span > MOST_DELAY_SECONDS:
        raise TooMuchError(f"{MOST_DELAY_SECONDS:,} s, a year")
    return span


def duration_of_a_second(value: Duration) -> float:
    """Return a time span in seconds, of a second at least."""
    span = duration(value)
    if span < 1:
        raise ValueError
    return span


def duration_above_zero(value: Duration) -> float:
    """Return a time span in seconds, of a microsecond at least."""
    span = duration(value)
    if span < 1e-6:
        raise ValueError
    return span


def power_of_two(low: int, high: int) -> Callable[[Any], int]:
    """Return a parser of powers of two from ``low`` to ``high``."""
    parse_integer = integer(low, high)

    def parse(value: int) -> int:
        number = parse_integer(value)
        if number & number - 1:
            raise ValueError
        return number

    return parse
