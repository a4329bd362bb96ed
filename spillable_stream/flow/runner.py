"""What an agent starts, watches and stops; and what its runners share: a thread, and how long it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Backoff", "RoundsThread", "Runner"]


class Runner(Protocol):
    """Something that an agent starts, watches and stops.

    A start may hang, so a stop may come meanwhile, from another thread: then it ends as soon as that comes back. A
    runner that was asked to stop never starts again.
    """

    name: str

    @property
    def components(self) -> frozenset[str]:
        """The names of the sources or sinks that it runs."""

    @property
    def alive(self) -> bool:
        """Whether it works; one that does not is started again, unless it is finished."""

    @property
    def finished(self) -> bool:
        """Whether it is at its end: no event will come any more, or there is none now."""

    @property
    def wait_seconds(self) -> float:
        """How long it waits before its next round, now; 0 while it works."""

    @property
    def trouble(self) -> str:
        """What keeps it from working now, in words; empty if nothing does."""

    def start(self) -> None:
        """Start it; raises what keeps it from starting."""

    def begin_stop(self) -> None:
        """Ask it to stop; returns at once."""

    def stop(self, timeout_seconds: float) -> bool:
        """Stop it, and tell whether it has ended within the time."""


class Backoff:
    """How long a runner waits: Flume's numbers.

    Args:
        increment_ms: by how much longer after each round without events.
        most_ms: how long at most.
    """

    def __init__(self, increment_ms: int, most_ms: int) -> None:
        self._increment_ms, self._most_ms = increment_ms, most_ms
        self._rounds = 0

    def ready(self) -> None:
        """Note a round with events."""
        self._rounds = 0

    def nothing(self) -> float:
        """Note a round without events, and return how long to wait, in seconds."""
        self._rounds += 1
        return min(self._rounds * self._increment_ms, self._most_ms) / 1000


class RoundsThread:
    """A thread that works in rounds until it is asked to stop.

    Args:
        name: its name.

    Attributes:
        stopping: set when it is asked to stop.
        trouble: what kept the last round from working, in words; empty if nothing did.
        wait_seconds: how long it waits before its next round, now; 0 while it works.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping: threading.Event = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.trouble: str = ""
        self.wait_seconds: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """Start it, unless it was asked to stop.

        Args:
            prepare: what comes first, here; it raises what keeps the thread from starting.
            run: does the rounds.
        """
        with self._starting:
            if self.stopping.is_set():
                return
            prepare()
            self._thread = threading.Thread(target=run, name=self.name, daemon=True)
            self._thread.start()

    def end(self, timeout_seconds: float) -> bool:
        """Ask it to stop, and tell whether it has ended within the time."""
        self.stopping.set()
        end = time.monotonic() + timeout_seconds
        if not self._starting.acquire(timeout=timeout_seconds):
            return False
        self._starting.release()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive()
