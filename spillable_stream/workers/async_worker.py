"""The worker for asyncio, with the same words."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

from spillable_stream.channel.stats import WorkerStats
from spillable_stream.errors import OptionError, StorageError, WorkerTimeoutError
from spillable_stream.own_thread import in_own_thread
from spillable_stream.quantities import Duration
from spillable_stream.termination import calling_on_sigterm
from spillable_stream.workers.config import function_name
from spillable_stream.workers.verdicts import Retry
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
        self._tasks: set[asyncio.Task[Any]] = set()  # of the calls that the loop has begun; the loop's
        self._waited_for: set[concurrent.futures.Future[Exception | None]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()  # of both: no call begins unseen by a cancel
        self.__qualname__ = function_name(function)  # for messages

    def begin(self) -> None:
        """Use the running event loop from now on."""
        self._loop, self._is_cancelled = asyncio.get_running_loop(), False

    def __call__(self, events: Any) -> None:
        """Call the function and wait until it is done.

        Raises:
            Retry: somebody cancelled the call, or would have: the worker, or the end of the event loop. That is not the
                events' fault.
            Exception: what the function raises. A cancellation that it lets out by itself is one, too.
        """
        assert self._loop is not None
        with self._lock:
            if self._is_cancelled or self._loop.is_closed():
                raise Retry("its event loop makes no more calls")
            call = asyncio.run_coroutine_threadsafe(self._run(events), self._loop)
            self._waited_for.add(call)
        try:
            error = call.result()
        except concurrent.futures.CancelledError:
            raise Retry("the call was cancelled") from None
        finally:
            self._waited_for.discard(call)
        if error is not None:
            raise error

    async def _run(self, events: Any) -> Exception | None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_cancelled:
            raise asyncio.CancelledError
        self._tasks.add(task)
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                await self._function(events)
        except asyncio.CancelledError as e:
            if task.cancelling():
                raise
            return concurrent.futures.CancelledError(*e.args)  # raised here, it would cancel this task
        except TimeoutError:
            if not limit.expired():
                raise
            raise WorkerTimeoutError(
                f"{self.__qualname__} did not return within {self._timeout_seconds:g} s and was cancelled"
            ) from None
        finally:
            self._tasks.discard(task)
        return None

    def cancel(self) -> None:
        """Cancel the calls under way, and let no other begin. Threads still wait until theirs have ended."""
        assert self._loop is not None
        with self._lock:
            self._is_cancelled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def leave(self) -> None:
        """Cancel the calls under way, let no other begin, and let no thread wait any more."""
        with self._lock:
            self._is_cancelled = True
            calls = list(self._waited_for)
        for call in calls:
            call.cancel()


class AsyncWorker:
    """Calls a coroutine function with the events of a group. Created by `Channel.async_worker`; one event loop's.

    Args:
        worker: the worker, whose function is ``call``.
        call: the coroutine function.
    """

    def __new__(cls, *given: object, **_: object) -> Self:
        """Refuse a call that is not `Channel.async_worker`'s."""
        if not any(isinstance(value, CoroutineCall) for value in given):
            raise OptionError(
                "an asynchronous worker is created by channel.async_worker(group, function): call that, and not "
                "AsyncWorker(…)"
            )
        return super().__new__(cls)

    def __init__(self, worker: Worker, call: CoroutineCall) -> None:
        self.group: str = worker.group
        self._worker = worker
        self._call = call

    def __repr__(self) -> str:
        return f"Async{self._worker!r}"

    async def run(self, *, until_empty: bool = False, stop_timeout_seconds: Duration = 30.0) -> None:
        """Work until `stop` is called, the process gets SIGTERM, or this is cancelled.

        The arguments are those of `Worker.run`, and so is what it raises. A call that has not ended
        ``stop_timeout_seconds`` after that is cancelled. The group is free once it has ended, or 5 s later.
        """
        run = self._worker.begun(
            until_empty=until_empty, stop_timeout_seconds=stop_timeout_seconds, cancel=self._call.cancel
        )
        self._call.begin()
        try:
            with calling_on_sigterm(self.stop):
                try:
                    running = in_own_thread(run, f"worker-{self.group}-async")
                except StorageError:
                    self._worker.not_begun()
                    raise
                try:
                    await asyncio.shield(running)
                except asyncio.CancelledError:
                    self.stop()
                    await asyncio.wait([running])
                    raise
        finally:
            self._call.leave()

    def stop(self) -> None:
        """Let `run` end; returns at once."""
        self._worker.stop()

    def stats(self) -> WorkerStats:
        """Return what the worker does, and did."""
        return self._worker.stats()

    def close(self) -> None:
        """Do what `Worker.close` does, and raise what that raises."""
        self._worker.close()
