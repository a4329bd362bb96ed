"""Watches what an agent runs, and starts again what has ended and should not have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.errors import SpillableError
from spillable_stream.flow.runner import Runner
from spillable_stream.log_records import fields, log_of

__all__ = ["Supervisor"]

_log = log_of("spillable_stream.flow")

_LOOK_SECONDS = 3.0
_LONGEST_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class _Watched:
    """A runner, and what its last starts came to."""

    runner: Runner
    failures: int = 0
    retry_at: float = 0.0
    trouble: str = ""


class Supervisor:
    """Starts runners, and starts one again that has ended: after 3 seconds, then twice as long, a minute at most.

    Args:
        now: the clock, in monotonic seconds; for tests.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._watched: dict[str, _Watched] = {}
        self._late: list[Runner] = []
        self._mutex = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.restarts: int = 0

    def start(self, runner: Runner) -> None:
        """Start a runner, and watch it; one that can't be started is tried again, and `troubles` says why."""
        with self._mutex:
            watched = _Watched(runner)
            self._watched[runner.name] = watched
            self._try(watched)

    def is_late(self, runner: Runner) -> None:
        """Note that a runner was asked to stop, and has not ended. Another one of its components is started after it.

        Two of one sink would share a note, and each would cut what the other writes.
        """
        with self._mutex:
            self._late.append(runner)

    def late(self) -> list[Runner]:
        """Return the runners that were asked to stop, and have not ended yet."""
        with self._mutex:
            self._late = [late for late in self._late if not late.stop(0.0)]
            return list(self._late)

    def require_ended(self, runner: Runner) -> None:
        """Check that no earlier runner still runs a component of a runner.

        Raises:
            SpillableError: one does.
        """
        found = [late.name for late in self.late() if late.components & runner.components]
        if found:
            raise SpillableError(f"{', '.join(found)} was stopped, and has not ended; see what it hangs in")

    def forget(self, runner: Runner) -> None:
        """Watch a runner no more, before it is stopped."""
        with self._mutex:
            self._watched.pop(runner.name, None)

    def _try(self, watched: _Watched) -> None:
        runner = watched.runner
        try:
            self.require_ended(runner)
            runner.start()
        except Exception as e:
            watched.trouble = f"{type(e).__name__}: {e}"
            wait_seconds = self._failed(watched)
            _log.error(
                "%s can't be started, and is tried again in %g s: %s",
                runner.name,
                wait_seconds,
                e,
                extra=fields(component=runner.name, seconds=wait_seconds),
            )
        else:
            watched.trouble = ""

    def _failed(self, watched: _Watched) -> float:
        wait_seconds: float = min(_LOOK_SECONDS * 2**watched.failures, _LONGEST_WAIT_SECONDS)
        watched.failures += 1
        watched.retry_at = self._now() + wait_seconds
        return wait_seconds

    def look(self) -> None:
        """Look at every runner once."""
        with self._mutex:
            for watched in self._watched.values():
                runner = watched.runner
                if runner.alive:
                    if self._now() >= watched.retry_at + _LONGEST_WAIT_SECONDS:
                        watched.failures = 0
                elif not watched.trouble:
                    watched.trouble = "it ended, and should not have"
                    wait_seconds = self._failed(watched)
                    _log.error(
                        "%s ended; it is started again in %g s", runner.name, wait_seconds,
                        extra=fields(component=runner.name, seconds=wait_seconds),
                    )  # fmt: skip
                elif self._now() >= watched.retry_at:
                    self.restarts += 1
                    self._try(watched)

    def troubles(self) -> dict[str, str]:
        """Return what does not work now: names of runners, each with the reason."""
        with self._mutex:
            found = {w.runner.name: w.trouble or w.runner.trouble for w in self._watched.values()}
        return {name: trouble for name, trouble in found.items() if trouble}

    def has_failed(self) -> bool:
        """Whether a runner can't be started, or has ended and should not have, now or before."""
        with self._mutex:
            return self.restarts > 0 or any(w.trouble for w in self._watched.values())

    def begin(self) -> None:
        """Look from time to time, in a thread."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="flow-supervisor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.look()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
