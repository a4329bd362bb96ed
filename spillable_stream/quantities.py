"""Time spans and sizes as users say them: a number, or a text of one, or with a unit.

Options, files and calls take the same ones. A number has the unit of whatever it is given to, also as a text: what
comes from a file, a variable of the environment or Spark is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from numbers import Real
from typing import TypeGuard

__all__ = [
    "DURATION_RANGE",
    "MILLISECONDS_RANGE",
    "SIZE_RANGE",
    "Duration",
    "Milliseconds",
    "Size",
    "duration_seconds",
    "is_number",
    "milliseconds",
    "size_bytes",
    "span_with_unit",
    "whole_seconds",
]

Duration = float | str | timedelta
"""A time span: a number of seconds, a text such as ``"30"``, ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"`` or ``"7d"``, or
a timedelta."""

Milliseconds = int | str | timedelta
"""A time span: a number of milliseconds, or what `Duration` has; so a text without a unit is one of milliseconds."""

Size = int | str
"""A size: a number of bytes, or a text such as ``"4096"``, ``"64KiB"``, ``"64MiB"`` or ``"2GiB"``."""

_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}

DURATION_RANGE = "seconds, or a number with ms, s, m, h or d"
MILLISECONDS_RANGE = "milliseconds, or a number with ms, s, m, h or d"
SIZE_RANGE = "bytes, or a number with KiB, MiB, GiB or TiB"


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a real number, of Python or NumPy, and no truth value."""
    is_span = type(value).__name__ == "timedelta64"  # NumPy's, of any unit, says that it is an integer
    return isinstance(value, Real) and not isinstance(value, bool) and not is_span


def duration_seconds(value: object) -> float:
    """Return a time span in seconds, which may be negative or infinite.

    Args:
        value: a `Duration`, or a text of a number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        found = _with_unit(value, _TIME_UNITS)
        value = float(value) if found is None else found
    if not is_number(value) or value != value:
        raise ValueError
    try:
        return float(value)
    except OverflowError:  # of an integer, which may be larger than any float
        return math.inf if value > 0 else -math.inf


def span_with_unit(value: object) -> object:
    """Return a text with a unit as a time span; anything else as it is.

    Args:
        value: a text such as ``"15m"``, or anything else.
    """
    found = _with_unit(value, _TIME_UNITS) if isinstance(value, str) else None
    with suppress(OverflowError):  # longer than any time span
        return value if found is None else timedelta(seconds=found)
    return value


def milliseconds(value: object) -> object:
    """Return a time span in milliseconds, of one with a unit to the nearest; anything else as it is.

    Args:
        value: `Milliseconds`, or anything else.
    """
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    return _whole(value, _TIME_UNITS, 1000)


def whole_seconds(value: object) -> object:
    """Return a text with a unit that is whole seconds as these; anything else as it is.

    Args:
        value: a text such as ``"5m"``, or anything else.
    """
    found = _with_unit(value, _TIME_UNITS) if isinstance(value, str) else None
    found = None if found is None else round(found, 6)  # 1.15 m is 68.99999999999999 s
    return value if found is None or not found.is_integer() else int(found)


def size_bytes(value: object) -> object:
    """Return a size in bytes, of one with a unit to the nearest; anything else as it is.

    Args:
        value: a `Size`, or anything else.
    """
    return _whole(value, _SIZE_UNITS, 1)


def _whole(value: object, units: Mapping[str, float], per_unit: int) -> object:
    """Return a text of a whole number, or of a number with a unit, as a whole number; anything else as it is."""
    if not isinstance(value, str):
        return value
    found = _with_unit(value, units)
    with suppress(OverflowError, ValueError):  # larger than any number can say, or no number
        return int(value.replace("_", "")) if found is None else round(found * per_unit)
    return value


def _with_unit(text: str, units: Mapping[str, float]) -> float | None:
    """Return a number times its unit; None for a text that is no such thing."""
    text = text.strip().lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = units.get(text[len(number) :].strip())
    if unit is None or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    return float(number) * unit
