"""A place in a channel in the words of a person: ``earliest``, an ID, a time, or how long ago."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from spillable_stream.channel.seek_target import SeekTarget
from spillable_stream.errors import OptionError

__all__ = ["start_of"]

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


def start_of(words: str) -> SeekTarget:
    """Return where a read begins, or where a group is moved.

    Args:
        words: ``earliest``, ``latest``, a write-order ID, how long ago (``15m``, ``2 h``), or a time, as
            ``2026-11-25 14:30``; without a zone it is of this host's.

    Raises:
        OptionError: it is none of these.
    """
    text = words.strip()
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if re.fullmatch(r"[\d,_]+", text) and (digits := re.sub(r"\D", "", text)):
        return int(digits)
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)(?:\s+ago)?", text):
        try:
            return timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        except OverflowError:
            pass
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone() if moment.tzinfo is None else moment
    except (ValueError, OverflowError):
        raise OptionError(
            f"{words!r} is not a place in a channel: write earliest, latest, an ID, a time as 2026-11-25 14:30, or how "
            "long ago as 15m"
        ) from None
