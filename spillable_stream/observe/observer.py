"""Looks at many channels at a time; one that hangs holds up none of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from types import TracebackType
from typing import Self

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observed_channel import ObservedChannel

__all__ = ["Observer"]

_MOST_THREADS = 16


class Observer:
    """Looks at channels. Thread-safe.

    A channel that is given by its path is opened read-only: it is neither written nor locked, and its writers do not
    notice. It costs this process what it takes to read the log's records, not the events, since the look before.

    Args:
        channels: handles, which stay open, and paths.
        patience_seconds: how long to wait for a look; a channel whose look takes longer is shown as such meanwhile.
        clock: returns the time in seconds since 1970, for tests.

    Raises:
        OptionError: there are no channels, or one is given twice.
    """

    def __init__(
        self,
        channels: Iterable[Channel | str | PathLike[str]],
        *,
        patience_seconds: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._channels = [ObservedChannel(channel, clock) for channel in channels]
        paths = [channel.path for channel in self._channels]
        if not paths:
            raise OptionError("there is nothing to look at: give at least one channel")
        if len(set(paths)) < len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise OptionError(f"{twice} is given twice; give each channel once")
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._mutex = threading.Lock()
        self._threads = ThreadPoolExecutor(min(len(paths), _MOST_THREADS), thread_name_prefix="spillable-observer")
        self._looks: dict[str, Future[Observation]] = {}  # those under way
        self._latest: list[Observation] = []
        self._looked_at = float("-inf")

    @property
    def paths(self) -> tuple[str, ...]:
        """The channels, as they were given."""
        return tuple(channel.path for channel in self._channels)

    def observe(self, *, max_age_seconds: float = 0.0) -> list[Observation]:
        """Look at each channel, and return one observation of each, in order; a failure is an observation, too.

        Args:
            max_age_seconds: return the last observations if they are not older than this.
        """
        with self._mutex:
            if self._latest and 0 <= self._clock() - self._looked_at < max_age_seconds:
                return self._latest
            for channel in self._channels:
                if channel.path not in self._looks:
                    self._looks[channel.path] = self._threads.submit(channel.look)
            deadline = time.monotonic() + self._patience_seconds
            self._latest = [self._answer(channel.path, deadline) for channel in self._channels]
            self._looked_at = self._clock()
            return self._latest

    def _answer(self, path: str, deadline: float) -> Observation:
        try:
            found = self._looks[path].result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            waited = f"{path} has not answered for more than {self._patience_seconds:g} s; check its disk or its store"
            return Observation(path, self._clock(), problem=waited)
        del self._looks[path]
        return found

    def close(self) -> None:
        """Close what was opened here; a look that hangs is not waited for."""
        with self._mutex:
            self._threads.shutdown(wait=not self._looks, cancel_futures=True)
            for channel in self._channels:
                if channel.path not in self._looks:
                    channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
