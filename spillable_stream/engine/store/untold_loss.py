"""A loss that a handle meets where no call of the user could raise it: it waits in the handle, and a later call does.

::

    a call of the user       meets it ── raises it
    a thread of the handle   meets it ── logs it, and it waits ─┐
    what follows a commit    meets it ── logs it, and it waits ─┼─▶ the next put, take, commit or checkpoint raises it
    what shows the channel   meets it ── logs it, and it waits ─┘

Either way it is raised once: the call after that continues with what is there. What it tells is of earlier events: the
call that raises what waits has stored nothing, and may be repeated. A call that only looks leaves it, since nobody may
see what that raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from spillable_stream.errors import UnsafeStoreError
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.location import Location

__all__ = ["UntoldLoss"]

_log = log_of(__name__)


class UntoldLoss:
    """What keeps a loss for a later call. Thread-safe.

    Args:
        path: the channel, for the log record.

    Attributes:
        waiting: the loss that a later call raises; None if there is none. It is the first of several.
    """

    def __init__(self, path: Location) -> None:
        self.waiting: UnsafeStoreError | None = None
        self._path = path
        self._threads: set[int] = set()  # those that are in a block
        self._mutex = Lock()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Do work that no call asked for, or whose caller has succeeded. A block may be inside of another.

        A loss ends the block, and nothing else. What waits is not raised inside of one.
        """
        me = get_ident()
        is_outermost = me not in self._threads
        try:
            self._threads.add(me)
            yield
        except UnsafeStoreError as e:
            if not e.stored_nothing:  # else it was told: to the thread whose group commit this was a request of
                self._keep(e)
        finally:
            if is_outermost:
                self._threads.discard(me)

    def let_go(self) -> None:
        """Forget that this thread, whose call has ended, is in a block (`ActiveCalls.let_go`)."""
        self._threads.discard(get_ident())

    def _keep(self, error: UnsafeStoreError) -> None:
        kept = UnsafeStoreError(*error.args)  # another one: a traceback keeps what its frames had
        with self._mutex:
            if self.waiting is None:
                self.waiting = kept
        _log.error("%s: %s", self._path, error, extra=fields(self._path))

    def tell(self) -> None:
        """Raise what waits, once; in a block of this thread nothing is raised.

        The caller has stored nothing yet, and the error says so.

        Raises:
            UnsafeStoreError: a loss waits.
        """
        if get_ident() in self._threads:
            return
        with self._mutex:
            error, self.waiting = self.waiting, None
            if error is not None:
                error.stored_nothing = True
                raise error  # in the block: between its end and here an interrupt would lose it
