"""What the function of a worker may raise to say what becomes of its events."""

from __future__ import annotations

from spillable_stream.arguments import seconds
from spillable_stream.quantities import Duration

__all__ = ["DeadLetter", "Drop", "Retry"]


class Retry(Exception):
    """Call the function again later with the same events. It is not their fault, so it doesn't count as an attempt.

    Args:
        reason: why, for the log.
        after: how long to wait, such as 30, in seconds, "5m", or a timedelta; by default the worker's backoff, which
            doubles.

    Raises:
        OptionError: ``after`` is negative, or not a time.
    """

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after_seconds: float | None = None if after is None else seconds("Retry(after=…)", after)


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
