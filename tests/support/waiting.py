"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(what: Callable[[], object], seconds: float = 120.0) -> None:
    """Return when ``what`` is true; fail after some time."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
