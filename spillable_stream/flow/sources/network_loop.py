"""The event loop that all network sources of a process share, in a thread."""

from __future__ import annotations

import asyncio
import threading

from spillable_stream.own_thread import no_thread_error

__all__ = ["LOOP", "NetworkLoop"]

_LOOP_THREAD = "flow-network"


class NetworkLoop:
    """A loop, which runs from the first source that needs it to the last. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

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
        thread = threading.Thread(target=loop.run_forever, name=_LOOP_THREAD, daemon=True)
        try:
            thread.start()
        except BaseException as e:
            loop.close()
            if isinstance(e, RuntimeError):
                raise no_thread_error(_LOOP_THREAD, e) from e
            raise
        self._loop, self._thread = loop, thread

    def release(self) -> None:
        """Use the loop no more; it ends with its last user."""
        with self._mutex:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None


LOOP = NetworkLoop()
"""The one of this process."""
