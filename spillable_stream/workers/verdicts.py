"""What the function of a worker may raise to say what becomes of its events."""

from __future__ import annotations

from datetime import timedelta
from numbers import Real

__all__ = ["DeadLetter", "Drop", "Retry"]


class Retry(Exception):
    """Call the function again later with the same events. It is not their fault, so it doesn't count as an attempt.

    Args:
        reason: why, for the log.
        after: how long to wait, in seconds or as a timedelta; by default the worker's backoff, which doubles.

    Raises:
        TypeError: ``after`` is not a time span.
        ValueError: it is negative.
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, Real)):
            raise TypeError(f"Retry(after=…) must be seconds or a timedelta, not {after!r}")
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"Retry(after=…) must be at least 0 seconds, not {after!r}")
        self.after_seconds: float | None = seconds


class Drop(Exception):
    """Take the events, and do nothing more about them.

    Args:
        reason: why, for the log.
    """


class DeadLetter(Exception):
    """Put the events into the dead-letter channel now, without another attempt.

    Args:
        reason: why, for their headers.
    """
