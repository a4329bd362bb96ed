"""A bulkhead in front of an optional channel: a call into that has a thread of its own and a second, and no more.

A source waits for its call into a channel: so the channel may slow its source down, as a required one does, and loses
nothing to that. It passes a channel over while a call is under way there for which nobody waits: it could overtake
that. So a store that has gone costs its source a second, and memory for what was on its way. An agent's puts and all
that a Spark stream does there keep to that.

An agent's put counts whenever it ends. So after one that took longer than a second, its source does not wait at all::

    in time ── a put takes longer than a second ──▶ slow ── a put ends within a second ──▶ in time

A step of a Spark stream counts only if it ends in time, and so each is given its second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from spillable_stream.call_threads import CallThreads, make
from spillable_stream.errors import SpillableError
from spillable_stream.own_thread import NoThreadError

__all__ = ["BegunCall", "Bulkhead", "BulkheadCall", "LateCallError", "call_in_time"]

_LIMIT_SECONDS = 1.0
_MOST_THREADS = 8  # of a channel; more calls wait for one of them, as far as their source waits

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class LateCallError(SpillableError):
    """A call into an optional channel has not ended, and nobody waits for it any more."""


@dataclass(eq=False, slots=True)
class BegunCall(Generic[_T]):
    """A call that is about to begin, under way, or over.

    Args:
        since: when it began, in monotonic seconds.
        done: the future of its end.
        is_awaited: whether its source waits for it.
    """

    since: float = field(default_factory=time.monotonic)
    done: Future[_T] = field(default_factory=Future)
    is_awaited: bool = True

    def outcome(self) -> _T | Exception:
        """Return what it returned or raised."""
        try:
            return self.done.result()
        except Exception as e:
            return e


class Bulkhead:
    """The bulkhead in front of one channel. Thread-safe.

    Args:
        name: the channel's name.
        counts_late: whether a call counts whenever it ends, and so is not waited for while the channel is slow.

    Attributes:
        is_slow: whether a call has taken longer than a second, and none has ended within one since.
    """

    def __init__(self, name: str, *, counts_late: bool) -> None:
        self.is_slow: bool = False
        self._counts_late = counts_late
        self._threads = CallThreads(_MOST_THREADS, f"spillable-flow-put-{name}")
        self._under_way: set[BegunCall[Any]] = set()
        self._put_off: list[Callable[[], None]] = []  # is empty unless a call is under way for which nobody waits
        self._mutex = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._under_way)

    def begin(self, begun: BegunCall[_T], call: Callable[[], _T], *, may_be_put_off: bool = False) -> None:
        """Begin a call.

        Args:
            begun: what becomes of it; after an interrupt, too, it can be given up by that.
            call: the call.
            may_be_put_off: whether it is made after those for which nobody waits.

        Raises:
            SpillableError: an earlier call for which nobody waits is under way: this one could overtake it.
            NoThreadError: there is no thread for it.
        """
        with self._mutex:
            late = self._late()
            if late and not may_be_put_off:
                raise SpillableError(f"a call that began {begun.since - min(late):.0f} s ago has not ended there")
            if late:
                begun.is_awaited = False
                self._put_off.append(partial(make, call, begun.done))
                return
            begun.is_awaited = not (self.is_slow and self._counts_late)
            self._under_way.add(begun)
        try:
            self._threads.begin_for(begun.done, partial(self._make, call, begun))
        except NoThreadError:
            with self._mutex:
                self._under_way.discard(begun)
            raise

    def _late(self) -> list[float]:
        """Return when the calls under way began for which nobody waits; the caller has the mutex."""
        return [begun.since for begun in self._under_way if not begun.is_awaited]

    def outcome(self, begun: BegunCall[_T], seconds: float) -> _T | Exception:
        """Wait for a call, for some seconds at most, and return what it returned or raised, or that it is late."""
        wait([begun.done], seconds)
        return self.end_wait(begun) or begun.outcome()

    def end_wait(self, begun: BegunCall[Any]) -> LateCallError | None:
        """Wait no longer for a call, and return what to say of it if it is late."""
        if not begun.is_awaited and not begun.done.done():
            return LateCallError("the channel took longer than a second before, and is not waited for")
        if self.give_up(begun):
            return LateCallError("it has not answered within a second, and is not waited for any more")
        return None

    def give_up(self, begun: BegunCall[Any]) -> bool:
        """Wait no longer for a call, and tell whether it is under way still."""
        with self._mutex:
            if begun not in self._under_way:
                return False
            begun.is_awaited, self.is_slow = False, True
            return True

    def drop(self, begun: BegunCall[Any]) -> None:
        """Make a call no more, or wait no longer for it if it is being made."""
        if not begun.done.cancel():
            self.give_up(begun)
            return
        with self._mutex:
            self._under_way.discard(begun)

    def _make(self, call: Callable[[], _T], begun: BegunCall[_T]) -> _T:
        try:
            return call()
        finally:
            is_in_time = time.monotonic() - begun.since <= _LIMIT_SECONDS
            while (put_off := self._end(begun, is_in_time)) is not None:
                put_off()

    def _end(self, begun: BegunCall[Any], is_in_time: bool) -> Callable[[], None] | None:
        """End a call, unless it is the last one after which others were put off: return one of them then."""
        with self._mutex:
            if self._put_off and not begun.is_awaited and len(self._late()) == 1:
                return self._put_off.pop(0)
            self._under_way.discard(begun)
            if is_in_time:
                self.is_slow = False
            return None

    def close(self, end: float) -> None:
        """Let the calls under way end; later ones end with the process, or when they are answered.

        Args:
            end: until when, in monotonic seconds.
        """
        self._threads.close(max(0.0, end - time.monotonic()))

    @staticmethod
    def limit_seconds() -> float:
        """Return for how long a call is waited for."""
        return _LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class BulkheadCall(Generic[_T_co]):
    """A call into an optional channel.

    Args:
        bulkhead: that of the channel.
        call: the call.
        may_be_put_off: whether it is made, where nobody waits for earlier calls, when those have ended; others are
            refused then.
    """

    bulkhead: Bulkhead
    call: Callable[[], _T_co]
    may_be_put_off: bool = False


def call_in_time(calls: Sequence[BulkheadCall[_T]]) -> list[_T | Exception]:
    """Make calls at once, wait for a second at most, and return what each returned or raised.

    A call that has not ended gives a `LateCallError`; it may end later. What interrupts one is raised.
    """
    found: list[BegunCall[_T] | Exception] = []
    try:
        for one in calls:
            begun: BegunCall[_T] = BegunCall()
            found.append(begun)
            try:
                one.bulkhead.begin(begun, one.call, may_be_put_off=one.may_be_put_off)
            except SpillableError as e:
                found[-1] = e
        wait([b.done for b in found if not isinstance(b, Exception) and b.is_awaited], _LIMIT_SECONDS)
        return [
            b if isinstance(b, Exception) else one.bulkhead.end_wait(b) or b.outcome()
            for one, b in zip(calls, found, strict=True)
        ]
    except BaseException:
        for one, dropped in zip(calls, found, strict=False):
            if not isinstance(dropped, Exception):
                one.bulkhead.drop(dropped)
        raise
