"""Waits for what another thread or process does."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def is_readable(descriptor: int, seconds: float) -> bool:
    """Tell whether a descriptor of any number can be read, or is at its end, before some time is over."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def wait_until(what: Callable[[], object], seconds: float = 120.0) -> None:
    """Return when ``what`` is true; fail after some time.

    It looks seldom if a look costs much: whoever is waited for needs the processor.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if what():
            return
        now = time.monotonic()
        assert now < end, "it did not happen"
        time.sleep(min(max(0.005, 10 * (now - began)), 0.1))
