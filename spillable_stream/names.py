"""Names that come from outside: what each kind may be, in one place.

A group, a producer and a staged segment have files of their own, so their names become parts of paths. They come
from callers, from Spark, and from logs and checkpoints, which anybody may have written. `Layout` makes a path
only of a name that is allowed here.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NoReturn

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = [
    "APPLICATION",
    "LOCAL_OWNER",
    "NAME",
    "SPOOL_PREFIX",
    "check_group",
    "check_owner",
    "check_producer",
    "is_name",
    "parse_application",
    "parse_name",
]

LOCAL_OWNER = "local"
"""Whose a staged segment is that no Spark query owns, but a transaction of Python."""

NAME = "letters, digits, `-`, `_` and `.` (not first), at most 128 (240 bytes)"
APPLICATION = "a text of 1 to 1,024 bytes"

SPOOL_PREFIX = "spool-"
"""What the name begins with of the group that a spool's mover takes as, and of its producer."""

_NAME_LETTERS = 128
_NAME_BYTES = 240  # a file's name has at most 255, and the longest ending is ".position"
_APPLICATION_BYTES = 1024  # every data file begins with all of them
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


def is_name(value: object) -> bool:
    """Tell whether a group or a producer may have this name."""
    return isinstance(value, str) and _is_allowed(str.__str__(value))


@lru_cache(maxsize=256)  # every transaction asks
def _is_allowed(name: str) -> bool:
    return (
        0 < len(name) <= _NAME_LETTERS
        and not name.startswith(".")
        and all(c.isalnum() or c in "-_." for c in name)
        and len(name.encode()) <= _NAME_BYTES
    )


def parse_name(value: str) -> str:
    """Return the name of a group or a producer.

    Raises:
        ValueError: it is not allowed.
    """
    if not is_name(value):
        raise ValueError
    return str(value)


def check_group(value: object) -> str:
    """Return the name of a group.

    Raises:
        OptionError: it is not allowed.
    """
    return str(value) if is_name(value) else _refuse("group", value)


def check_producer(value: object) -> str:
    """Return the ID of a producer that has a name of its own.

    Raises:
        OptionError: it is not allowed.
    """
    return str(value) if is_name(value) else _refuse("producer_id", value)


def _refuse(what: str, value: object) -> NoReturn:
    raise OptionError(f"{what} must be {NAME}, not {shown(value)}{_mark_in(value)}")


def _mark_in(value: object) -> str:
    """Return what messages say of a mark in a name, such as an accent, which looks like a part of a letter."""
    if not isinstance(value, str) or (mark := next(filter(unicodedata.combining, value), "")) == "":
        return ""
    why = f", which has the mark {unicodedata.name(mark, f'U+{ord(mark):04X}')} behind a letter"
    if is_name(unicodedata.normalize("NFC", value)):
        why += ": write both as one letter (Unicode's form NFC)"
    return why


def check_owner(value: object) -> str:
    """Return whose a staged segment is: a Spark query's ID, or a name that this package made.

    Raises:
        OptionError: it is not allowed.
    """
    if not isinstance(value, str) or not _OWNER.match(value):
        raise OptionError(f"a query's ID must be letters, digits, - and _, at most 128, not {shown(value)}")
    return value


def parse_application(value: str) -> str:
    """Return a ``txnAppId``: it names no file, but every data file has it in its header.

    Raises:
        ValueError: it is not allowed.
    """
    text = str(value)
    if not 0 < len(text.encode()) <= _APPLICATION_BYTES:  # invalid Unicode raises here
        raise ValueError
    return text
