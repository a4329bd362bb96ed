"""Group commit: threads that commit at the same time share one append and one sync.

Each puts its request on a queue; whoever gets the lead writes all that wait, and wakes them (after
MySQL's and PostgreSQL's group commit, and LevelDB's writer queue).

An interrupt (Ctrl-C) or an error may come anywhere. So a ticket stays on the queue until it is done; one that was begun
with and whose leader was interrupted before it could say how that ended is never begun with again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.requests import Request
from spillable_stream.errors import CommitOutcomeUnknownError

__all__ = ["GroupCommit", "Ticket"]

_GROUP_BYTES = 16 << 20
_HEALED_SECONDS = 0.1
_WORTH_WAITING_SECONDS = 0.0002
_THREAD = attrgetter("thread")


class Ticket:
    """A request that waits for its commit.

    Args:
        request: what is to be committed; one whose size can't be told raises here, and concerns nobody else.

    Attributes:
        begun: whether a leader has begun to commit it.
        withdrawn: whether its thread was interrupted: nobody may begin with it any more.
    """

    __slots__ = ("_woken", "begun", "done", "error", "request", "result", "size_bytes", "thread", "withdrawn")

    def __init__(self, request: Request) -> None:
        self.request: Request = request
        self.size_bytes: int = request.size_bytes()
        self.thread: int = threading.get_ident()
        self.begun: bool = False
        self.withdrawn: bool = False
        self.done: bool = False
        self.result: CommitResult = CommitResult()
        self.error: BaseException | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def fail(self, error: BaseException) -> None:
        """End the wait with an error."""
        self.error, self.done = error, True

    def wait(self, timeout_seconds: float) -> None:
        """Wait for `wake`, but not for long: who was to wake it may have been interrupted."""
        self._woken.acquire(timeout=timeout_seconds)

    def wake(self) -> None:
        """Let the thread of this ticket look at it; under the queue's mutex."""
        if self._woken.locked():
            self._woken.release()


class GroupCommit:
    """The queue of the requests of one process. No thread submits inside of its own `submit` (`Engine.commit`).

    Args:
        commit: commits a group of tickets as one append and marks each done or failed; what it raises
            fails those that are neither.
    """

    def __init__(self, commit: Callable[[list[Ticket]], None]) -> None:
        self._commit = commit
        self._lead = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._mutex = threading.Lock()
        self._in_last_group: set[int] = set()  # threads
        self._took_seconds = 0.0  # the last group's commit
        self._expecting: Ticket | None = None  # whose thread has the lead and waits for company

    def waiting(self) -> int:
        """Return how many requests wait for the lead."""
        return sum([not ticket.begun for ticket in tuple(self._queue)])

    def submit(self, request: Request) -> CommitResult:
        """Commit a request, alone or together with others, and return what it got. Raises what the commit raised."""
        ticket = Ticket(request)
        try:
            with self._mutex:
                self._queue.append(ticket)
                if self._expecting is not None:
                    self._expecting.wake()
            while not ticket.done:
                if self._lead.locked():  # who waits for the lead itself would wait for the next group's sync, too
                    ticket.wait(_HEALED_SECONDS)
                else:
                    self._lead_until_done(ticket)
        except BaseException:  # interrupted: nobody may commit it any more
            ticket.withdrawn = True  # before any call, which a second interrupt could end
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead_until_done(self, ticket: Ticket) -> None:
        """Commit groups until a ticket is done, then let another thread have the lead."""
        with self._lead:
            while not ticket.done:  # the groups before it may be large
                if self._in_last_group != {ticket.thread}:
                    self._expect_company(ticket)
                self._commit_waiting()
        with self._mutex:
            if self._queue:
                self._queue[0].wake()

    def _expect_company(self, ticket: Ticket) -> None:
        """Wait for the threads that were in the last group, half as long as that took: one sync serves all of them.

        After PostgreSQL's ``commit_delay``. A thread that commits alone waits for nobody, and nobody waits where a
        commit is as quick as the memory tier's.
        """
        others = self._in_last_group - {ticket.thread}
        if not others or self._took_seconds < _WORTH_WAITING_SECONDS:
            return
        deadline = time.monotonic() + self._took_seconds / 2
        self._expecting = ticket
        try:
            while not others <= {t.thread for t in tuple(self._queue)} and (left := deadline - time.monotonic()) > 0:
                ticket.wait(left)
        finally:
            self._expecting = None

    def _withdraw(self, ticket: Ticket) -> None:
        """Take a ticket off the queue; if it is being committed, wait until that is over."""
        with self._mutex:
            if not ticket.begun:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                return
        with self._lead:
            pass

    def _commit_waiting(self) -> None:
        """Commit the next group; the lead is held."""
        group = self._gather()
        began = time.monotonic()
        try:
            self._commit(group)
        except Exception as e:
            _fail(group, e)
        except BaseException:
            _fail(group, _interrupted())
            raise
        finally:
            self._took_seconds, self._in_last_group = time.monotonic() - began, set(map(_THREAD, group))
            self._leave_queue(group)

    def _gather(self) -> list[Ticket]:
        """Return the tickets that the next append serves, in order: at least one, and some 16 MiB at most.

        What is begun already was a leader's that an interrupt ended at the wrong moment: it may be in the log or not.
        """
        group: list[Ticket] = []
        lost: list[Ticket] = []
        size_bytes = 0
        with self._mutex:
            for ticket in self._queue:
                if ticket.begun:
                    lost.append(ticket)
                if ticket.begun or ticket.withdrawn:
                    continue
                size_bytes += ticket.size_bytes
                if group and size_bytes > _GROUP_BYTES:
                    break
                group.append(ticket)
            for ticket in group:
                ticket.begun = True
        if lost:
            _fail(lost, _interrupted())
            self._leave_queue(lost)
        return group

    def _leave_queue(self, group: list[Ticket]) -> None:
        """Take tickets that are done off the queue, and wake the threads of the others."""
        me = threading.get_ident()
        with self._mutex:
            while self._queue and (self._queue[0].done or self._queue[0].withdrawn):
                self._queue.popleft()
            for ticket in group:
                if ticket.thread != me:
                    ticket.wake()


def _interrupted() -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError("the thread that committed was interrupted")


def _fail(group: list[Ticket], error: BaseException) -> None:
    for ticket in group:
        if not ticket.done:
            ticket.fail(error)
