"""Looks at the channels once a second, however many pages are open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from spillable_stream.log_records import log_of
from spillable_stream.observe.history import History
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observer import Observer

__all__ = ["Watch"]

_log = log_of(__name__)


class Watch:
    """The channels of the page, as they were at the last look.

    Args:
        paths: the channels, and patterns of their paths.
        interval_seconds: how much time there is between two looks.

    Attributes:
        history: their recent past.
        interval_seconds: how much time there is between two looks.
    """

    def __init__(self, paths: Iterable[str], interval_seconds: float = 1.0) -> None:
        self._observer = Observer(paths)
        self._numbers: dict[str, int] = {}  # of every channel that was ever seen: an address stays
        self.history: History = History()
        self.interval_seconds: float = interval_seconds
        self._latest: dict[str, Observation] = {}

    def latest(self, path: str) -> Observation:
        """Return the last look at a channel."""
        problem = "it is no longer there" if path in self._numbers else "it has not been looked at yet"
        return self._latest.get(path) or Observation(path, 0.0, problem=problem)

    def paths(self) -> list[str]:
        """Return the channels that are there now, in order."""
        return list(self._latest)

    def problems(self) -> dict[str, str]:
        """Return by its path why each channel could not be looked at, of those that could not."""
        return {path: seen.problem for path, seen in self._latest.items() if seen.problem}

    def number_of(self, path: str) -> int:
        """Return the number of a channel that was seen."""
        return self._numbers[path]

    def path_of(self, number: int) -> str | None:
        """Return the channel with a number; None if there is none."""
        return next((path for path, n in self._numbers.items() if n == number), None)

    async def run(self) -> None:
        """Look again and again, until this is cancelled."""
        while True:
            await asyncio.sleep(self.interval_seconds)
            await self.look()

    async def look(self) -> None:
        """Look at all channels once."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._observer.observe)
        except Exception:  # the page must outlive whatever a look meets
            _log.exception("the channels could not be looked at")
            return
        self._latest = {seen.path: seen for seen in found}
        for path in self._latest:
            self._numbers.setdefault(path, len(self._numbers))
        self.history.add(found)

    def close(self) -> None:
        """Close the channels."""
        self._observer.close()
