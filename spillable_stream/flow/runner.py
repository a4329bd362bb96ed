"""What an agent starts, watches and stops; and what its runners share: rounds in a thread, and waits."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import SpillableError
from spillable_stream.flow.failures import FAILURES
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import start_thread

__all__ = ["Backoff", "RoundsRunner", "Runner", "StartWaitsError", "doubled_seconds"]

_log = log_of("spillable_stream.flow")

_MOST_DOUBLINGS = 30  # more, and after a thousand failures there would be no such float


class StartWaitsError(SpillableError):
    """A start that waits for that of another runner: it is tried again, and has not failed.

    Attributes:
        has_failed: whether the other one has.
    """

    def __init__(self, message: str = "", *, has_failed: bool = False) -> None:
        super().__init__(message)
        self.has_failed: bool = has_failed


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
    def may_start(self) -> bool:
        """Whether it can be started yet: the sinks of an optional channel wait until that is open."""

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


def doubled_seconds(first_seconds: float, failures: int, most_seconds: float) -> float:
    """Return how long to wait before another try: twice as long after each failure.

    Args:
        first_seconds: how long before the first one.
        failures: how many have failed since.
        most_seconds: how long at most.
    """
    return min(first_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS), most_seconds)


class RoundsRunner:
    """Runs something in rounds, in a thread, until it is asked to stop.

    Args:
        name: its name, for threads and messages.

    Attributes:
        failure: what kept the last round from working, in words; empty if nothing did.
        rest_failure: what kept the last rest from working, likewise; empty again after a round that found work.
        wait_seconds: how long it waits before its next round, now; 0 while it works.
    """

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.failure: str = ""
        self.rest_failure: str = ""
        self._is_rest_told = False
        self.wait_seconds: float = 0.0
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def may_start(self) -> bool:
        """See `Runner.may_start`."""
        return True

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def trouble(self) -> str:
        """See `Runner.trouble`."""
        return self.failure or self.rest_failure

    def _fails(self, e: Exception | SystemExit) -> None:
        self.failure = type_and_text(e)

    def _works(self) -> None:
        self.failure = ""

    def start(self) -> None:
        """Open what the rounds need, here, and start the thread; unless it was asked to stop."""
        with self._starting:
            if self._stopping.is_set():
                return
            self._prepare()
            thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            try:
                start_thread(thread)
            except BaseException:
                self._close()
                raise
            self._thread = thread

    def _run(self) -> None:
        try:
            try:
                while not self._stopping.is_set():
                    self.wait_seconds = self.round()
                    self._rest_or_wait(self.wait_seconds)
                    self.wait_seconds = 0.0
            finally:
                self.wait_seconds = 0.0
                self._close()
        except FAILURES as e:
            self._fails(e)
            _log.of(self.name).exception("its thread ends")

    def _rest_or_wait(self, seconds: float) -> None:
        """Rest after a round that worked; where that raises, it is trouble, and the next round comes when it would."""
        if self.failure:
            self._stopping.wait(seconds)
            return
        if not seconds:
            self.rest_failure = ""
            return
        end = time.monotonic() + seconds
        try:
            self._rest(seconds)
        except FAILURES as e:
            if not self._is_rest_told:
                self._is_rest_told = True
                _log.of(self.name).warning(
                    "its rest between two rounds fails, and it waits for the whole time: %s", text_of(e)
                )
            self.rest_failure = type_and_text(e)
            self._stopping.wait(max(0.0, end - time.monotonic()))
        else:
            self.rest_failure, self._is_rest_told = "", False

    def _prepare(self) -> None:
        """Open what the rounds need; raises what keeps it from starting."""
        raise NotImplementedError

    def round(self) -> float:
        """Do one round, and return how long to wait, in seconds."""
        raise NotImplementedError

    def _rest(self, seconds: float) -> None:
        """Wait after a round that worked."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close what `_prepare` opened, in the thread."""
        raise NotImplementedError

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        self._stopping.set()

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        self._stopping.set()
        end = time.monotonic() + timeout_seconds
        if not self._starting.acquire(timeout=timeout_seconds):
            return False
        self._starting.release()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive()
