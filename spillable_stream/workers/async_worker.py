"""The worker for asyncio, with the same words."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from spillable_stream.channel.stats import WorkerStats
from spillable_stream.errors import WorkerTimeoutError
from spillable_stream.quantities import Duration
from spillable_stream.workers.config import function_name
from spillable_stream.workers.worker import Worker

__all__ = ["AsyncWorker", "CoroutineCall"]


class CoroutineCall:
    """Calls a coroutine function in an event loop, from a worker's thread, which waits for it.

    Args:
        function: the coroutine function.
        timeout_seconds: how long a call may take before it is cancelled; None for as long as it takes.
    """

    def __init__(self, function: Callable[[Any], Awaitable[object]], timeout_seconds: float | None) -> None:
        self._function = function
        self._timeout_seconds = timeout_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[concurrent.futures.Future[None]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()  # of both: no call begins unseen by a cancel
        self.__qualname__ = function_name(function)  # for messages

    def begin(self) -> None:
        """Use the running event loop from now on."""
        self._loop, self._is_cancelled = asyncio.get_running_loop(), False

    def __call__(self, events: Any) -> None:
        """Call the function and wait until it is done; raises what it raises, and `CancelledError` after a cancel."""
        assert self._loop is not None
        with self._lock:
            if self._is_cancelled:
                raise concurrent.futures.CancelledError
            call = asyncio.run_coroutine_threadsafe(self._run(events), self._loop)
            self._under_way.add(call)
        try:
            call.result()
        finally:
            self._under_way.discard(call)

    async def _run(self, events: Any) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                await self._function(events)
        except TimeoutError:
            if not limit.expired():
                raise
            raise WorkerTimeoutError(
                f"{self.__qualname__} did not return within {self._timeout_seconds:g} s and was cancelled"
            ) from None

    def cancel(self) -> None:
        """Cancel the calls under way, and let no other begin."""
        with self._lock:
            self._is_cancelled = True
            calls = list(self._under_way)
        for call in calls:
            call.cancel()


class AsyncWorker:
    """Calls a coroutine function with the events of a group. Made by `Channel.async_worker`; one event loop's.

    Args:
        worker: the worker, whose function is ``call``.
        call: the coroutine function.
    """

    def __init__(self, worker: Worker, call: CoroutineCall) -> None:
        self.group: str = worker.group
        self._worker = worker
        self._call = call

    async def run(self, *, until_empty: bool = False, stop_timeout_seconds: Duration = 30.0) -> None:
        """Work until `stop` is called, the process gets SIGTERM, or this is cancelled.

        The arguments are those of `Worker.run`, and so is what it raises. A call that has not ended
        ``stop_timeout_seconds`` after that is cancelled.
        """
        self._call.begin()
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(
            asyncio.to_thread(self._worker.run, until_empty=until_empty, stop_timeout_seconds=stop_timeout_seconds)
        )
        obeys = False
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            loop.add_signal_handler(signal.SIGTERM, self.stop)
            obeys = True
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([running])
            raise
        finally:
            if obeys:
                loop.remove_signal_handler(signal.SIGTERM)
            self._call.cancel()

    def stop(self) -> None:
        """Let `run` end; returns at once."""
        self._worker.stop()

    def stats(self) -> WorkerStats:
        """Return what the worker does, and did."""
        return self._worker.stats()

    def close(self) -> None:
        """Stop, and close the dead-letter channel that was opened for a worker which never ran."""
        self._worker.close()
