"""A try to assemble what an agent would run, in a thread: a disk may hang, and a signal must not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from spillable_stream.call_threads import make
from spillable_stream.errors import SpillableError
from spillable_stream.flow.assembly import Begins
from spillable_stream.flow.closing import closes
from spillable_stream.flow.wired import Wired
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import start_thread

__all__ = ["Assembling"]

_log = log_of("spillable_stream.flow")

_LONG_SECONDS = 15.0  # as long as an agent waits for what it starts
_LAST_SECONDS = 1.0  # for which a drop waits: nearly all are over by then, and a stop has not failed


class Assembling:
    """A try that has begun.

    Args:
        name: the name of the channel or the agent for which it is made.
        under_way: what it does, for messages, as "the channel c1 is still being opened again".
        before: what the agent runs.
        assemble: returns what it would run instead, not started; says what it begins, as "the channel c1".

    Attributes:
        name: as given.
        before: what the agent ran when it began.

    Raises:
        StorageError: the process can have no more threads.
    """

    def __init__(self, name: str, under_way: str, before: Wired, assemble: Callable[[Begins], Wired]) -> None:
        self.name: str = name
        self.before: Wired = before
        self._under_way, self._at = under_way, ""
        self._done: Future[Wired] = Future()
        self._began, self._is_told = time.monotonic(), False
        self._given_up, self._closed = threading.Event(), threading.Event()
        call = partial(assemble, self._begins)
        start_thread(threading.Thread(target=make, args=(call, self._done), name=f"{name}-assemble", daemon=True))

    def _begins(self, component: str) -> None:
        """Note what is about to be built or opened; nothing is any more where it was given up, and no option stored."""
        if self._given_up.is_set():
            raise SpillableError(f"{self._under_way} and was given up before {component}")
        self._at = component

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._done.done()

    def wait(self, seconds: float) -> bool:
        """Wait until it is over, for some seconds at most, and tell whether it is."""
        wait([self._done], seconds)
        return self.is_over

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
                "%s after %g s%s; check its disk or its store",
                self._under_way,
                _LONG_SECONDS,
                f", at {self._at}" if self._at else "",
                extra=fields(component=self.name, seconds=_LONG_SECONDS),
            )
        return True

    def give_up(self) -> None:
        """Open nothing more, and close what it has opened as soon as it is over; something else may take its place."""
        self._given_up.set()
        self._done.add_done_callback(self._close)

    @property
    def is_closed(self) -> bool:
        """Whether what it had opened is closed, after `give_up` or `drop`, as far as that works."""
        return self._closed.is_set()

    def drop(self) -> bool:
        """Close what it has opened, and tell whether all of it is closed; if it is not over, as soon as that is."""
        if not self.hangs():
            wait([self._done], _LAST_SECONDS)
        if self.is_over:
            return self._close(self._done)
        self.give_up()
        _log.warning(
            "%s; what that opens is closed when it ends, and if the process ends before, what only memory has is lost",
            self._under_way,
            extra=fields(component=self.name),
        )
        return False

    def _close(self, done: Future[Wired]) -> bool:
        opened = {} if done.exception() is not None else done.result().without(self.before).channels
        are_closed = all([closes(name, one.channel.close) for name, one in opened.items()])
        self._closed.set()
        return are_closed
