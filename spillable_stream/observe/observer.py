"""Looks at many channels at a time; one that hangs holds up none of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from os import PathLike
from types import TracebackType
from typing import Self

from spillable_stream.call_threads import CallThreads
from spillable_stream.channel.channel import Channel
from spillable_stream.observe.channel_discovery import ChannelDiscovery
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observed_channel import ObservedChannel

__all__ = ["Observer"]

_MOST_THREADS = 16


class Observer:
    """Looks at channels. Thread-safe.

    A channel that is given by its path is opened read-only: it is neither written nor locked, and its writers do not
    notice. It costs this process what it takes to read the log's records, not the events, since the look before.

    Args:
        channels: handles, which stay open, paths, and patterns of paths, such as ``/data/orders-*``: what fits one is
            looked up again every few seconds.
        timeout_seconds: how long to wait for a look; a channel whose look takes longer is shown as such meanwhile.
        clock: returns the time in seconds since 1970, for tests.

    Raises:
        OptionError: there are no channels, one is given twice, or a wildcard is where none can be.
    """

    def __init__(
        self,
        channels: Iterable[Channel | str | PathLike[str]],
        *,
        timeout_seconds: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._threads = CallThreads(_MOST_THREADS, "spillable-observer")
        self._discovery = ChannelDiscovery(channels, clock, self._threads)
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._mutex = threading.Lock()
        self._looks: dict[ObservedChannel, Future[Observation]] = {}  # those under way
        self._leaving: set[Future[None]] = set()  # the closes of channels, each after its look
        self._latest: list[Observation] = []
        self._looked_at = float("-inf")

    def observe(self, *, max_age_seconds: float = 0.0) -> list[Observation]:
        """Look at each channel, and return one observation of each, in order; a failure is an observation, too.

        So is a pattern that no channel fits.

        Args:
            max_age_seconds: return the last observations if they are not older than this.
        """
        with self._mutex:
            if self._latest and 0 <= self._clock() - self._looked_at < max_age_seconds:
                return self._latest
            deadline = time.monotonic() + self._timeout_seconds
            for gone in self._discovery.search(self._timeout_seconds / 2):
                self._close(gone)
            channels = self._discovery.channels()
            for channel in channels:
                if channel not in self._looks:
                    self._looks[channel] = self._threads.begin(channel.look)
            self._latest = [*(self._answer(channel, deadline) for channel in channels), *self._discovery.problems()]
            self._looked_at = self._clock()
            return self._latest

    def _answer(self, channel: ObservedChannel, deadline: float) -> Observation:
        look = self._looks[channel]
        try:
            found = look.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            if not look.running() and not look.done():  # others are before it
                return channel.latest or Observation(channel.path, self._clock())
            waited = f"has not answered for more than {self._timeout_seconds:g} s; check its disk or its store"
            return Observation(channel.path, self._clock(), problem=f"{channel.path} {waited}")
        del self._looks[channel]
        return found

    def _close(self, channel: ObservedChannel) -> None:
        """Close a channel in one of the threads, after the look that is under way."""
        closed: Future[None] = Future()
        self._leaving.add(closed)
        closed.add_done_callback(self._leaving.discard)

        def begin(_: object = None) -> None:
            self._threads.begin_or_make(closed, channel.close)

        look = self._looks.pop(channel, None)
        if look is None or look.cancel():
            begin()
        else:
            look.add_done_callback(begin)

    def close(self) -> None:
        """Close what was opened here; what hangs is waited for as a look is, and not at the end of the process."""
        with self._mutex:
            for channel in self._discovery.channels():
                self._close(channel)
            wait(list(self._leaving), self._timeout_seconds)
            is_under_way = bool(self._leaving) or self._discovery.is_searching
            self._threads.close(timeout_seconds=0.0 if is_under_way else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
