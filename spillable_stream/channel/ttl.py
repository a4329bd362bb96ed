"""How long events count: a ttl as users say it, and as frames have it."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from spillable_stream.errors import OptionError

__all__ = ["MOST_TTL_US", "TimeToLive", "ttl_us"]

TimeToLive = float | timedelta
"""For how long an event counts after its commit: seconds, or a timedelta."""

MOST_TTL_US = 36_525 * 86_400 * 1_000_000
"""The longest ttl, in microseconds: a century."""

_MOST_SECONDS = MOST_TTL_US / 1_000_000
_LEAST_SECONDS = 1e-6


def ttl_us(ttl: TimeToLive | None) -> int:
    """Return a ttl in microseconds; 0 for None.

    Args:
        ttl: for how long events count.

    Raises:
        OptionError: it is no such time, less than a microsecond, or more than a century.
    """
    if ttl is None:
        return 0
    seconds: Any = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise OptionError(f"ttl must be seconds or a timedelta, not {ttl!r}; leave it out for events that never expire")
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise OptionError(
            f"ttl must be more than 0 and at most 100 years, not {ttl!r}: leave it out for events that never expire"
        )
    return max(1, round(seconds * 1_000_000))
