"""The way into an optional channel: a call there is waited for a moment, and no longer.

::

    in time ── a call takes longer than a moment ──▶ slow ── a call ends within a moment ──▶ in time

A source waits for its call into a channel that is in time: so the channel may slow its source down, as a required one
does, and loses nothing to that. A source does not wait for a channel that is slow, and passes a channel over while a
call is under way there for which nobody waits: it could overtake that. So a store that has gone costs its source a
moment, and memory for what was on its way. An agent's puts and all that a Spark stream does there keep to that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import SpillableError

__all__ = ["LateCallError", "Way", "WayCall", "in_a_moment"]

_MOMENT_SECONDS = 1.0
_MOST_THREADS = 8  # of a channel; more calls wait for one of them, as far as their source waits

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class LateCallError(SpillableError):
    """A call into an optional channel has not ended, and nobody waits for it any more."""


@dataclass(eq=False, slots=True)
class _Begun:
    """A call that is under way.

    Args:
        since: when it began, in monotonic seconds.
        is_awaited: whether its source waits for it.
    """

    since: float
    is_awaited: bool


class Way:
    """The way into one channel. Thread-safe.

    Args:
        name: the channel's name.

    Attributes:
        is_slow: whether a call has taken longer than a moment, and none has ended within one since.
    """

    def __init__(self, name: str) -> None:
        self.is_slow: bool = False
        self._threads = CallThreads(_MOST_THREADS, f"spillable-flow-put-{name}")
        self._under_way: set[_Begun] = set()
        self._mutex = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._under_way)

    def begin(self, call: Callable[[], _T]) -> tuple[_Begun, Future[_T]]:
        """Begin a call, and return it with the future of its end.

        Raises:
            SpillableError: an earlier call for which nobody waits is under way: this one could overtake it.
            RuntimeError: there is no thread for it.
        """
        now = time.monotonic()
        with self._mutex:
            late = [begun.since for begun in self._under_way if not begun.is_awaited]
            if late:
                raise SpillableError(f"a call that began {now - min(late):.0f} s ago has not ended there")
            begun = _Begun(now, not self.is_slow)
            self._under_way.add(begun)
        try:
            return begun, self._threads.begin(partial(self._make, call, begun))
        except RuntimeError:
            with self._mutex:
                self._under_way.discard(begun)
            raise

    def give_up(self, begun: _Begun) -> bool:
        """Wait no longer for a call, and tell whether it is under way still."""
        with self._mutex:
            if begun not in self._under_way:
                return False
            begun.is_awaited, self.is_slow = False, True
            return True

    def _make(self, call: Callable[[], _T], begun: _Begun) -> _T:
        try:
            return call()
        finally:
            with self._mutex:
                self._under_way.discard(begun)
                if time.monotonic() - begun.since <= _MOMENT_SECONDS:
                    self.is_slow = False

    def close(self, end: float) -> None:
        """Let the calls under way end; later ones end with the process, or when they are answered.

        Args:
            end: until when, in monotonic seconds.
        """
        self._threads.close(max(0.0, end - time.monotonic()))

    @staticmethod
    def last_moment() -> float:
        """Return when a moment from now is over, in monotonic seconds."""
        return time.monotonic() + _MOMENT_SECONDS


@dataclass(frozen=True, slots=True)
class WayCall(Generic[_T_co]):
    """A call into an optional channel.

    Args:
        way: the way there.
        call: the call.
    """

    way: Way
    call: Callable[[], _T_co]


def in_a_moment(calls: Sequence[WayCall[_T]], meanwhile: Callable[[], object] = lambda: None) -> list[_T | Exception]:
    """Make calls at once, wait for a moment at most, and return what each returned or raised.

    A call that has not ended gives a `LateCallError`; it may end later. What interrupts one is raised.

    Args:
        calls: the calls.
        meanwhile: what this thread does first, in whatever time; what it raises is raised.
    """
    found: list[tuple[_Begun, Future[_T]] | Exception] = []
    late: list[bool] = []
    try:
        for one in calls:
            try:
                found.append(one.way.begin(one.call))
            except (SpillableError, RuntimeError) as e:
                found.append(e)
        meanwhile()
        wait([b[1] for b in found if not isinstance(b, Exception) and b[0].is_awaited], _MOMENT_SECONDS)
    finally:
        late = [_is_late(one.way, begun) for one, begun in zip(calls, found, strict=False)]
    return [
        begun if isinstance(begun, Exception) else _outcome(begun[1].result, is_late)
        for begun, is_late in zip(found, late, strict=True)
    ]


def _is_late(way: Way, begun: tuple[_Begun, Future[_T]] | Exception) -> bool:
    if isinstance(begun, Exception):
        return False
    call, done = begun
    return way.give_up(call) if call.is_awaited else not done.done()


def _outcome(result: Callable[[], _T], is_late: bool) -> _T | Exception:
    if is_late:
        return LateCallError("it has not answered within a second, and is not waited for any more")
    try:
        return result()
    except Exception as e:
        return e
