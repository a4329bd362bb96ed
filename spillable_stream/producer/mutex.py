"""The lock of a producer: cheap when many threads want it, safe from interrupts, and no trap for who has it already."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from spillable_stream.errors import ProducerError

__all__ = ["Mutex"]

T = TypeVar("T")

_COLLISION_SECONDS = 0.00002


class Mutex:
    """A lock that is not handed over: who finds it taken sleeps and looks again.

    A `threading.Lock` is handed to who waits for it while another thread has the interpreter, which must then wait:
    from the first collision on, every send would switch threads. And an interrupt may come when a lock was acquired and
    nobody has noted that yet. Here one operation of a dictionary takes the lock and says for whom.

    ``with mutex:`` is for threads to which no interrupt comes; all others use `run`.

    Attributes:
        slot: the thread that has it, under the key 0.
        first: threads that go before all others.
        waiting: those of them that wait.
    """

    def __init__(self) -> None:
        self.slot: dict[int, int] = {}
        self.first: set[int] = set()
        self.waiting: set[int] = set()

    def run(self, section: Callable[[], T]) -> T:
        """Call a section of code with the lock, which an interrupt may end anywhere.

        Raises:
            ProducerError: this thread has the lock: a signal handler or a finalizer came in between.
        """
        self.refuse_twice()
        me = threading.get_ident()
        try:
            self.acquire()
            return section()
        finally:
            if self.slot and self.slot[0] == me:  # no call, and so no interrupt, until it is free
                del self.slot[0]

    def refuse_twice(self) -> None:
        """Refuse a thread that has it; raises what `run` does."""
        if self._is_owned():
            raise ProducerError(
                "a producer was used inside of a call to it, by a signal handler or a finalizer (__del__); let another "
                "thread do that"
            )

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; the arguments are what `threading.Condition` knows of locks, and unused."""
        me = threading.get_ident()
        if me in self.first:
            self.waiting.add(me)
        while (self.waiting and me not in self.waiting) or self.slot.setdefault(0, me) != me:
            time.sleep(_COLLISION_SECONDS)
        self.waiting.discard(me)
        return True

    def release(self) -> None:
        """Give the lock back."""
        del self.slot[0]

    def is_mine(self) -> bool:
        """Tell whether this thread has it."""
        return self.slot.get(0) == threading.get_ident()

    _is_owned = is_mine  # as `threading.Condition` calls it

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
