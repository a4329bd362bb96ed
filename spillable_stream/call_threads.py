"""A few threads that make calls which block; where the process can have no more threads, those that are there make all.

An executor of Python's queues a call before it starts a thread for it. So a call whose thread can't be started has
failed for its caller, and is made later: what it puts would be put twice.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["POLL_SECONDS", "CallThreads", "Work", "made", "make", "nothing", "settled", "wait_for"]

_T = TypeVar("_T")

POLL_SECONDS = 0.25
"""How long a wait may last in one piece: a signal that comes right before Python begins one is handled behind it."""

Work = Callable[[], Callable[[], object]]
"""Makes a call, and returns what tells its end to those who wait for it."""


class _Queue:
    """The calls that wait for a thread. It refers to no thread, so that these end as theirs are forgotten.

    Attributes:
        waiting: those that wait; None ends a thread.
        under_way: how many wait or are being made.
    """

    def __init__(self) -> None:
        self.waiting: SimpleQueue[Work | None] = SimpleQueue()
        self.under_way = 0
        self.mutex = threading.Lock()

    def work(self) -> None:
        """Make calls in this thread, which is free before anyone hears of a call's end; idle, it refers to none."""
        while (work := self.waiting.get()) is not None:
            tell = work()
            del work
            with self.mutex:
                self.under_way -= 1
            tell()
            del tell
        self.waiting.put(None)  # for the others


class CallThreads:
    """The threads, which start as they are needed, and end with the process at the latest.

    Args:
        most: how many there are at most.
        name: what their names begin with.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._queue = _Queue()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        # Of one that is forgotten. At the end of the process they stay: an exit handler may begin a call yet.
        weakref.finalize(self, self._queue.waiting.put, None).atexit = False

    def begin(self, call: Callable[[], _T]) -> Future[_T]:
        """Begin a call in one of the threads, and return the future of its end.

        The thread is free when that has the result: what the future calls then must not block.

        Raises:
            NoThreadError: there is no thread, and none can be started or none may be; or they were closed. The call is
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
            NoThreadError: as `begin` does.
        """
        self.begin_work(partial(made, call, done))

    def begin_work(self, work: Work) -> None:
        """Begin what tells its end by itself.

        Raises:
            NoThreadError: as `begin` does.
        """
        queue = self._queue
        if sys.is_finalizing():  # a finalizer makes the call: the threads never run again, and one may hold the mutex
            raise NoThreadError(f"the interpreter ends, and with it the threads {self._name}")
        with queue.mutex:
            if self._is_closed:
                raise NoThreadError(f"the threads {self._name} were closed")
            if queue.under_way >= len(self._threads):
                self._start_another()
            queue.under_way += 1
            queue.waiting.put(work)

    def _start_another(self) -> None:
        """Start another thread if one may be there; raises NoThreadError if there is none then."""
        if self._most == 0:
            raise NoThreadError(f"{self._name} may have no thread")
        if len(self._threads) >= self._most:
            return
        thread = threading.Thread(target=self._queue.work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            start_thread(thread)
        except NoThreadError:
            if not self._threads:
                raise
            return
        self._threads.append(thread)

    def begin_or_make(self, done: Future[_T], call: Callable[[], _T]) -> None:
        """Do what `begin_for` does; where there is no thread, make the call in this one, and return when it has ended.

        What interrupts this thread is raised.
        """
        try:
            self.begin_for(done, call)
        except NoThreadError:
            make(call, done)
            if (error := done.exception()) is not None and not isinstance(error, Exception):
                raise error from None

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
                wait_for(begun.values())
                raise
            wait_for(begun.values())
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
            except NoThreadError:
                del begun[number]
                return

    def close(self, timeout_seconds: float | None = None) -> None:
        """Let the calls that were begun end, and the threads with them.

        Args:
            timeout_seconds: how long that may take; None for any time. Later ones end when their calls do.
        """
        with self._queue.mutex:
            self._is_closed = True
        self._queue.waiting.put(None)
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))


def settled(
    begin: Callable[[Future[_T], Callable[[], _T]], object], calls: Sequence[Callable[[], _T]]
) -> list[Future[_T]]:
    """Make calls, and return their futures in order when all have ended.

    What one raises does not hide what others did. An interrupt waits for none, and those that wait are not made.

    Args:
        begin: begins a call, and tells a future how it ends.
        calls: the calls.
    """
    begun: list[Future[_T]] = [Future() for _ in calls]
    try:
        for done, call in zip(begun, calls, strict=True):
            begin(done, call)
        wait_for(begun)
    except BaseException:
        for done in begun:
            done.cancel()
        raise
    return begun


def wait_for(begun: Collection[Future[_T]]) -> None:
    """Wait until all these have ended; see `POLL_SECONDS`."""
    while wait(begun, POLL_SECONDS).not_done:
        pass


def make(call: Callable[[], _T], done: Future[_T]) -> None:
    """Make a call in this thread, and tell a future how it ended, unless that was cancelled."""
    made(call, done)()


def made(call: Callable[[], _T], done: Future[_T]) -> Callable[[], object]:
    """Make a call in this thread, unless its future was cancelled, and return what tells that how it ended."""
    if not done.set_running_or_notify_cancel():
        return nothing
    try:
        result = call()
    except BaseException as e:
        return partial(done.set_exception, e)
    return partial(done.set_result, result)


def nothing() -> None:
    """Tell nobody of a call's end: there was none."""
