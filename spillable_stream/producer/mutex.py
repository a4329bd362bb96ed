"""The lock of a producer: cheap under contention, safe from interrupts, and never a self-deadlock."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from spillable_stream.errors import ProducerError

__all__ = ["Mutex", "runs_undivided"]

T = TypeVar("T")

_COLLISION_SECONDS = 0.00002
_MOST_TOOLS = 6  # of `sys.monitoring`


def runs_undivided() -> bool:
    """Tell whether code without a call, a loop or a new container runs undivided: no other thread comes in between.

    The interpreter lets other threads, signal handlers and finalizers run at such places only. A debugger, or another
    tool that hears of each line, lets them in anywhere; so does an interpreter without its global lock.
    """
    return sys.gettrace() is None and not _is_monitored() and getattr(sys, "_is_gil_enabled", _yes)()


def _is_monitored() -> bool:
    """Tell whether a tool uses `sys.monitoring`, which Python has from 3.12 on."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) is not None for number in range(_MOST_TOOLS))


def _yes() -> bool:
    return True


class Mutex:
    """A lock without handover: a thread that finds it taken sleeps briefly and tries again.

    A `threading.Lock` is handed to a waiting thread that does not have the interpreter, so the thread that does must
    wait in turn. From the first collision on, every send would switch threads. Moreover, a KeyboardInterrupt may land
    between acquiring such a lock and recording that we did. Here a single dictionary operation does both.

    A section that runs undivided (`runs_undivided`) need not take the lock: it is enough to see, in it, that `slot` is
    empty. Nobody is in a section then, and nobody enters one before its end.

    ``with mutex:`` is for threads that receive no interrupts; all others use `run`.

    Attributes:
        slot: the ID of the thread that holds it, under the key 0; empty while it is free.
        first: the IDs of threads with priority over all others.
        waiting: those of them that wait.
    """

    def __init__(self) -> None:
        self.slot: dict[int, int] = {}
        self.first: set[int] = set()
        self.waiting: set[int] = set()

    def run(self, section: Callable[[], T]) -> T:
        """Call a section of code with the lock held, and return its result. An interrupt may end it anywhere.

        Raises:
            ProducerError: this thread holds the lock already: a signal handler or a finalizer calls this.
        """
        self.refuse_twice()
        me = threading.get_ident()
        try:
            self.acquire()
            return section()
        finally:
            if self.slot and self.slot[0] == me:  # no call, so no interrupt, before the release
                del self.slot[0]

    def refuse_twice(self) -> None:
        """Refuse a thread that holds the lock already; raises what `run` raises."""
        if self._is_owned():
            raise ProducerError(
                "a producer was used inside of a call to it, by a signal handler or a finalizer (__del__); let another "
                "thread do that"
            )

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, and return True. The arguments are unused; `threading.Condition` expects them."""
        me = threading.get_ident()
        if me in self.first:
            self.waiting.add(me)
        while (self.waiting and me not in self.waiting) or self.slot.setdefault(0, me) != me:
            time.sleep(_COLLISION_SECONDS)
        self.waiting.discard(me)
        return True

    def release(self) -> None:
        """Release the lock."""
        del self.slot[0]

    def locked(self) -> bool:
        """Tell whether some thread holds the lock; `threading.Condition` expects it from Python 3.14 on."""
        return bool(self.slot)

    def is_mine(self) -> bool:
        """Tell whether this thread holds the lock."""
        return self.slot.get(0) == threading.get_ident()

    _is_owned = is_mine  # the name that `threading.Condition` uses

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
