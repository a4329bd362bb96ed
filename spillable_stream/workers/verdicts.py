"""What the function of a worker may raise to say what becomes of its events."""

from __future__ import annotations

from datetime import timedelta

from spillable_stream.arguments import seconds
from spillable_stream.errors import OptionError

__all__ = ["DeadLetter", "Drop", "Retry"]


class Retry(Exception):
    """Call the function again later with the same events. It is not their fault, so it doesn't count as an attempt.

    Args:
        reason: why, for the log.
        after: how long to wait, in seconds or as a timedelta; by default the worker's backoff, which doubles.

    Raises:
        OptionError: ``after`` is negative, or not a time.
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        wait = after.total_seconds() if isinstance(after, timedelta) else after
        if wait is not None and (wait != wait or seconds("Retry(after=…)", wait) < 0):
            raise OptionError(f"Retry(after=…) must be at least 0 seconds, not {after!r}")
        self.after_seconds: float | None = wait


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
