"""Starts what an agent runs, watches it, starts again what has ended and should not have, and stops it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import SpillableError
from spillable_stream.flow.failures import FAILURES
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.runner import Runner, StartWaitsError, doubled_seconds
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["Supervisor"]

_log = log_of("spillable_stream.flow")

_LOOK_SECONDS = 3.0
_LONGEST_WAIT_SECONDS = 60.0
_SIGNAL_SECONDS = 0.2  # within which a signal is noticed
_START_SECONDS = 15.0  # for which others wait for a start: longer than that waits for another owner of a group


@dataclass(slots=True)
class _Watched:
    """A runner, and what its last starts came to."""

    runner: Runner
    has_begun: bool = False  # with its first start
    failures: int = 0
    retry_at: float = 0.0
    trouble: str = ""
    is_starting: bool = False
    waits: bool = False  # for the start of another one, or for an optional channel
    is_away: bool = False  # that channel
    doubt: str = ""  # why it can't be told whether it works

    @property
    def shown_trouble(self) -> str:
        """What keeps it from working now; an optional channel that is away does not count."""
        if self.is_away:
            return ""
        return self.trouble or self.doubt or ("it is being started" if self.is_starting else self.runner.trouble)


class Supervisor:
    """Starts runners, and starts one again that has ended: after 3 seconds, then twice as long, a minute at most.

    A start may hang, as in a mount that does not answer, so each has a thread of its own: nothing waits for it forever.

    Args:
        now: the clock, in monotonic seconds; for tests.
        must_stop: whether no start should be waited for any more.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, must_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._now, self._must_stop = now, must_stop
        self._watched: dict[str, _Watched] = {}
        self._late: list[Runner] = []
        self._changed = threading.Condition()  # a start has come back, or it looks no more
        self._is_ended = False
        self._thread: threading.Thread | None = None
        self.restarts: int = 0

    # ── start and stop ──────────────────────────────────────────────────────────────────────

    def start(self, *runners: Runner) -> None:
        """Start runners, all at once, and watch them; one that can't be started is tried again.

        Returns when each has started or failed, and says of those that take longer than fifteen seconds that they do.
        One that can't be started yet is started as soon as it can, and does not count until then.
        """
        found = {runner.name: _Watched(runner) for runner in runners}
        begun = [watched for watched in found.values() if watched.runner.may_start]
        with self._changed:
            self._watched |= found
            self._begin(begun)
        self._wait_for(begun)

    def _begin(self, found: Iterable[_Watched]) -> None:
        """Begin to start runners; the caller has the mutex."""
        for watched in found:
            watched.is_starting = watched.has_begun = True
            name = f"{watched.runner.name}-start"
            try:
                start_thread(threading.Thread(target=self._start, args=(watched,), name=name, daemon=True))
            except NoThreadError as e:
                watched.is_starting = False
                self._start_failed(watched, e)

    def _start(self, watched: _Watched) -> None:
        try:
            self.require_ended(watched.runner)
            watched.runner.start()
        except FAILURES as e:
            self._start_failed(watched, e)
        else:
            watched.trouble, watched.waits, watched.is_away = "", False, False
        finally:
            with self._changed:
                watched.is_starting = False
                self._changed.notify_all()

    def _start_failed(self, watched: _Watched, e: Exception | SystemExit) -> None:
        name = watched.runner.name
        with self._changed:
            if self._watched.get(name) is not watched:
                return  # it was stopped meanwhile
            watched.trouble = type_and_text(e)
            watched.is_away = isinstance(e, ChannelAwayError)
            watched.waits = watched.is_away or isinstance(e, StartWaitsError)
            wait_seconds = self._failed(watched)
        _log.error(
            "%s can't be started, and is tried again in %g s: %s",
            name,
            wait_seconds,
            text_of(e),
            extra=fields(component=name, seconds=wait_seconds),
        )

    def _wait_for(self, starts: Sequence[_Watched]) -> None:
        """Wait until some starts have come back, but not for one that hangs."""
        end = time.monotonic() + _START_SECONDS
        with self._changed:
            while any(w.is_starting for w in starts) and (left := end - time.monotonic()) > 0:
                if self._is_ended or self._must_stop():
                    return
                self._changed.wait(min(left, _SIGNAL_SECONDS))
            hung = [w.runner.name for w in starts if w.is_starting]
        for name in hung:
            _log.error(
                "%s is still being started after %g s, and the others run without it; check what it waits for",
                name,
                _START_SECONDS,
                extra=fields(component=name, seconds=_START_SECONDS),
            )

    def _failed(self, watched: _Watched) -> float:
        wait_seconds = doubled_seconds(_LOOK_SECONDS, watched.failures, _LONGEST_WAIT_SECONDS)
        watched.failures += 1
        watched.retry_at = self._now() + wait_seconds
        return wait_seconds

    def stop(self, runners: Iterable[Runner], seconds: float) -> list[Runner]:
        """Stop runners, and watch them no more.

        Args:
            runners: the runners.
            seconds: how long they may take, all together.

        Returns:
            Those that have not ended by then. Another runner of their components is started after them: two of one sink
            would share a note, and each would cut what the other writes.
        """
        stopping = list(runners)
        with self._changed:
            for runner in stopping:
                self._watched.pop(runner.name, None)
        for runner in stopping:
            runner.begin_stop()
        end = time.monotonic() + seconds
        late = [runner for runner in stopping if not runner.stop(max(0.0, end - time.monotonic()))]
        with self._changed:
            self._late += late
        for runner in late:
            _log.error(
                "%s did not end within %g s; check what it waits for",
                runner.name,
                seconds,
                extra=fields(component=runner.name, seconds=seconds),
            )
        return late

    def late(self) -> list[Runner]:
        """Return the runners that were asked to stop, and have not ended yet."""
        with self._changed:
            found = list(self._late)
        ended = [runner for runner in found if runner.stop(0.0)]
        with self._changed:
            self._late = [runner for runner in self._late if runner not in ended]
            return list(self._late)

    def require_ended(self, runner: Runner) -> None:
        """Check that no earlier runner still runs a component of a runner.

        Raises:
            SpillableError: one does.
        """
        found = [late.name for late in self.late() if late.components & runner.components]
        if found:
            raise SpillableError(f"{', '.join(found)} was stopped, and has not ended; check what it waits for")

    # ── watch ───────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Look at every runner once."""
        with self._changed:
            due = [watched for watched in self._watched.values() if self._is_due(watched)]
            self.restarts += sum(watched.has_begun and not watched.waits for watched in due)
            self._begin(due)
        self._wait_for(due)

    def _is_due(self, watched: _Watched) -> bool:
        """Look at a runner, and tell whether it must be started now, for the first time or again."""
        runner = watched.runner
        if watched.is_starting:
            return False
        if not watched.has_begun:
            return runner.may_start
        try:
            is_alive = runner.alive
        except Exception as e:  # a source of the user's own: the others are still watched
            if not watched.doubt:
                name = runner.name
                _log.of(name).exception("it can't be told whether it works")
            watched.doubt = f"it can't be told whether it works: {type_and_text(e)}"
            return False
        watched.doubt = ""
        if is_alive:
            if self._now() >= watched.retry_at + _LONGEST_WAIT_SECONDS:
                watched.failures = 0
            return False
        if watched.trouble:
            return self._now() >= watched.retry_at
        watched.trouble = "it ended, and should not have"
        wait_seconds = self._failed(watched)
        _log.error(
            "%s ended; it is started again in %g s",
            runner.name,
            wait_seconds,
            extra=fields(component=runner.name, seconds=wait_seconds),
        )
        return False

    def troubles(self) -> dict[str, str]:
        """Return what does not work now: names of runners, each with the reason."""
        with self._changed:
            found = {w.runner.name: w.shown_trouble for w in self._watched.values()}
        return {name: trouble for name, trouble in found.items() if trouble}

    def has_failed(self) -> bool:
        """Whether a runner can't be started, or has ended and should not have, now or before."""
        with self._changed:
            return self.restarts > 0 or any(w.trouble and not w.waits for w in self._watched.values())

    def begin(self) -> None:
        """Look from time to time, in a thread.

        Raises:
            StorageError: the process can have no more threads.
        """
        thread = threading.Thread(target=self._run, name="flow-supervisor", daemon=True)
        start_thread(thread)
        self._thread = thread

    def _run(self) -> None:
        while not self._wait_for_end(_LOOK_SECONDS):
            try:
                self.look()
            except Exception:
                _log.exception(
                    "a look at what runs failed; the next one is in %g s",
                    _LOOK_SECONDS,
                    extra=fields(seconds=_LOOK_SECONDS),
                )

    def _wait_for_end(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_ended, seconds)

    def end(self) -> None:
        """Look no more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
