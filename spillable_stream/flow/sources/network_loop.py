"""The event loop that all network sources of a process share, in a thread."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from spillable_stream.log_records import log_of
from spillable_stream.own_thread import start_thread

__all__ = ["LOOP", "NetworkLoop"]

_log = log_of("spillable_stream.flow")

_LOOP_THREAD = "flow-network"


class NetworkLoop:
    """A loop, which runs from the first source that needs it to the last. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()  # of that thread: nobody needs it any more

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs.

        Raises:
            StorageError: no thread can start.
        """
        with self._mutex:
            if self._loop is None:
                self._begin()
            assert self._loop is not None
            self._users += 1
            return self._loop

    def _begin(self) -> None:
        loop = asyncio.new_event_loop()
        ended = threading.Event()
        thread = threading.Thread(target=partial(_run, loop, ended), name=_LOOP_THREAD, daemon=True)
        try:
            start_thread(thread)
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread, self._ended = loop, thread, ended

    def release(self) -> None:
        """Use the loop no more; it ends with its last user."""
        with self._mutex:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._ended.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None


def _run(loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
    """Run a loop until nobody needs it: ``sys.exit()`` in a class of the user's ends its task, and no other source."""
    while not ended.is_set():
        try:
            loop.run_forever()
        except BaseException:
            _log.exception("a network source's task ends; the other ones continue")


LOOP = NetworkLoop()
"""The one of this process."""
