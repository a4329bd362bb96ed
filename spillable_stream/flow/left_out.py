"""What optional channels miss: counted, and said in the log once a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spillable_stream.counted import counted
from spillable_stream.errors import ChannelFullError, PutTooLargeError
from spillable_stream.log_records import fields, log_of

__all__ = ["LeftOut"]

_log = log_of("spillable_stream.flow")

_PAUSE_MS = 60_000


class LeftOut:
    """Counts the events that the optional channels of a source did not get. Thread-safe.

    Args:
        source: the source.
        now_ms: tells the time, in milliseconds.

    Attributes:
        events: how many all of these channels together did not get.
    """

    def __init__(self, source: str, now_ms: Callable[[], int]) -> None:
        self._source = source
        self._now_ms = now_ms
        self._unsaid: dict[str, int] = {}
        self._said_ms: dict[str, int] = {}
        self._mutex = threading.Lock()
        self.events: int = 0

    def add(self, channel: str, events: int, error: Exception) -> None:
        """Count events that a channel did not get, and log them unless that was done within the last minute.

        Args:
            channel: the channel's name.
            events: how many events.
            error: why.
        """
        with self._mutex:
            self.events += events
            self._unsaid[channel] = self._unsaid.get(channel, 0) + events
            now, said = self._now_ms(), self._said_ms.get(channel)
            if said is not None and 0 <= now - said < _PAUSE_MS:
                return
            self._said_ms[channel] = now
            is_full = isinstance(error, ChannelFullError) and not isinstance(error, PutTooLargeError)
            self._say(channel, "it is full" if is_full else str(error))

    def close(self) -> None:
        """Log what was counted and not said."""
        with self._mutex:
            for channel in list(self._unsaid):
                self._say(channel, "for the reason above")

    def _say(self, channel: str, why: str) -> None:
        count = self._unsaid.pop(channel)
        _log.warning(
            "%s: the optional channel %s did not get %s: %s",
            self._source,
            channel,
            counted(count, "event"),
            why,
            extra=fields(component=self._source, count=count),
        )
