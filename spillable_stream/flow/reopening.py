"""One try to open a failed channel of an agent again, with all that uses it: in a thread, since its disk may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from spillable_stream.call_threads import make
from spillable_stream.flow.closing import closes
from spillable_stream.flow.wired import Wired

__all__ = ["Reopening"]


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
        RuntimeError: the process can have no more threads.
    """

    def __init__(self, channel: str, before: Wired, assemble: Callable[[], Wired]) -> None:
        self.channel: str = channel
        self.before: Wired = before
        self._done: Future[Wired] = Future()
        threading.Thread(target=make, args=(assemble, self._done), name=f"{channel}-reopen", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._done.done()

    def result(self) -> Wired:
        """Return what the agent would run; raises what kept the channel or a component from it."""
        return self._done.result()

    def drop(self) -> None:
        """Close what it has opened; if it is not over, as soon as that is."""
        self._done.add_done_callback(self._close)

    def _close(self, done: Future[Wired]) -> None:
        if done.exception() is None:
            for name, one in done.result().without(self.before).channels.items():
                closes(name, one.channel.close)
