"""Processes that descend from one that a test started, wherever they are now: by a mark in their environment."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

__all__ = ["processes_with"]

_SECONDS = 120.0


class Marked:
    """The processes with a mark.

    Args:
        mark: a text that only their environment has.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()

    def now(self) -> list[str]:
        """Return the command lines of those that there are."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if self._mark in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_text().replace("\0", " "))
        return found

    def wait_until_gone(self) -> None:
        """Return once there are none.

        Raises:
            AssertionError: some stay.
        """
        deadline = time.monotonic() + _SECONDS
        while left := self.now():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.05)


def processes_with(mark: str) -> Marked:
    """Return the processes whose environment has a mark."""
    return Marked(mark)
