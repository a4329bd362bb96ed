"""Where a group, or a read, is told to begin: in a user's words, and as a position."""

from __future__ import annotations

import operator
import time
from datetime import UTC, datetime, timedelta
from typing import Literal, SupportsIndex

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.seeking import Choose, checked_position
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import OptionError
from spillable_stream.quantities import span_with_unit
from spillable_stream.shown_value import shown
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "SeekTarget",
    "TimeOrAge",
    "chosen_position",
    "event_id",
    "is_to_come",
    "shown_time",
    "time_of",
    "to_take_from",
]

TimeOrAge = datetime | timedelta | str
"""A time with a zone, or how long ago it was by the wall clock: a timedelta, or a text such as ``"15m"``."""

SeekTarget = Literal["earliest", "latest"] | SupportsIndex | TimeOrAge
"""The first kept event, the next one to come, a write-order ID (or its text), or a time: the first event since then."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_DIGITS = 19  # of an ID


def chosen_position(engine: Engine, to: SeekTarget) -> Choose:
    """Return what chooses the position before an event: the channel may change until it is needed.

    A time is looked up now. If events leave until the position is chosen, it is before the first one that is left.

    Raises:
        CorruptionError: the log can't be read where a time is looked up.
        OptionError: ``to`` is none of what it may be.
    """
    if isinstance(to, str) and to == "earliest":
        return lambda state: state.beginning() - 1
    if isinstance(to, str) and to == "latest":
        return lambda state: state.last_id
    if isinstance(moment := span_with_unit(to), datetime | timedelta):
        found = first_id_since(engine, time_of(moment))
        return lambda state: _kept(found, state) - 1
    if (wanted := event_id(to)) is not None:
        return lambda state: checked_position(wanted - 1, state, engine.path)
    raise OptionError(
        f"nothing in {engine.path} begins at {shown(to)}: give 'earliest', 'latest', a write-order ID, a datetime "
        "with a zone, or a time back from now, as '15m' or a timedelta"
    )


def to_take_from(engine: Engine, to: SeekTarget) -> Choose:
    """Return what `chosen_position` does, but refuse a time to come: a group would begin with what is put before that.

    Args:
        engine: the channel.
        to: the event that the group takes next.

    Raises:
        OptionError: ``to`` is a time to come, or what `chosen_position` refuses.
    """
    target = span_with_unit(to)
    if isinstance(target, datetime | timedelta) and is_to_come(time_us := time_of(target)):
        raise OptionError(
            f"a group can't begin at {shown_time(time_us)}, which is in the future: it would take events put before "
            "then. Give a time that has passed, or 'latest' for the next event"
        )
    return chosen_position(engine, to)


def is_to_come(time_us: int) -> bool:
    """Tell whether a time, in microseconds since 1970, is later than this host's clock."""
    return time_us > time.time_ns() // 1000


def shown_time(time_us: int) -> str:
    """Return a time, in microseconds since 1970, as messages say it."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:  # a datetime of another zone may be before the year 1 in UTC, or after 9999
        return f"{time_us / 1e6:,.0f} s since 1970"


def _kept(found: int, state: ChannelState) -> int:
    return min(max(found, state.first_kept), state.next_id)


def event_id(value: object) -> int | None:
    """Return a write-order ID that was given as an integer of any library, or a text of one; None for anything else."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # a bool of another library
        return None


def time_of(moment: datetime | timedelta) -> int:
    """Return a time in microseconds since 1970.

    Args:
        moment: a time, or how long ago it was.

    Raises:
        OptionError: a time without a zone, or one that would be in the future for being so long "ago".
    """
    if isinstance(moment, timedelta):
        if moment < timedelta(0):
            raise OptionError(
                f"a timedelta says how far back from now, and {shown(moment)} is negative: leave out its sign"
            )
        return time.time_ns() // 1000 - moment // _MICROSECOND
    if moment != moment:  # pandas' NaT
        raise OptionError(f"{shown(moment)} is not a time: give a datetime with a zone, or a timedelta back from now")
    if moment.utcoffset() is None:
        raise OptionError(
            f"{shown(moment)} is a time without a zone: give it one, as datetime.now(timezone.utc) has, or use "
            ".astimezone()"
        )
    return (moment - _EPOCH) // _MICROSECOND
