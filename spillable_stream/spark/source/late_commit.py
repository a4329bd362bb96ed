"""A commit that waits for the next append, to be in it, and is made by itself where none comes for a moment.

In an object store each append costs money and a tenth of a second. Spark ends a batch right before it plans the next
one, so the commit of the one and the take of the other go into one slot::

    latestOffset ── batch n is done ──▶ waits ──┬── partitions: take of n + 1, with the commit of n
                                                └── no such call for a second: the commit of n alone
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from spillable_stream.errors import SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["LateCommit"]

_log = log_of(__name__)


class LateCommit:
    """The clock of a commit that waits. Thread-safe.

    Args:
        commit: makes the commit, if it still has to be made; called in a thread of its own.
        path: the channel, for the log.
    """

    def __init__(self, commit: Callable[[], None], path: str) -> None:
        self._path = path
        self._commit = commit
        self._timer: threading.Timer | None = None
        self._mutex = threading.Lock()

    def within(self, seconds: float) -> None:
        """Make the commit after so many seconds, unless one is waiting already.

        Where the process can have no thread that waits, it is made at once, by itself.
        """
        with self._mutex:
            if self._timer is not None:
                return
            self._timer = threading.Timer(seconds, self._run)
            self._timer.name, self._timer.daemon = "spillable late commit", True
            try:
                start_thread(self._timer)
                return
            except NoThreadError:
                self._timer = None
        self._run()

    def cancel(self) -> None:
        """Forget the commit that waits, if there is one: it was made."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _run(self) -> None:
        with self._mutex:
            self._timer = None
        try:
            self._commit()
        except SpillableError as e:  # Spark's next call commits it, or raises this
            _log.warning(
                "%s: the take of a finished micro-batch is not committed yet: %s",
                self._path,
                e,
                extra=fields(self._path),
            )
