"""Java's patterns of dates: Joda-Time's, which a text is read by, and those of escapes, which a time is written by."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["DAYS", "MONTHS", "JodaPattern", "time_zone"]

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_NUMBER = {"d": 2, "D": 3, "H": 2, "k": 2, "K": 2, "h": 2, "m": 2, "s": 2}  # how many digits at most
_TWO_DIGIT_YEARS_FROM = 1970
_ZONES = {
    "UTC": 0,
    "GMT": 0,
    "Z": 0,
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
}


def time_zone(name: str | None) -> tzinfo | None:
    """Return a time zone by its name; None, the host's, without one.

    Raises:
        OptionError: there is none of this name.
    """
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise OptionError(f"there is no time zone {shown(name)}; give one such as UTC or Europe/Berlin") from e


class _Field(NamedTuple):
    """A field of a pattern: its letter, and how often that stands there."""

    letter: str
    width: int


class JodaPattern:
    """Reads texts as times, as Joda-Time's ``DateTimeFormat.forPattern`` does.

    The letters y, Y, x, M, d, D, H, k, K, h, m, s, S, a, E, z and Z are supported, names are English, and two digits of
    a year mean 1970 to 2069. What a text does not say is that of 1 January 1970, 00:00; of a day without a year, of the
    year 2000.

    Args:
        pattern: the pattern, such as ``yyyy-MM-dd HH:mm:ss``.
        zone: the zone of times that name none; None for the host's.

    Raises:
        OptionError: the pattern has another letter, or an open quote.
    """

    def __init__(self, pattern: str, zone: tzinfo | None = None) -> None:
        self.pattern = pattern
        self._zone = zone
        self._fields: list[_Field] = []
        parts = list(_parts(pattern))
        written = []
        for i, part in enumerate(parts):
            if isinstance(part, str):
                written.append(re.escape(part))
                continue
            self._fields.append(part)
            following = parts[i + 1] if i + 1 < len(parts) else ""
            written.append(f"({self._read(part, is_followed=isinstance(following, _Field) and _is_number(following))})")
        self._regex = re.compile("".join(written), re.IGNORECASE)

    def _read(self, field: _Field, *, is_followed: bool) -> str:
        """Return the pattern of a field's text.

        Args:
            field: the field.
            is_followed: whether another number follows without anything between.
        """
        letter, count = field
        if letter in "yYx":
            if count == 2:
                return r"\d{2}" if is_followed else r"[+-]?\d{1,9}"
            return rf"\d{{{count}}}" if is_followed else r"[+-]?\d{1,9}"
        if letter == "M" and count > 2:
            return "|".join(sorted({*MONTHS, *(m[:3] for m in MONTHS)}, key=len, reverse=True))
        if letter == "E":
            return "|".join(sorted({*DAYS, *(d[:3] for d in DAYS)}, key=len, reverse=True))
        if letter == "a":
            return "am|pm"
        if letter == "S":
            return rf"\d{{1,{count}}}" if not is_followed else rf"\d{{{count}}}"
        if letter == "Z":
            return r"[A-Za-z]+/[A-Za-z_/+-]+|UTC|Z" if count > 2 else r"[+-]\d{2}:?(?:\d{2})?|Z"
        if letter == "z":
            return "|".join(_ZONES)
        if letter == "M":
            return r"\d{2}" if is_followed and count == 2 else r"\d{1,2}"
        if letter in _NUMBER:
            most = max(_NUMBER[letter], count)
            return rf"\d{{{count}}}" if is_followed else rf"\d{{1,{most}}}"
        raise OptionError(
            f"the pattern of times {shown(self.pattern)} has the letter {letter}, which is not supported; quote text"
        )

    def milliseconds(self, text: str | None) -> int | None:
        """Return the time that a text says, in milliseconds since 1970; None if it is no such time.

        Args:
            text: the text; None for no text.
        """
        match = self._regex.fullmatch(text) if text is not None else None
        if match is None:
            return None
        values = [(field.letter, field.width, match[i]) for i, field in enumerate(self._fields, 1)]
        try:
            return _milliseconds(values, self._zone)
        except (ValueError, OverflowError, OSError):  # there is no such day, or no such moment in the zone
            return None


def _parts(pattern: str) -> list[_Field | str]:
    found: list[_Field | str] = []
    for match in re.finditer(r"''|'((?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|[^A-Za-z']+|'", pattern):
        text = match[0]
        if match["letter"]:
            found.append(_Field(match["letter"], len(text)))
        elif text == "'":
            raise OptionError(f"the pattern of times {shown(pattern)} has a quote that does not end")
        elif match[1] is not None and text != "''":
            found.append(match[1].replace("''", "'"))
        else:
            found.append("'" if text == "''" else text)
    return found


def _is_number(field: _Field) -> bool:
    return field.letter in "yYxdDHkKhmsS" or (field.letter == "M" and field.width < 3)


def _milliseconds(values: list[tuple[str, int, str]], zone: tzinfo | None) -> int:
    year = month = day = day_of_year = None
    hour = half_hour = minute = second = milli = 0
    is_half, is_pm = False, False
    for letter, count, text in values:
        if letter in "yYx":
            year = int(text)
            if count == 2 and len(text) == 2:
                year += 1900 if year >= _TWO_DIGIT_YEARS_FROM - 1900 else 2000
        elif letter == "M":
            month = int(text) if count < 3 else _index(MONTHS, text)
        elif letter == "d":
            day = int(text)
        elif letter == "D":
            day_of_year = int(text)
        elif letter in "Hk":
            hour = _within(int(text), 0 if letter == "H" else 1, 24 if letter == "k" else 23) % 24
        elif letter in "Kh":
            is_half, half_hour = True, _within(int(text), 0 if letter == "K" else 1, 11 if letter == "K" else 12) % 12
        elif letter == "a":
            is_pm = text.lower() == "pm"
        elif letter == "m":
            minute = int(text)
        elif letter == "s":
            second = int(text)
        elif letter == "S":
            milli = int(text[:3].ljust(3, "0"))
        elif letter in "zZ":
            zone = _zone(text)
    if is_half:
        hour = half_hour + 12 * is_pm
    if year is None:
        year = 1970 if month is None and day is None else 2000
    if second > 59:
        raise ValueError(second)
    local = datetime(year, month or 1, day or 1, hour, minute, second, milli * 1000)
    if day_of_year is not None:
        local = local.replace(month=1, day=1) + timedelta(days=_within(day_of_year, 1, 366) - 1)
        if local.year != year:
            raise ValueError(day_of_year)
    return _instant(local, zone)


def _instant(local: datetime, zone: tzinfo | None) -> int:
    aware = local.replace(tzinfo=zone) if zone is not None else local.astimezone()
    utc = aware.astimezone(UTC)
    back = utc.astimezone(zone) if zone is not None else utc.astimezone()
    if back.replace(tzinfo=None) != local:
        raise ValueError("the clock was set forward over this time")
    return int((utc - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise ValueError(value)
    return value


def _index(names: tuple[str, ...], text: str) -> int:
    return next(i for i, name in enumerate(names, 1) if name[:3].lower() == text[:3].lower())


def _zone(text: str) -> tzinfo:
    upper = text.upper()
    if upper in _ZONES:
        return timezone(timedelta(hours=_ZONES[upper]))
    if text[0] in "+-":
        digits = text[1:].replace(":", "").ljust(4, "0")
        return timezone((1 if text[0] == "+" else -1) * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))
    try:
        return ZoneInfo(text)
    except KeyError as e:
        raise ValueError(text) from e
