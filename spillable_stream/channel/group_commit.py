"""Group commit: threads that commit at the same time share one append and one sync.

Each puts its request on a queue; whoever gets the lead writes all that wait, the rest find theirs
done (after MySQL's and PostgreSQL's group commit, and LevelDB's writer queue).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from spillable_stream.channel.requests import Committed, Request
from spillable_stream.errors import CommitOutcomeUnknownError

__all__ = ["GroupCommit", "Ticket"]

_GROUP_BYTES = 16 << 20


class Ticket:
    """A request that waits for its commit."""

    __slots__ = ("done", "error", "request", "result")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        self.result = Committed()
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """End the wait with an error."""
        self.error, self.done = error, True


class GroupCommit:
    """The queue of the requests of one process.

    Args:
        commit: commits a group of tickets as one append and marks each done or failed; what it raises
            fails those that are neither.
    """

    def __init__(self, commit: Callable[[list[Ticket]], None]) -> None:
        self._commit = commit
        self._lead = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._mutex = threading.Lock()

    def waiting(self) -> int:
        """Return how many requests wait for the lead."""
        return len(self._queue)

    def submit(self, request: Request) -> Committed:
        """Commit a request, alone or together with others, and return what it got. Raises what the commit raised."""
        ticket = Ticket(request)
        with self._mutex:
            self._queue.append(ticket)
        try:
            with self._lead:
                while not ticket.done:  # the groups before it may be large
                    self._commit_waiting()
        except BaseException:  # interrupted: nobody may commit it any more
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _withdraw(self, ticket: Ticket) -> None:
        """Take a ticket off the queue; if it is being committed, wait until that is over."""
        with self._mutex:
            if ticket in self._queue:
                self._queue.remove(ticket)
                return
        with self._lead:
            pass

    def _commit_waiting(self) -> None:
        group = self._gather()
        try:
            self._commit(group)
        except Exception as e:
            _fail(group, e)
        except BaseException:
            _fail(group, CommitOutcomeUnknownError("the thread that committed was interrupted"))
            raise

    def _gather(self) -> list[Ticket]:
        """Return the tickets that the next append serves, in order: at least one, and some 16 MiB at most."""
        group: list[Ticket] = []
        size_bytes = 0
        with self._mutex:
            while self._queue:
                size_bytes += self._queue[0].request.size_bytes()
                if group and size_bytes > _GROUP_BYTES:
                    break
                group.append(self._queue.popleft())
        return group


def _fail(group: list[Ticket], error: BaseException) -> None:
    for ticket in group:
        if not ticket.done:
            ticket.fail(error)
