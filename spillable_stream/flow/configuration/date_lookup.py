"""A time as Java's ``SimpleDateFormat`` writes it, for ``${date:FORMAT}`` in values."""

from __future__ import annotations

import re
from datetime import datetime

from spillable_stream.errors import OptionError
from spillable_stream.flow.java_dates import DAYS, MONTHS
from spillable_stream.shown_value import shown

__all__ = ["formatted"]

_PART = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|[^A-Za-z']+|'")


def formatted(pattern: str, when: datetime) -> str:
    """Return a time as Java's ``SimpleDateFormat`` writes it, with English names.

    Args:
        pattern: the pattern, such as ``yyyy-MM-dd``.
        when: the time, with its zone.

    Raises:
        OptionError: the pattern has a letter that is not supported, or an open quote.
    """
    written: list[str] = []
    for part in _PART.finditer(pattern):
        if part["letter"]:
            written.append(_written(pattern, part["letter"], len(part[0]), when))
        elif part[0] == "'":
            raise OptionError(f"the pattern of times {shown(pattern)} has a quote that does not end")
        else:
            text = part[0] if part["quoted"] is None else part["quoted"].replace("''", "'") or "'"
            written.append(text)
    return "".join(written)


def _written(pattern: str, letter: str, width: int, when: datetime) -> str:
    if letter in "yY":
        return f"{when.year % 100:02}" if width == 2 else f"{when.year:0{width}}"
    if letter == "M" and width > 2:
        return MONTHS[when.month - 1][: None if width > 3 else 3]
    if letter == "E":
        return DAYS[when.weekday()][: None if width > 3 else 3]
    if letter == "a":
        return "AM" if when.hour < 12 else "PM"
    if letter == "z":
        return when.tzname() or ""
    if letter in "ZX":
        offset = f"{when:%z}"
        return "Z" if letter == "X" and offset == "+0000" else offset
    numbers = {
        "M": when.month,
        "d": when.day,
        "D": when.timetuple().tm_yday,
        "H": when.hour,
        "k": when.hour or 24,
        "K": when.hour % 12,
        "h": when.hour % 12 or 12,
        "m": when.minute,
        "s": when.second,
        "S": when.microsecond // 1000,
        "u": when.isoweekday(),
    }
    if letter not in numbers:
        raise OptionError(
            f"the pattern of times {shown(pattern)} has the letter {letter}, which is not supported; put text into "
            "quotes"
        )
    return f"{numbers[letter]:0{width}}"
