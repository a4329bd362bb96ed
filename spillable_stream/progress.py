"""How far long work is: what is told, and to whom.

Work that takes long has an argument ``progress``: it is called now and then with a `Progress`, in the thread that does
the work. If it raises, the work ends with that error, and what it read is closed: so anything can be interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from spillable_stream.arguments import function
from spillable_stream.block_value import block_value

__all__ = ["UNTOLD", "Meter", "OnProgress", "Progress", "meter_of_open", "told_of_opens"]

_EVERY_SECONDS = 0.1


class Progress(NamedTuple):
    """How far some work is.

    Args:
        what: the work, such as "verify".
        done: how much of it is done.
        total: how much there is, as far as that is known; None if it is not.
        unit: what is counted, such as "bytes".
    """

    what: str
    done: int
    total: int | None
    unit: str

    @property
    def fraction(self) -> float | None:
        """The part that is done, 0 to 1; None if the whole is not known."""
        return None if self.total is None else 1.0 if not self.total else min(1.0, self.done / self.total)


OnProgress = Callable[[Progress], None]
"""Is told how far some work is."""


class Meter:
    """Counts what is done of some work, and tells it about ten times a second.

    Args:
        what: the work.
        unit: what is counted.
        tell: is told; None for nobody.
        clock: tells the time in seconds, for tests.
    """

    def __init__(
        self, what: str, unit: str, tell: OnProgress | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._unit = unit
        self._tell = None if tell is None else function("progress", tell)
        self._clock = clock
        self._done = 0
        self._total: int | None = None
        self._due = 0.0

    @property
    def is_told(self) -> bool:
        """Whether anybody is told."""
        return self._tell is not None

    def begin(self, total: int | None) -> None:
        """Begin the work, or begin it again.

        Args:
            total: how much there is; None if that is not known.
        """
        if self._tell is not None:
            self._done, self._total, self._due = 0, total, 0.0
            self.add(0)

    def expect(self, more: int) -> None:
        """Note that there is more to do than was known."""
        if self._tell is not None and self._total is not None:
            self._total += more

    def add(self, done: int) -> None:
        """Note that so much more is done."""
        if self._tell is None:
            return
        self._done += done
        if (now := self._clock()) >= self._due:
            self._due = now + _EVERY_SECONDS
            self._report()

    def reach(self, done: int) -> None:
        """Note that so much is done in all."""
        self.add(done - self._done)

    def end(self) -> None:
        """Note that all is done."""
        if self._tell is not None:
            self._total = self._done
            self._report()

    def _report(self) -> None:
        assert self._tell is not None
        total = self._total if self._total is None else max(self._total, self._done)
        self._tell(Progress(self._what, self._done, total, self._unit))


UNTOLD = Meter("work", "bytes", None)
"""Counts nothing, for nobody."""

_told_of_opens: ContextVar[OnProgress | None] = ContextVar("told_of_opens", default=None)


def told_of_opens(tell: OnProgress | None) -> AbstractContextManager[None]:
    """Return a block in which somebody is told how far an open is, in this thread.

    An open goes through many hands, and no other call replays: so it is said here rather than handed on by each.
    """
    return block_value(_told_of_opens, None if tell is None else function("progress", tell))


def meter_of_open(unit: str) -> Meter:
    """Return the meter of the open that is under way in this thread; nobody is told if there is none."""
    tell = _told_of_opens.get()
    return UNTOLD if tell is None else Meter("open", unit, tell)
