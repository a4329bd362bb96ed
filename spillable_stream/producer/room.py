"""Who waits for room in a full buffer: first come, first served, lest a large event starve among small ones.

Room that becomes free is given to those who wait before anybody else may take it, to as many as there is room for. So
nobody waits for a thread that was given room and has not woken yet, and senders do not go in single file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Place", "RoomQueue", "Waiter"]


class Waiter:
    """A send that waits for room, of a thread or of anything else that can be woken.

    Args:
        size_bytes: how much room it needs.
        wake: called, the mutex held, when it has been given room; also without cause. False says that nobody is there
            any more.
        is_gone: tells that nobody is there any more; None of who would say so.
    """

    __slots__ = ("is_gone", "size_bytes", "wake")

    def __init__(
        self, size_bytes: int, wake: Callable[[], bool | None], is_gone: Callable[[], bool] | None = None
    ) -> None:
        self.size_bytes: int = size_bytes
        self.wake: Callable[[], bool | None] = wake
        self.is_gone: Callable[[], bool] | None = is_gone


class Place:
    """A place in the line for who can't sleep in it, such as a task of an event loop: it looks, and is woken.

    Args:
        wake: as of `Waiter`.
        is_gone: as of `Waiter`.

    Attributes:
        waiter: who waits in the line for it; None while nobody does.
    """

    def __init__(self, wake: Callable[[], bool | None], is_gone: Callable[[], bool]) -> None:
        self.wake = wake
        self.is_gone = is_gone
        self.waiter: Waiter | None = None


class RoomQueue:
    """A queue of waiters. The accumulator's mutex is held.

    What was given is only known by who is in `given`: so an interrupt, which may come after any call, loses no room as
    long as a waiter takes itself out of both, each by one operation of a dictionary.

    Args:
        batch_bytes: what each who is given room may take beside it, for a new batch; the last one beyond the bound.

    Attributes:
        waiters: who waits, in order.
        given: who was given room and has not taken it yet.
    """

    def __init__(self, batch_bytes: int = 0) -> None:
        self._batch_bytes = batch_bytes
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.given: dict[Waiter, None] = {}

    def given_bytes(self) -> int:
        """Return how much room was given to those who have not taken it yet, and may still do so."""
        for waiter in [w for w in self.given if w.is_gone is not None and w.is_gone()]:
            self.given.pop(waiter, None)
        return sum([waiter.size_bytes + self._batch_bytes for waiter in self.given]) if self.given else 0

    def give(self, free_bytes: int) -> None:
        """Give room to those who wait, in order, up to the first for whom there is not enough.

        Args:
            free_bytes: what nobody holds; what was given already is a part of it.
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
        """Wake all who wait: there will be no room for them."""
        for waiter in list(self.waiters):
            waiter.wake()
