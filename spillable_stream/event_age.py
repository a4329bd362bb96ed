"""How old an event is, by the wall clock."""

from __future__ import annotations

import time

__all__ = ["age_seconds"]


def age_seconds(put_time_us: int | None) -> float | None:
    """Return how long ago an event was put, in seconds; None if that is not known, 0 if the clock was set back since.

    Args:
        put_time_us: when it was put (`Contents.put_at_us`), in microseconds since 1970; None if that is not known.
    """
    return None if put_time_us is None else max(0.0, time.time() - put_time_us / 1e6)
