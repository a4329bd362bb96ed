"""The tries to open failed channels of an agent again, with all that uses them: in threads, since a disk may hang.

There is one try at a time, since each is for what the agent runs as it begins. But one that hangs holds up no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from spillable_stream.call_threads import make
from spillable_stream.flow.closing import closes
from spillable_stream.flow.wired import Wired
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import start_thread

__all__ = ["Reopening", "Reopenings"]

_log = log_of("spillable_stream.flow")

_LONG_SECONDS = 15.0  # as long as an agent waits for what it starts


class Reopening:
    """A try that has begun.

    Args:
        channel: the channel's name.
        before: what the agent runs.
        assemble: returns what it would run instead, not started.

    Attributes:
        channel: the channel's name.
        before: what the agent ran when it began.

    Raises:
        StorageError: the process can have no more threads.
    """

    def __init__(self, channel: str, before: Wired, assemble: Callable[[], Wired]) -> None:
        self.channel: str = channel
        self.before: Wired = before
        self._done: Future[Wired] = Future()
        self._began, self._is_told = time.monotonic(), False
        start_thread(threading.Thread(target=make, args=(assemble, self._done), name=f"{channel}-reopen", daemon=True))

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._done.done()

    def result(self) -> Wired:
        """Return what the agent would run; raises what kept the channel or a component from it."""
        return self._done.result()

    def hangs(self) -> bool:
        """Tell whether it is under way and takes long; says so the first time."""
        if self.is_over or time.monotonic() - self._began < _LONG_SECONDS:
            return False
        if not self._is_told:
            self._is_told = True
            _log.error(
                "the channel %s is still being opened again after %g s; check its disk or its store",
                self.channel,
                _LONG_SECONDS,
                extra=fields(component=self.channel, seconds=_LONG_SECONDS),
            )
        return True

    def drop(self) -> bool:
        """Close what it has opened, and tell whether all of it is closed; if it is not over, as soon as that is."""
        if self.is_over:
            return self._close(self._done)
        self._done.add_done_callback(self._close)
        _log.warning(
            "the channel %s is still being opened again, and is closed when that ends; if the process ends before, "
            "what only its memory has is lost",
            self.channel,
            extra=fields(component=self.channel),
        )
        return False

    def _close(self, done: Future[Wired]) -> bool:
        if done.exception() is not None:
            return True
        opened = done.result().without(self.before).channels
        return all([closes(name, one.channel.close) for name, one in opened.items()])


class Reopenings:
    """The tries of an agent that are under way, or over and not looked at; one of a channel at most."""

    def __init__(self) -> None:
        self._tries: dict[str, Reopening] = {}

    @property
    def channels(self) -> frozenset[str]:
        """The names of the channels."""
        return frozenset(self._tries)

    def may_begin(self) -> bool:
        """Tell whether there may be another try: where all that are under way hang."""
        return all([attempt.hangs() for attempt in self._tries.values()])

    def begin(self, channel: str, before: Wired, assemble: Callable[[], Wired]) -> None:
        """Begin one; the arguments are those of `Reopening`, as is what it raises."""
        self._tries[channel] = Reopening(channel, before, assemble)

    def take_over(self) -> Reopening | None:
        """Return one that is over, and know it no more; None if there is none."""
        over = next((name for name, attempt in self._tries.items() if attempt.is_over), None)
        return None if over is None else self._tries.pop(over)

    def drop(self) -> bool:
        """Close what they have opened or will open, and tell whether all of it is closed."""
        return all([attempt.drop() for attempt in self._tries.values()])
