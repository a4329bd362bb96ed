"""The thread in which a handle looks after its channel, where the channel needs it, and what it logs when it can't."""

from __future__ import annotations

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.periodic_thread import PeriodicThread, PeriodicWork
from spillable_stream.errors import StorageError
from spillable_stream.log_records import Seldom, fields, log_of

__all__ = ["UpkeepThread"]

_log = log_of(__name__)


class UpkeepThread:
    """Runs the upkeep of a handle from `ensure` to `end`. Thread-safe.

    Args:
        upkeep: what is done; it has this thread.
        log: the channel's log.
        follower: its state.
        active_calls: the calls that are under way in this process.
    """

    def __init__(self, upkeep: PeriodicWork, log: Log, follower: Follower, active_calls: ActiveCalls) -> None:
        self._log = log
        self._follower = follower
        self._active_calls = active_calls
        self._thread = PeriodicThread(upkeep, "spillable upkeep", lambda: not active_calls.ended)
        self._warning = Seldom()

    def is_alive(self) -> bool:
        """Tell whether the thread is there."""
        return self._thread.is_alive()

    def is_needed(self) -> bool:
        """Tell whether the channel keeps taken events, or has automatic groups, and this handle may write."""
        return not self._log.is_view and self._follower.state.needs_upkeep()

    def is_over(self) -> bool:
        """Tell whether the handle is closed, so that there is nothing more to do."""
        return self._active_calls.ended or self._log.closed

    def ensure(self) -> None:
        """Start the thread if it is needed and not there. If it can't begin, that is logged, and tried again later."""
        if not self.is_alive() and self.is_needed():
            try:
                self._thread.ensure()
            except StorageError as e:  # the call that needs it has done what it was asked for
                if self._warning.is_due():
                    _log.warning("nobody looks after %s for now: %s", self._log.path, e, extra=fields(self._log.path))

    def end(self, within_seconds: float | None = None) -> bool:
        """End the thread, and tell whether it has ended, as `PeriodicThread.end` does, with its argument."""
        return self._thread.end(within_seconds)

    def report(self, error: Exception, until: str = "for now", *, seldom: bool = True) -> None:
        """Log that something due was not done, unless the handle is closed.

        Args:
            error: why not.
            until: how long it stays so.
            seldom: whether to log it once a minute, rather than each time.
        """
        if not self._log.closed and (not seldom or self._warning.is_due()):
            _log.warning(
                "kept events and groups without an owner stay in %s %s: %s",
                self._log.path,
                until,
                error,
                extra=fields(self._log.path),
            )
