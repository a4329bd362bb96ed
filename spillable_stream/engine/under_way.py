"""Which threads are inside of a call, so that an end can wait for them and no thread waits for itself.

A signal handler, a finalizer (``__del__``), or a handler of warnings or logging records runs in the middle of whatever
its thread does. If that is a commit, another one would wait for it for ever, or see a state that is half changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import NoReturn, TypeVar

from spillable_stream.errors import TransactionStateError

__all__ = ["UnderWay"]

T = TypeVar("T")

_POLL_SECONDS = 0.001


class UnderWay:
    """The calls of threads that are under way: one of each thread.

    Where each call costs, a caller does itself what `run` does. One operation of a dictionary begins a call and one
    ends it, so that no interrupt comes in between.

    Args:
        of: what is called, for messages.

    Attributes:
        of: what is called.
        threads: what each thread is inside of.
        ended: whether `end` was called: what begins now is to be refused.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self.threads: dict[int, str] = {}
        self.ended: bool = False

    def run(self, call: str, section: Callable[[], T]) -> T:
        """Call a section of code as a call that is under way.

        Args:
            call: its name, for messages.
            section: the code.

        Raises:
            TransactionStateError: this thread is inside of a call already.
        """
        me = get_ident()
        if me in self.threads:
            self.refuse(call)
        self.threads[me] = call
        try:
            return section()
        finally:
            del self.threads[me]

    def refuse_within(self, call: str) -> None:
        """Refuse a call if this thread is inside of another one; raises what `run` does."""
        if get_ident() in self.threads:
            self.refuse(call)

    def refuse(self, call: str) -> NoReturn:
        """Refuse a call; raises what `run` does."""
        outer = self.threads.get(get_ident(), "another call")
        raise TransactionStateError(
            f"{call} of {self.of} inside of {outer} of the same thread, by a signal handler, a finalizer (__del__) or "
            "a handler of warnings or logging; let another thread do that"
        )

    def end(self, call: str) -> None:
        """Note that nothing may begin any more, and wait until what is under way is over; again is fine.

        Args:
            call: what ends it, for messages.

        Raises:
            TransactionStateError: this thread is inside of a call.
        """
        self.refuse_within(call)
        self.ended = True
        while self.threads:
            time.sleep(_POLL_SECONDS)
