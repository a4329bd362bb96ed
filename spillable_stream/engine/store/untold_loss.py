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

from threading import get_ident
from types import TracebackType

from spillable_stream.errors import UnsafeStoreError
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.location import Location

__all__ = ["UntoldLoss"]

_log = log_of(__name__)


class UntoldLoss:
    """What keeps a loss for a later call. Thread-safe.

    Work that no call asked for, or whose caller has succeeded, is done in a block, ``with untold_loss``. A loss ends
    the block, and nothing else. What waits is not raised inside of one. A block may be inside of another.

    Args:
        path: the channel, for the log record.

    Attributes:
        waiting: the loss that a later call raises; None if there is none. It is the first of several.
    """

    def __init__(self, path: Location) -> None:
        self.waiting: UnsafeStoreError | None = None
        self._path = path
        self._depths: dict[int, int] = {}  # in how many blocks a thread is

    def __enter__(self) -> None:
        me = get_ident()
        self._depths[me] = self._depths.get(me, 0) + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        me = get_ident()
        if (depth := self._depths.pop(me)) > 1:
            self._depths[me] = depth - 1
        if not isinstance(error, UnsafeStoreError):
            return False
        _log.error("%s: %s", self._path, error, extra=fields(self._path))
        if self.waiting is None:
            self.waiting = UnsafeStoreError(*error.args)  # another one: a traceback keeps what its frames had
        return True

    def tell(self) -> None:
        """Raise what waits, once; in a block of this thread nothing is raised.

        The caller has stored nothing yet, and the error says so.

        Raises:
            UnsafeStoreError: a loss waits.
        """
        if get_ident() in self._depths:
            return
        error, self.waiting = self.waiting, None
        if error is not None:
            error.stored_nothing = True
            raise error
