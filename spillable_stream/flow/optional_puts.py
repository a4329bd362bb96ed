"""Puts into optional channels. One that never must have any event is waited for a moment, and no longer.

::

    in time ── a put takes longer than a moment ──▶ slow ── a put ends within a moment ──▶ in time

A batch waits for its put into a channel that is in time: so the channel may slow its source down, as a required one
does, and loses nothing to that. A batch does not wait for a channel that is slow, and passes a channel over while a put
is under way there for which nobody waits: it could overtake that. So a store that has gone costs its source a moment,
and memory for the batches that were on their way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import SpillableError
from spillable_stream.flow.left_out import LeftOut
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.log_records import fields, log_of

__all__ = ["OptionalPuts"]

_log = log_of("spillable_stream.flow")

_MOMENT_SECONDS = 1.0
_MOST_THREADS = 8  # of a channel; more puts wait for one of them, as far as their source waits

_Put = Callable[[str], "Exception | None"]


class OptionalPuts:
    """Puts parts of a source's batches into its optional channels. Thread-safe.

    Args:
        source: the source's name.
        never_required: the channels that never must have any event; there, a put is made in a thread of its own.
        puts: makes the puts into the others: a channel that must have some events is waited for anyway.
        left_out: counts what the channels do not get.
    """

    def __init__(self, source: str, never_required: Collection[str], puts: PartPuts, left_out: LeftOut) -> None:
        self._source, self._puts, self._left_out = source, puts, left_out
        self._ways = {name: _Way(name) for name in never_required}

    def put(self, parts: Mapping[str, pa.RecordBatch], put: _Put) -> None:
        """Put parts into their channels, as far as these take them in time.

        Args:
            parts: the parts, by the channel's name.
            put: puts into one of them, in this thread or another one, and returns why that failed. It may end later.
        """

        def put_or_leave_out(name: str) -> None:
            if (error := put(name)) is not None:
                self._left_out.add(name, parts[name].num_rows, error)

        waited = [name for name in parts if name not in self._ways]
        if waited:
            self._puts.at_once(waited, put_or_leave_out)
        awaited: list[tuple[_Way, _Begun, Future[None]]] = []
        try:
            for name in parts.keys() - set(waited):
                way = self._ways[name]
                try:
                    begun, done = way.begin(partial(put_or_leave_out, name))
                except (SpillableError, RuntimeError) as e:
                    self._left_out.add(name, parts[name].num_rows, e)
                    continue
                if begun.is_awaited:
                    awaited.append((way, begun, done))
            wait([done for _, _, done in awaited], _MOMENT_SECONDS)
        finally:
            ended = [done for way, begun, done in awaited if not way.give_up(begun)]
        for done in ended:
            done.result()

    def under_way(self) -> list[str]:
        """Return the names of the channels in which a put is under way in a thread of its own."""
        return [name for name, way in self._ways.items() if way.is_busy]

    def close(self) -> None:
        """Let the puts under way end, a moment at most; later ones end with the process, or when they are answered."""
        end = time.monotonic() + _MOMENT_SECONDS
        for way in self._ways.values():
            way.threads.close(max(0.0, end - time.monotonic()))
        for name in self.under_way():
            _log.warning(
                "%s: a put into the optional channel %s has not ended, so it is not known whether that gets the events",
                self._source,
                name,
                extra=fields(component=self._source),
            )


@dataclass(eq=False, slots=True)
class _Begun:
    """A put that is under way.

    Args:
        since: when it began, in monotonic seconds.
        is_awaited: whether its batch waits for it.
    """

    since: float
    is_awaited: bool


class _Way:
    """The way into one channel.

    Args:
        name: the channel's name.

    Attributes:
        is_slow: whether a put has taken longer than a moment, and none has ended within one since.
        threads: make the puts.
    """

    def __init__(self, name: str) -> None:
        self.is_slow = False
        self.threads = CallThreads(_MOST_THREADS, f"spillable-flow-put-{name}")
        self._under_way: set[_Begun] = set()
        self._mutex = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a put is under way."""
        return bool(self._under_way)

    def begin(self, put: Callable[[], None]) -> tuple[_Begun, Future[None]]:
        """Begin a put, and return it with the future of its end.

        Raises:
            SpillableError: an earlier put for which nobody waits is under way: this one could overtake it.
            RuntimeError: there is no thread for it.
        """
        now = time.monotonic()
        with self._mutex:
            late = [begun.since for begun in self._under_way if not begun.is_awaited]
            if late:
                raise SpillableError(f"a put that began {now - min(late):.0f} s ago has not ended there")
            begun = _Begun(now, not self.is_slow)
            self._under_way.add(begun)
        try:
            return begun, self.threads.begin(partial(self._make, put, begun))
        except RuntimeError:
            with self._mutex:
                self._under_way.discard(begun)
            raise

    def give_up(self, begun: _Begun) -> bool:
        """Wait no longer for a put, and tell whether it is under way still."""
        with self._mutex:
            if begun not in self._under_way:
                return False
            begun.is_awaited, self.is_slow = False, True
            return True

    def _make(self, put: Callable[[], None], begun: _Begun) -> None:
        try:
            put()
        finally:
            with self._mutex:
                self._under_way.discard(begun)
                if time.monotonic() - begun.since <= _MOMENT_SECONDS:
                    self.is_slow = False
