"""Looks at the channels once a second, however many pages are open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from spillable_stream.observe.history import History
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observer import Observer

__all__ = ["Watch"]

_log = logging.getLogger(__name__)


class Watch:
    """The channels of the page, as they were at the last look.

    Args:
        paths: the channels.
        interval_seconds: how much time there is between two looks.

    Attributes:
        paths: the channels, as they were given.
        history: their recent past.
        interval_seconds: how much time there is between two looks.
    """

    def __init__(self, paths: Iterable[str], interval_seconds: float = 1.0) -> None:
        self._observer = Observer(paths)
        self.paths: tuple[str, ...] = self._observer.paths
        self.history: History = History()
        self.interval_seconds: float = interval_seconds
        self._latest: dict[str, Observation] = {}

    def latest(self, path: str) -> Observation:
        """Return the last look at a channel."""
        return self._latest.get(path) or Observation(path, 0.0, problem="it has not been looked at yet")

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
        self.history.note(found)

    def close(self) -> None:
        """Close the channels."""
        self._observer.close()
