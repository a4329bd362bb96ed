"""Tracks which threads are inside a call, so that a close can wait for them and no thread waits for itself.

A signal handler, a finalizer (``__del__``), or a handler of warnings or log records interrupts whatever its thread
does. Inside a commit, a second commit would wait forever for the first, or see a half-changed state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import NoReturn, TypeVar

from spillable_stream.errors import LockTimeoutError, SpillableError, TransactionStateError

__all__ = ["LONG_SECONDS", "ActiveCalls"]

T = TypeVar("T")

_POLL_SECONDS = 0.001

LONG_SECONDS = 60.0
"""How long the end of an object waits at least for a call under way: a store that is away may keep one so long."""


class ActiveCalls:
    """The calls under way: at most one per thread.

    Hot paths inline `run`. One dictionary operation begins a call and one ends it, so an interrupt can't leave either
    half done.

    Args:
        of: the object that is called, for messages.

    Attributes:
        of: the object that is called, for messages.
        threads: the name of the call that each thread is inside, by thread ID.
        ended: whether `end` was called: callers must refuse new calls.
        let_go: releases what an interrupt has left to this thread at the end of a call. One that comes in the few
            lines of `contextlib` around a block leaves the block's lock held for as long as somebody keeps the error,
            as an interactive session does.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self.threads: dict[int, str] = {}
        self.ended: bool = False
        self._left: set[int] = set()
        self.let_go: Callable[[], object] = lambda: None

    def run(self, call: str, section: Callable[[], T]) -> T:
        """Run a section of code as a call under way.

        Args:
            call: its name, for messages.
            section: the code.

        Raises:
            TransactionStateError: this thread is already inside a call.
        """
        me = get_ident()
        if me in self.threads:
            self.refuse(call)
        self.threads[me] = call
        try:
            return section()
        except SpillableError:
            raise
        except BaseException:  # of a signal handler, which may raise anything
            self.let_go()
            raise
        finally:
            del self.threads[me]

    def refuse_within(self, call: str) -> None:
        """Refuse a call if this thread is inside another one. Raises what `run` raises."""
        if get_ident() in self.threads:
            self.refuse(call)

    def refuse(self, call: str) -> NoReturn:
        """Refuse a call. Raises what `run` raises."""
        outer = self.threads.get(get_ident(), "another call")
        raise TransactionStateError(
            f"{call} of {self.of} was called inside {outer} of the same thread, by a signal handler, a finalizer "
            "(__del__) or a handler of warnings or logging; let another thread do that"
        )

    def leave(self, thread: int) -> None:
        """Let `end` wait for no call of a thread, which is known to end by itself, and whose outcome nobody loses.

        Args:
            thread: the thread's ID.
        """
        self._left.add(thread)

    def end(self, call: str, timeout_seconds: float) -> None:
        """Forbid new calls, and wait until the calls under way have ended. Idempotent.

        Args:
            call: the name of the call that ends it, for messages.
            timeout_seconds: how long to wait, but for `LONG_SECONDS` at least.

        Raises:
            LockTimeoutError: a call has not ended in time; new ones are forbidden nevertheless.
            TransactionStateError: this thread is inside a call.
        """
        self.refuse_within(call)
        self.ended = True
        timeout_seconds = max(timeout_seconds, LONG_SECONDS)
        until = time.monotonic() + timeout_seconds
        while under_way := sorted({name for thread, name in list(self.threads.items()) if thread not in self._left}):
            if time.monotonic() >= until:
                raise LockTimeoutError(
                    f"{call} of {self.of} has waited {timeout_seconds:g} s for {' and '.join(under_way)} of another "
                    "thread; its storage may be slow, or not answer. New calls are refused; repeat the call that "
                    "waited once that one has ended"
                )
            time.sleep(_POLL_SECONDS)
