"""Puts into optional channels. One that never must have any event is waited for a moment, and no longer.

::

    in time ── a put takes longer than a moment ──▶ slow ── a put ends within a moment ──▶ in time

A batch waits for its put into a channel that is in time: so the channel may slow its source down, as a required one
does, and loses nothing to that. A batch does not wait for a channel that is slow, and passes it over while a put is
under way there. So a store that has gone costs its source a moment, and memory for the batches that were on their way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
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
        awaited: list[tuple[_Way, Future[None]]] = []
        for name in parts.keys() - set(waited):
            way = self._ways[name]
            is_awaited = not way.is_slow
            try:
                done = way.begin(partial(put_or_leave_out, name))
            except (SpillableError, RuntimeError) as e:
                self._left_out.add(name, parts[name].num_rows, e)
                continue
            if is_awaited:
                awaited.append((way, done))
        wait([done for _, done in awaited], _MOMENT_SECONDS)
        for way, done in awaited:
            if done.done():
                done.result()
            else:
                way.is_slow = True

    def under_way(self) -> list[str]:
        """Return the names of the channels in which a put is under way in a thread of its own."""
        return [name for name, way in self._ways.items() if way.since is not None]

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


class _Way:
    """The way into one channel.

    Args:
        name: the channel's name.

    Attributes:
        is_slow: whether the last put that ended, or one that has not, took longer than a moment.
        threads: make the puts.
    """

    def __init__(self, name: str) -> None:
        self.is_slow = False
        self.threads = CallThreads(_MOST_THREADS, f"spillable-flow-put-{name}")
        self._began: dict[int, float] = {}  # of the puts under way, by number, in monotonic seconds
        self._number = 0
        self._mutex = threading.Lock()

    @property
    def since(self) -> float | None:
        """When the oldest put began that is under way, in monotonic seconds; None if there is none."""
        with self._mutex:
            return min(self._began.values(), default=None)

    def begin(self, put: Callable[[], None]) -> Future[None]:
        """Begin a put.

        Raises:
            SpillableError: the channel is slow, and an earlier put is still under way there.
            RuntimeError: there is no thread for it.
        """
        since, now = self.since, time.monotonic()
        if self.is_slow and since is not None:
            raise SpillableError(f"a put that began {now - since:.0f} s ago has not ended there")
        with self._mutex:
            self._number += 1
            number = self._number
            self._began[number] = now
        try:
            return self.threads.begin(partial(self._make, put, number))
        except RuntimeError:
            self._end(number)
            raise

    def _make(self, put: Callable[[], None], number: int) -> None:
        try:
            put()
        finally:
            if self._end(number) <= _MOMENT_SECONDS:
                self.is_slow = False

    def _end(self, number: int) -> float:
        """Note the end of a put, and return how long it took, in seconds."""
        with self._mutex:
            return time.monotonic() - self._began.pop(number)
