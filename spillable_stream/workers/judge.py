"""Decides what follows from a call of a worker's function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spillable_stream.error_text import type_and_text
from spillable_stream.errors import WorkerFailedError, WorkerKilledError, WorkerTimeoutError
from spillable_stream.log_records import fields, log_of
from spillable_stream.workers.config import WorkerConfig, function_name
from spillable_stream.workers.verdicts import DeadLetter, Drop, Retry
from spillable_stream.workers.work import Care, Deferred, Fate, Work, backoff_seconds, halves

__all__ = ["Judge"]

_log = log_of(__name__)

_REFUSED_SECONDS = 1.0  # the longest first wait for a channel that has no room or no time


class Judge:
    """Decides by a call's error what becomes of its events.

    Args:
        function: the function, for messages.
        path: the channel, for messages.
        config: how often events are tried again, and when.
        has_dead_letters: whether there is a channel for events that keep failing.
        rng: the jitter, from 0 to 1.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        path: str,
        config: WorkerConfig,
        has_dead_letters: bool,
        rng: Callable[[], float],
    ) -> None:
        self._function = function_name(function)
        self._path = path
        self._config = config
        self._has_dead_letters = has_dead_letters
        self._rng = rng

    def is_failure(self, error: BaseException | None) -> bool:
        """Tell whether a call failed, other than by a verdict of the function's."""
        return not (error is None or isinstance(error, (Retry, Drop, DeadLetter)))

    def judge(self, work: Work) -> list[Deferred]:
        """Set the fate of work whose function was called, or return what must be called again, and when.

        Raises:
            WorkerFailedError: it should become dead letters, and there is no channel for them.
        """
        error = work.error
        if error is None:
            work.fate = Fate.DONE
        elif isinstance(error, Drop):
            work.fate = Fate.DROPPED
        elif isinstance(error, DeadLetter):
            work.attempts += 1
            work.fate = self._given_up(work)
        elif isinstance(error, Retry):
            work.pauses += 1
            after = error.after_seconds
            return [Deferred(work, self._backoff(work.pauses) if after is None else after)]
        else:
            return list(self._failed(work, error))
        return []

    def _failed(self, work: Work, error: BaseException) -> Iterator[Deferred]:
        about = fields(self._path, first_id=work.first_id, last_id=work.last_id)
        _log.info("%s failed for %s of %s", self._function, work, self._path, exc_info=error, extra=about)
        if work.count > 1:
            yield from (Deferred(Work(ranges, care=work.care), 0.0) for ranges in halves(work.ranges))
            return
        work.attempts += 1
        if work.attempts < self._config.max_attempts:
            yield Deferred(work, self._backoff(work.attempts))
        else:
            work.fate = self._given_up(work)

    def _given_up(self, work: Work) -> Fate:
        if self._has_dead_letters:
            return Fate.DEAD
        is_killer = isinstance(work.error, WorkerKilledError)
        after = "; to have it called once more, raise max_attempts" if is_killer else ""
        what = type_and_text(work.error)
        times = "once" if work.attempts == 1 else f"{work.attempts:,} times"
        raise WorkerFailedError(
            f"{self._function} failed {times} for {work} of {self._path}: {what}. "
            f"There is no dead_letter channel, so the worker stops, and what it had claimed is back in the queue{after}"
        ) from work.error

    def begun(self, work: Work) -> Deferred | None:
        """Return when to call the function for events that were just claimed; None for now, or if they have a fate.

        An event that has ended a process often enough is not called again. One that has failed as often is: the
        function may have been mended since.

        Raises:
            WorkerFailedError: they should become dead letters, and there is no channel for them.
        """
        if not work.attempts:
            return None
        if work.care is Care.ALONE:
            work.error = WorkerKilledError(f"the process ended during this event (attempt {work.attempts})")
            if work.attempts >= self._config.max_attempts:
                work.fate = self._given_up(work)
                return None
        return Deferred(work, self._backoff(work.attempts))

    def refused(self, work: Work) -> Deferred:
        """Return when to try again to commit the fate of work: a channel has no room or no time now."""
        work.pauses, work.is_refused = work.pauses + 1, True
        return Deferred(work, backoff_seconds(_REFUSED_SECONDS, work.pauses, self._rng()))

    def late(self, work: Work) -> WorkerTimeoutError:
        """Return the error of a call that did not return in time."""
        return WorkerTimeoutError(
            f"{self._function} did not return within {self._config.timeout:g} s for {work} of {self._path}; its thread "
            "can't be stopped, and keeps running"
        )

    def too_many_late(self, calls: int) -> WorkerTimeoutError:
        """Return the error of a worker that stops, since too many calls have not returned."""
        return WorkerTimeoutError(
            f"{calls} calls of {self._function} have not returned within {self._config.timeout:g} s, and Python can't "
            f"end a thread: the worker of {self._path} stops. End the process and start it again"
        )

    def _backoff(self, failures: int) -> float:
        return backoff_seconds(self._config.backoff, failures, self._rng())
