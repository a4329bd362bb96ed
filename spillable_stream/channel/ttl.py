"""How long events count: a ttl as users say it, and as frames have it."""

from __future__ import annotations

from spillable_stream.errors import OptionError
from spillable_stream.quantities import DURATION_RANGE, Duration, duration_seconds
from spillable_stream.shown_value import shown

__all__ = ["MOST_TTL_US", "ttl_left_us", "ttl_us"]

MOST_TTL_US = 36_525 * 86_400 * 1_000_000
"""The longest ttl, in microseconds: a century."""

_MOST_SECONDS = MOST_TTL_US / 1_000_000
_LEAST_SECONDS = 1e-6


def ttl_us(ttl: Duration | None) -> int:
    """Return a ttl in microseconds; 0 for None.

    Args:
        ttl: for how long events count.

    Raises:
        OptionError: it is not a time, less than a microsecond, or more than a century.
    """
    if ttl is None:
        return 0
    try:
        seconds = duration_seconds(ttl)
    except ValueError:
        raise OptionError(
            f"ttl must be {DURATION_RANGE}, or a timedelta, not {shown(ttl)}; leave it out for events that never expire"
        ) from None
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise OptionError(
            f"ttl must be more than 0 and at most 100 years, not {shown(ttl)}: leave it out for events that never "
            "expire"
        )
    return max(1, round(seconds * 1_000_000))


def ttl_left_us(time_us: int, expires_us: int, by_us: int) -> int:
    """Return what is left of the ttl of an event that comes to another channel, in microseconds; 0 for none.

    It is never more than it was: a clock may have been set back. Of an expired one a microsecond is left, so that it
    counts as expired where it goes.

    Args:
        time_us: when the event was committed, in microseconds since 1970.
        expires_us: when it expires; 0 for never.
        by_us: the time.
    """
    return min(max(1, expires_us - by_us), expires_us - time_us) if expires_us else 0
