"""The queue for room in a full buffer: first come, first served, so that small events can't starve a large one.

Freed room goes to waiting sends first, to as many as fit. A waiting send therefore never depends on another that was
given room but has not woken yet, and sends do not pass one at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Poller", "RoomQueue", "Waiter"]


class Waiter:
    """A send that waits for room, in a thread or in anything else that can be woken.

    Args:
        size_bytes: how much room it needs.
        wake: called with the mutex held when the send is given room, and possibly without cause. It returns False if
            the sender no longer exists.
        is_gone: tells whether the sender no longer exists; None if a sender always removes itself.
    """

    __slots__ = ("is_gone", "size_bytes", "wake")

    def __init__(
        self, size_bytes: int, wake: Callable[[], bool | None], is_gone: Callable[[], bool] | None = None
    ) -> None:
        self.size_bytes: int = size_bytes
        self.wake: Callable[[], bool | None] = wake
        self.is_gone: Callable[[], bool] | None = is_gone


class Poller:
    """A sender that can't block, such as a task of an event loop: it polls for room when it is woken.

    Args:
        wake: like that of `Waiter`.
        is_gone: like that of `Waiter`.

    Attributes:
        waiter: its waiter in the queue; None while it has none.
    """

    def __init__(self, wake: Callable[[], bool | None], is_gone: Callable[[], bool]) -> None:
        self.wake = wake
        self.is_gone = is_gone
        self.waiter: Waiter | None = None


class RoomQueue:
    """A queue of waiters. Every call needs the accumulator's mutex.

    The room given is derived from the waiters in `given`, never counted. An interrupt may come after any call. It loses
    no room, because a waiter removes itself from each dictionary with a single operation.

    Args:
        batch_bytes: how much more each waiter may use for a new batch. The last one may exceed the limit by it.

    Attributes:
        waiters: the waiters without room, in order.
        given: the waiters that were given room and have not used it yet.
    """

    def __init__(self, batch_bytes: int = 0) -> None:
        self._batch_bytes = batch_bytes
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.given: dict[Waiter, None] = {}

    def given_bytes(self) -> int:
        """Return the room, in bytes, that was given but not used yet; forget waiters whose senders no longer exist."""
        for waiter in [w for w in self.given if w.is_gone is not None and w.is_gone()]:
            self.given.pop(waiter, None)
        return sum([waiter.size_bytes + self._batch_bytes for waiter in self.given]) if self.given else 0

    def give(self, free_bytes: int) -> None:
        """Give room to waiters, in order, up to the first that does not fit.

        Args:
            free_bytes: the bytes that no batch holds, including room already given.
        """
        if not self.waiters:
            return
        left_bytes = free_bytes - self.given_bytes()
        while (first := next(iter(self.waiters), None)) is not None and first.size_bytes <= left_bytes:
            left_bytes -= first.size_bytes + self._batch_bytes
            self.given[first] = None
            self.waiters.pop(first, None)
            if first.wake() is False:
                self.given.pop(first, None)
                left_bytes += first.size_bytes + self._batch_bytes

    def wake_all(self) -> None:
        """Wake all waiters, because there will be no room for them."""
        for waiter in list(self.waiters):
            waiter.wake()
