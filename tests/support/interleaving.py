"""Runs clients of a store, or of a disk, in one order of their requests, which a seed chooses: the same every time.

Each client has a thread, and only one of them runs at a time: a client waits before each request, and wherever it would
sleep, until the scheduler lets it go on. Time is a number that only sleeping moves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

__all__ = ["Interleaving"]


class Killed(BaseException):
    """A client ends here: its process was killed."""


class Interleaving:
    """One history of several clients.

    Args:
        seed: what chooses who goes on.

    Attributes:
        now: the time, in seconds.
        steps: how many times somebody went on.
    """

    def __init__(self, seed: int) -> None:
        self.now: float = 0.0
        self.steps: int = 0
        self._random = Random(seed)
        self._turn = threading.Condition()
        self._running: threading.Thread | None = None
        self._waiting: dict[threading.Thread, float] = {}  # until when it sleeps
        self._killed: set[threading.Thread] = set()
        self._ended: set[threading.Thread] = set()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def client(self, work: Callable[[], None]) -> threading.Thread:
        """Add a client; it begins with `run`."""

        def body() -> None:
            try:
                self.pause()
                work()
            except Killed:
                pass
            except BaseException as e:
                self._errors.append(e)
            finally:
                with self._turn:
                    self._running = None
                    self._ended.add(threading.current_thread())
                    self._turn.notify_all()

        thread = threading.Thread(target=body, daemon=True)
        self._threads.append(thread)
        return thread

    def pause(self, seconds: float = 0.0) -> None:
        """Let others go on before the caller does; for so many seconds, if there is anybody else to go on."""
        me = threading.current_thread()
        if me not in self._threads:  # the test itself looks at the store
            self.now += seconds
            return
        with self._turn:
            self._waiting[me] = self.now + seconds
            if self._running is me:
                self._running = None
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._running is me)
            if me in self._killed:
                raise Killed

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def monotonic_ns(self) -> int:
        """Return the time in nanoseconds."""
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let others go on for so long; as `time` has it."""
        self.pause(seconds)

    def kill(self, thread: threading.Thread) -> None:
        """End a client at its next step."""
        self._killed.add(thread)

    def _all_wait(self) -> bool:
        return self._running is None and all(t in self._waiting or t in self._ended for t in self._threads)

    def run(self, each_step: Callable[[], None] = lambda: None) -> None:
        """Run all clients to their ends; raise what one of them raised."""
        for thread in self._threads:
            thread.start()
        while True:
            with self._turn:
                assert self._turn.wait_for(self._all_wait, timeout=60)
                ready = [t for t in self._threads if t in self._waiting]
                if not ready:
                    break
                awake = [t for t in ready if self._waiting[t] <= self.now]
                if not awake:
                    self.now = min(self._waiting[t] for t in ready)
                    awake = [t for t in ready if self._waiting[t] <= self.now]
                chosen = self._random.choice(awake)
                del self._waiting[chosen]
                self.steps += 1
                self._running = chosen
                self._turn.notify_all()
                assert self._turn.wait_for(self._all_wait, timeout=60)
            each_step()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
