"""What keeps the other threads of a handle away while one changes what the handle knows of a log in a store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from threading import get_ident

from spillable_stream.errors import LockTimeoutError, TransactionStateError
from spillable_stream.objects.location import Location

__all__ = ["HandleLock"]


class HandleLock:
    """A lock of one handle's threads. Nothing keeps other handles away.

    Args:
        location: what users call the channel.
        timeout_seconds: how long a look waits for it.
    """

    def __init__(self, location: Location, timeout_seconds: float) -> None:
        self._location = location
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._holder = 0  # the thread that has it
        self._had: list[bool] = []  # whether its block has to release it

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return self._holder == get_ident()

    @contextlib.contextmanager
    def held(self, timeout_seconds: float, prepare: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Have it within the block.

        Args:
            timeout_seconds: how long to wait for it.
            prepare: called with it, before the block; its errors are the caller's.

        Raises:
            LockTimeoutError: another thread had it for too long.
            TransactionStateError: this thread has it.
        """
        if self.is_mine:
            raise TransactionStateError(
                f"this thread commits to {self._location} already: no call may start inside another"
            )
        had = list[bool]()
        try:
            had.extend(map(self._lock.acquire, (True,), (timeout_seconds,)))  # one call: no interrupt comes in between
            if not had[0]:
                raise LockTimeoutError(
                    f"another thread has been committing to {self._location} for more than {timeout_seconds:g} s; the "
                    "store may be slow, or not answer"
                )
            self._had = had
            self._holder = get_ident()
            prepare()
            yield
        finally:
            if had and had[0]:
                self._holder = 0
                self._lock.release()

    def let_go(self) -> None:
        """Release it if this thread still has it, whose call has ended (`ActiveCalls.let_go`)."""
        if self.is_mine:
            self._had[0] = False  # whenever that block ends, it finds nothing to release
            self._holder = 0
            self._lock.release()

    @contextlib.contextmanager
    def had(self) -> Iterator[None]:
        """Have it within the block, also where this thread has it already; raises `LockTimeoutError`."""
        if self.is_mine:
            yield
            return
        with self.held(self._timeout_seconds):
            yield

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until no other thread has it, but not for longer than this, and tell whether none has."""
        if self.is_mine:
            return True
        with contextlib.suppress(LockTimeoutError), self.held(timeout_seconds):
            return True
        return False
