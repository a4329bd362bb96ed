"""What the end of something asks of a store: it waits for the answer, but not for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

from spillable_stream.interruptible import Begun, begun_or_made

__all__ = ["LAST_REQUEST_SECONDS", "LastRequests"]

LAST_REQUEST_SECONDS = 5.0
"""How long a close waits for an answer, to itself or a thread of its handle: a store that is away keeps none open."""


class LastRequests:
    """The last requests of a handle, or of what it gives up. Thread-safe.

    Where the store does not answer the first of them, the handle waits for no other one, until it does.
    """

    def __init__(self) -> None:
        self._unanswered: Begun[object] | None = None
        self._vain_until = 0.0  # monotonic: until when no other thread is waited for

    def have_ended(self, wait: Callable[[float], bool]) -> bool:
        """Wait for a thread of the handle that may be asking the store, and tell whether it has ended.

        Where one has not, the others that the same end waits for are given no more time.

        Args:
            wait: waits so many seconds at most, and tells whether the thread has ended.
        """
        if wait(0.0 if time.monotonic() < self._vain_until else self.seconds()):
            return True
        self._vain_until = time.monotonic() + LAST_REQUEST_SECONDS
        return False

    def seconds(self) -> float:
        """Return how long to wait for a thread of the handle that may be asking the store."""
        unanswered = self._unanswered
        return LAST_REQUEST_SECONDS if unanswered is None or unanswered.has_ended else 0.0

    def are_answered(self, ask: Callable[[], object]) -> bool:
        """Tell whether a call that asks the store has ended in time. Else it continues by itself, and may succeed yet.

        Args:
            ask: the call. What it raises in time is raised.
        """
        asked = partial(copy_context().run, partial(ask))  # with the blocks of `one_look` that this thread is in
        asking = begun_or_made(asked)
        if not asking.ends_within(self.seconds()):  # an interrupt says nothing of the store
            self._unanswered = asking
            return False
        asking.take()
        return True
