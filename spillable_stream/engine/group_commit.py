"""Group commit: threads that commit at the same time share one append and one sync.

Each thread queues its request. The thread that becomes the leader writes all queued requests and wakes their threads
(like the group commit of MySQL and PostgreSQL, and LevelDB's writer queue).

An interrupt (Ctrl-C) or an error can strike anywhere. So a ticket stays on the queue until it is done. If a leader is
interrupted before it could record a ticket's outcome, that ticket is never committed again: it fails as unknown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from spillable_stream.engine.append_plan import NOTHING_COMMITTED, CommitResult
from spillable_stream.engine.requests import Request
from spillable_stream.errors import CommitOutcomeUnknownError

__all__ = ["GroupCommit", "Ticket"]

_GROUP_BYTES = 16 << 20
_HEALED_SECONDS = 0.1
_WORTH_WAITING_SECONDS = 0.0002
_MOST_PASSED_OVER = 64
_THREAD = attrgetter("thread")


class Ticket:
    """A request that waits for its commit.

    Args:
        request: the request. If its size can't be computed, the constructor raises, and only this thread fails.

    Attributes:
        begun: whether a leader has begun to commit it.
        withdrawn: whether its thread was interrupted: no leader may begin it.
    """

    __slots__ = ("_woken", "begun", "done", "error", "request", "result", "size_bytes", "thread", "withdrawn")

    def __init__(self, request: Request) -> None:
        self.request: Request = request
        self.size_bytes: int = request.size_bytes()
        self.thread: int = threading.get_ident()
        self.begun: bool = False
        self.withdrawn: bool = False
        self.done: bool = False
        self.result: CommitResult = NOTHING_COMMITTED
        self.error: BaseException | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def fail(self, error: BaseException) -> None:
        """Finish the ticket with an error."""
        self.error, self.done = error, True

    def wait(self, timeout_seconds: float) -> None:
        """Wait for `wake`, but not for long: the thread that should call it may have been interrupted."""
        self._woken.acquire(timeout=timeout_seconds)

    def wake(self) -> None:
        """Wake this ticket's thread; the caller holds the queue's mutex."""
        if self._woken.locked():
            self._woken.release()


class GroupCommit:
    """The commit queue of one process. `Engine.commit` keeps a thread from calling `submit` inside its own `submit`.

    Args:
        commit: commits a group of tickets as one append and marks each done or failed. If it raises, the
            remaining tickets fail with that error.

    Attributes:
        pace: called by the leader, with the lead held, before it gathers each group: it may wait, and whoever commits
            meanwhile joins the group. None: not called.
    """

    def __init__(self, commit: Callable[[list[Ticket]], None]) -> None:
        self.pace: Callable[[], None] | None = None
        self._commit = commit
        self._lead = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._mutex = threading.Lock()
        self._in_last_group: set[int] = set()  # thread IDs
        self._took_seconds = 0.0  # how long the last group's commit took
        self._expecting: Ticket | None = None  # the leader's ticket while it waits for more requests
        self._vain = 0  # how many waits a lone leader passes over, since nobody came the last time
        self._passed_over = 0  # how many of these it has

    def waiting(self) -> int:
        """Return how many requests no leader has begun."""
        return sum([not ticket.begun for ticket in tuple(self._queue)])

    def is_committing(self, request: Request) -> bool:
        """Tell whether another thread is committing a request that its own thread no longer waits for."""
        with self._mutex:  # else a leader may be about to begin it
            return self._lead.locked() and any([t.request is request and t.begun and not t.done for t in self._queue])

    def submit(self, request: Request) -> CommitResult:
        """Commit a request, alone or with concurrent ones, and return its result. Raises what the commit raises."""
        ticket = Ticket(request)
        try:
            with self._mutex:
                self._queue.append(ticket)
                if self._expecting is not None:
                    self._expecting.wake()
            while not ticket.done:
                if self._lead.locked():  # do not block on the lead: that could also wait for the next group's sync
                    ticket.wait(_HEALED_SECONDS)
                else:
                    self._lead_until_done(ticket)
        except BaseException:  # interrupted: no leader may begin this ticket now
            ticket.withdrawn = True  # before any call, because a second interrupt could abort the call
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead_until_done(self, ticket: Ticket) -> None:
        """Commit groups until a ticket is done, then hand the lead to another thread."""
        with self._lead:
            while not ticket.done:  # the requests queued before it may fill whole groups
                if self._in_last_group != {ticket.thread}:
                    self._expect_company(ticket)
                self._commit_waiting()
        if self._queue:  # whoever queues from now on finds the lead free
            with self._mutex:
                if self._queue:
                    self._queue[0].wake()

    def _expect_company(self, ticket: Ticket) -> None:
        """Wait for the other threads of the last group, so that one sync serves all; at most half as long as it took.

        Like PostgreSQL's ``commit_delay``. A thread that commits alone does not wait, and neither does any where
        commits are as fast as in the memory tier, or where nobody came the last times: threads that do much
        between their commits, as a source and a sink of one channel, seldom meet.
        """
        others = self._in_last_group - {ticket.thread}
        if not others or self._took_seconds < _WORTH_WAITING_SECONDS:
            return
        if len(self._queue) == 1 and self._passed_over < self._vain:
            self._passed_over += 1
            return
        deadline = time.monotonic() + self._took_seconds / 2
        self._expecting = ticket
        try:
            while not others <= {t.thread for t in tuple(self._queue)} and (left := deadline - time.monotonic()) > 0:
                ticket.wait(left)
        finally:
            self._expecting = None
        self._vain = 0 if len(self._queue) > 1 else min(2 * self._vain + 1, _MOST_PASSED_OVER)
        self._passed_over = 0

    def _withdraw(self, ticket: Ticket) -> None:
        """Remove a ticket from the queue; if it is being committed, wait for that to finish.

        As long as the disk hangs, so does a commit. The leader can't be interrupted then; this thread can, once more.
        """
        with self._mutex:
            if not ticket.begun:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                return
        try:
            while not ticket.done and self._lead.locked():
                ticket.wait(_HEALED_SECONDS)
        except BaseException as e:  # interrupted again
            e.add_note("another thread was committing this, and may still do so: whether it counts is not known")
            raise

    def _commit_waiting(self) -> None:
        """Commit the next group; the caller holds the lead."""
        if self.pace is not None:
            self.pace()
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
        """Return the tickets of the next append, in order: about 16 MiB at most, unless the first alone is larger.

        A ticket that has begun already had a leader that was interrupted: it may or may not be in the log, so it fails.
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
        """Remove finished tickets from the queue's front, and wake the other threads of a group."""
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
