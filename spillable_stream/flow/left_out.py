"""What optional channels miss: counted, and said in the log once a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from spillable_stream.counted import counted
from spillable_stream.errors import ChannelFullError, PutTooLargeError
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["LeftOut"]

_log = log_of("spillable_stream.flow")

_PAUSE_MS = 60_000


def _started_timer(seconds: float, call: Callable[[], None]) -> threading.Timer | None:
    """Return a timer that makes a call in its own thread; None where the process can have no more threads."""
    timer = threading.Timer(seconds, call)
    timer.daemon, timer.name = True, "flow-left-out"
    with suppress(NoThreadError):
        start_thread(timer)
        return timer
    return None


class LeftOut:
    """Counts the events that the optional channels of a source did not get. Thread-safe.

    Each channel is named at once, and then once a minute for what it missed meanwhile, also if it misses no more.

    Args:
        source: the source.
        now_ms: tells the time, in milliseconds.
        timer: makes a call after some seconds, and returns what can be cancelled; for tests.

    Attributes:
        events: how many all of these channels together did not get.
    """

    def __init__(
        self,
        source: str,
        now_ms: Callable[[], int],
        timer: Callable[[float, Callable[[], None]], threading.Timer | None] = _started_timer,
    ) -> None:
        self._source = source
        self._now_ms = now_ms
        self._start_timer = timer
        self._timer: threading.Timer | None = None
        self._unsaid: dict[str, int] = {}
        self._whys: dict[str, str] = {}
        self._said_ms: dict[str, int] = {}
        self._is_closed = False
        self._mutex = threading.Lock()
        self.events: int = 0

    def add(self, channel: str, events: int, error: Exception) -> None:
        """Count events that a channel did not get, and log them unless that was done within the last minute."""
        is_full = isinstance(error, ChannelFullError) and not isinstance(error, PutTooLargeError)
        with self._mutex:
            self.events += events
            self._unsaid[channel] = self._unsaid.get(channel, 0) + events
            self._whys[channel] = "it is full" if is_full else str(error)
            now, said = self._now_ms(), self._said_ms.get(channel)
            if self._is_closed or said is None or not 0 <= now - said < _PAUSE_MS:
                self._say(channel, now)
            elif self._timer is None:
                self._timer = self._start_timer(_PAUSE_MS / 1000, self._say_all)

    def _say_all(self) -> None:
        with self._mutex:
            self._timer = None
            now = self._now_ms()
            for channel in list(self._unsaid):
                self._say(channel, now)

    def close(self) -> None:
        """Log what was counted and not said; what a put misses that ends later is logged at once."""
        with self._mutex:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._say_all()

    def _say(self, channel: str, now: int) -> None:
        self._said_ms[channel] = now
        count = self._unsaid.pop(channel)
        _log.of(self._source, count=count).warning(
            "the optional channel %s did not get %s: %s", channel, counted(count, "event"), self._whys[channel]
        )
