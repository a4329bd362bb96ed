"""The lock of a producer: cheap when many threads want it, and no trap for a thread that has it already."""

from __future__ import annotations

import threading
import time

from spillable_stream.errors import ProducerError

__all__ = ["Mutex"]

_COLLISION_SECONDS = 0.00002
_SURELY_TWICE = 10_000  # looks, some 60 µs each


class Mutex:
    """A lock for sections that an interrupt may end anywhere.

    ::

        mutex.wait_turn()
        with mutex.lock:  # both in one instruction of the interpreter's: no interrupt comes in between
            mutex.owner = threading.get_ident()
            ...

    Who finds it taken sleeps and looks again. A lock that is waited for is handed over while another thread has the
    interpreter, which then must wait, too: from the first collision on, every send would switch threads.

    Attributes:
        lock: the lock itself.
        owner: the thread that was the last to say that it is inside, by its identifier.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner = 0

    def wait_turn(self) -> None:
        """Wait until nobody is inside.

        Raises:
            ProducerError: this thread itself is, of all: a signal handler or a finalizer came in between.
        """
        looks = 0
        while self.lock.locked():
            looks = looks + 1 if self.owner == threading.get_ident() else 0  # another may not have said so yet
            if looks > _SURELY_TWICE:
                raise ProducerError(
                    "a producer was used inside of a call to it, by a signal handler or a finalizer (__del__); let "
                    "another thread do that"
                )
            time.sleep(_COLLISION_SECONDS)
