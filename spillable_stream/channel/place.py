"""Places in a channel as people type them: ``earliest``, ``latest``, a write-order ID, a time, or how long ago."""

from __future__ import annotations

from datetime import datetime, timedelta

from spillable_stream.channel.seek_target import SeekTarget, event_id
from spillable_stream.errors import OptionError
from spillable_stream.quantities import span_with_unit
from spillable_stream.shown_value import shown

__all__ = ["PLACES", "parse_end", "parse_place"]

PLACES = (
    "earliest, latest, a write-order ID, a time (2026-01-31T09:30, in the local zone unless it says one), or 15m ago"
)


def parse_place(text: str) -> SeekTarget:
    """Return the place that a text names.

    Args:
        text: "earliest", "latest", a write-order ID, an ISO 8601 time (of the local zone, if it names none), or how
            long ago: "90s", "15m", "2h", "7d", with or without "ago".

    Raises:
        OptionError: it names none.
    """
    word = text.strip()
    if word in ("earliest", "latest"):
        return "earliest" if word == "earliest" else "latest"
    if (wanted := event_id(word)) is not None:
        return wanted
    if isinstance(ago := span_with_unit(word.removesuffix("ago")), timedelta):
        return ago
    try:
        moment = datetime.fromisoformat(word)
        return moment if moment.utcoffset() is not None else moment.astimezone()
    except (ValueError, OverflowError):
        raise OptionError(f"{shown(text)} is not a place in a channel: give {PLACES}") from None


def parse_end(text: str) -> int | datetime | timedelta:
    """Return where a read ends: the last event's write-order ID, or a time before which events were put.

    Raises:
        OptionError: it names neither.
    """
    place = parse_place(text)
    if isinstance(place, int) and place < 1:
        raise OptionError(f"a read can't end at {shown(text)}: no event has that ID; give an ID from 1 on, or a time")
    if isinstance(place, int | datetime | timedelta):
        return place
    raise OptionError(f"a read can't end at {shown(text)}: give a write-order ID, a time, or 15m ago")
