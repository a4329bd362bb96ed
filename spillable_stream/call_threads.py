"""A few threads that make calls which block; where the process can have no more threads, those that are there make all.

An executor of Python's queues a call before it starts a thread for it. So a call whose thread can't be started has
failed for its caller, and is made later: what it puts would be put twice.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["CallThreads", "make", "settled"]

_T = TypeVar("_T")
_Calls = SimpleQueue[Callable[[], None] | None]


class CallThreads:
    """The threads, which start as they are needed, and end with the process at the latest.

    Args:
        most: how many there are at most.
        name: what their names begin with.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: _Calls = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        # Of one that is forgotten. At the end of the process they stay: an exit handler may begin a call yet.
        weakref.finalize(self, self._calls.put, None).atexit = False

    def begin(self, call: Callable[[], _T]) -> Future[_T]:
        """Begin a call in one of the threads, and return the future of its end.

        Raises:
            RuntimeError: there is no thread, and none can be started or none may be; or they were closed. The call is
                not made.
        """
        done: Future[_T] = Future()
        try:
            self.begin_for(done, call)
        except BaseException:  # an interrupt may come when a thread has the call
            done.cancel()
            raise
        return done

    def begin_for(self, done: Future[_T], call: Callable[[], _T]) -> None:
        """Do what `begin` does for a future that the caller has: after an interrupt, too, it can cancel the call.

        Args:
            done: the future of the call's end, which nobody has cancelled.
            call: the call.

        Raises:
            RuntimeError: as `begin` does.
        """
        with self._mutex:
            if self._is_closed:
                raise RuntimeError(f"the threads {self._name} were closed")
            work = partial(make, call, done)
            if self._idle.acquire(blocking=False) or not self._is_begun_by_another_one(work):
                self._calls.put(work)

    def _is_begun_by_another_one(self, work: Callable[[], None]) -> bool:
        """Start another thread with some work, and tell whether it has it; raises RuntimeError if there is none."""
        if self._most == 0:
            raise RuntimeError(f"{self._name} may have no thread")
        if len(self._threads) >= self._most:
            return False
        thread = threading.Thread(
            target=_work, args=([work], self._calls, self._idle), name=f"{self._name}_{len(self._threads)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            return False
        self._threads.append(thread)
        return True

    def begin_or_make(self, call: Callable[[], _T]) -> Future[_T]:
        """Do what `begin` does; where there is no thread, make the call in this one, and return when it has ended.

        What interrupts this thread is raised.
        """
        try:
            return self.begin(call)
        except RuntimeError:
            done: Future[_T] = Future()
            make(call, done)
            if (error := done.exception()) is not None and not isinstance(error, Exception):
                raise error from None
            return done

    def settled(self, calls: Sequence[Callable[[], _T]]) -> list[Future[_T]]:
        """Do in the threads what the function `settled` does."""
        return settled(self.begin_or_make, calls)

    def at_once(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
        """Make calls, the first one in this thread, and return their results in order when all have ended.

        Those for which there is no thread are made in this one, after the first. Raises what a call raises; an
        interrupt waits for none, and those that wait are not made.
        """
        if len(calls) == 1:
            return [calls[0]()]
        begun: dict[int, Future[_T]] = {}
        try:
            self._begin_all_but_first(calls, begun)
            try:
                results = {number: call() for number, call in enumerate(calls) if number not in begun}
            except Exception:
                wait(begun.values())
                raise
            wait(begun.values())
        except BaseException:
            for future in begun.values():
                future.cancel()
            raise
        return [results[number] if number in results else begun[number].result() for number in range(len(calls))]

    def _begin_all_but_first(self, calls: Sequence[Callable[[], _T]], begun: dict[int, Future[_T]]) -> None:
        """Begin calls but the first one, as far as there are threads; ``begun`` has each future before its call."""
        for number in range(1, len(calls)):
            begun[number] = Future()
            try:
                self.begin_for(begun[number], calls[number])
            except RuntimeError:
                del begun[number]
                return

    def close(self, timeout_seconds: float | None = None) -> None:
        """Let the calls that were begun end, and the threads with them.

        Args:
            timeout_seconds: how long that may take; None for any time. Later ones end when their calls do.
        """
        with self._mutex:
            self._is_closed = True
        self._calls.put(None)
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))


def settled(begin: Callable[[Callable[[], _T]], Future[_T]], calls: Sequence[Callable[[], _T]]) -> list[Future[_T]]:
    """Make calls, and return their futures in order when all have ended.

    What one raises does not hide what others did. An interrupt waits for none, and those that wait are not made.

    Args:
        begin: begins a call.
        calls: the calls.
    """
    begun: list[Future[_T]] = []
    try:
        for call in calls:
            begun.append(begin(call))
        wait(begun)
    except BaseException:
        for future in begun:
            future.cancel()
        raise
    return begun


def make(call: Callable[[], _T], done: Future[_T]) -> None:
    """Make a call in this thread, and tell a future how it ended, unless that was cancelled."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as e:
        done.set_exception(e)
    else:
        done.set_result(result)


def _work(first: list[Callable[[], None]], calls: _Calls, idle: threading.Semaphore) -> None:
    """Make calls, the one in the list first; an idle thread refers to none of them."""
    call: Callable[[], None] | None = first.pop()
    while call is not None:
        call()
        call = None
        try:
            call = calls.get_nowait()
        except Empty:
            idle.release()
            call = calls.get()
    calls.put(None)  # for the others
