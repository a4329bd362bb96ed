"""When a delayed event is due, as users say it: after some seconds, or at a moment."""

from __future__ import annotations

import math
from datetime import datetime
from functools import lru_cache

import pyarrow as pa

from spillable_stream.errors import OptionError
from spillable_stream.option_names import named
from spillable_stream.option_parsers import MOST_DELAY_SECONDS
from spillable_stream.quantities import DURATION_RANGE, Duration, duration_seconds
from spillable_stream.shown_value import shown

__all__ = ["due_ms", "require_delays", "require_orderable"]


def require_delays(path: object, schema: pa.Schema | None, *, has_disk: bool) -> None:
    """Refuse to delay events in a channel where none can wait.

    Args:
        path: the channel.
        schema: the columns of a typed channel; None for an event channel.
        has_disk: whether the channel has a disk tier, or another channel delays the events.

    Raises:
        OptionError: there is no disk tier, and what `require_orderable` raises.
    """
    if not has_disk:
        capacity = named("overflowCapacity")
        raise OptionError(
            f"delayed events wait on disk, but {path} has no disk tier ({capacity} is 0); raise {capacity}. "
            "Nothing was put"
        )
    if schema is not None:
        require_orderable(schema, path)


def require_orderable(schema: pa.Schema, path: object) -> None:
    """Refuse to delay rows with a column that Arrow can't put in another order: due times would come to nothing.

    Raises:
        OptionError: there is such a column.
    """
    if name := _fixed_column(schema):
        raise OptionError(
            f"{path} can't delay rows: Arrow can't reorder its column {shown(name)}, {schema.field(name).type}; "
            "declare the column as string, binary or of its values' type. Nothing was put"
        )


@lru_cache(maxsize=64)
def _fixed_column(schema: pa.Schema) -> str:
    """Return the name of a column whose values can't be put in another order, such as views of texts; "" for none."""
    for column in schema:
        values = pa.nulls(1, column.type)
        try:
            values.take(pa.array([0], pa.int64()))
            values.filter(pa.array([True]))
        except pa.ArrowNotImplementedError:
            return str(column.name)
    return ""


def due_ms(deliver_after: Duration | None, deliver_at: datetime | None, now_ms: int) -> int:
    """Return when an event is due, in milliseconds since 1970; 0 for now.

    Args:
        deliver_after: how long from now; None if it is not given.
        deliver_at: a moment, with its time zone; None if it is not given.
        now_ms: the time, in milliseconds since 1970.

    Raises:
        OptionError: both are given; one is no such value; it is more than a year from now; or the clock says that it
            is before 1970, for which a channel has no number.
    """
    if deliver_after is None and deliver_at is None:
        return 0
    if deliver_after is not None and deliver_at is not None:
        raise OptionError("deliver_after and deliver_at are both given; give one of them. Nothing was put")
    delay_ms = _delay_ms(deliver_after) if deliver_after is not None else _moment_ms(deliver_at) - now_ms
    if delay_ms > MOST_DELAY_SECONDS * 1000:
        given = f"deliver_after = {deliver_after}" if deliver_at is None else f"until {deliver_at.isoformat()}"
        raise OptionError(f"an event waits at most a year ({MOST_DELAY_SECONDS:,} s), not {given}. Nothing was put")
    if delay_ms > 0 >= now_ms + delay_ms:
        raise OptionError("the clock of this host is before 1970: set it, and then delay events. Nothing was put")
    return now_ms + delay_ms if delay_ms > 0 else 0


def _delay_ms(given: object) -> int:
    try:
        seconds = duration_seconds(given)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise OptionError(
            f"deliver_after must be {DURATION_RANGE}, 0 or more, or a timedelta, not {shown(given)}. Nothing was put"
        )
    bounded = min(seconds, 2.0 * MOST_DELAY_SECONDS)
    return math.ceil(round(bounded * 1000, 3))  # 0.001 of a float is a bit more, or less


def _moment_ms(given: object) -> int:
    if not isinstance(given, datetime):
        raise OptionError(f"deliver_at is {shown(given)}; give a datetime with its time zone. Nothing was put")
    if given != given:  # of pandas
        raise OptionError("deliver_at is NaT, which is not a time; leave it out to deliver at once. Nothing was put")
    if given.utcoffset() is None:
        raise OptionError(
            f"deliver_at is {given.isoformat()}, which has no time zone; give it one, as "
            "datetime.now(timezone.utc) has. Nothing was put"
        )
    return math.ceil(round(given.timestamp() * 1000, 3))
