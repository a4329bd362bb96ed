"""A group's owner: claims events for take transactions, in order, and commits what was taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import NamedTuple, TypeVar, TypeVarTuple

from spillable_stream.arguments import flag, function, seconds, text, whole_number
from spillable_stream.channel.claims import Claims
from spillable_stream.channel.group_reader import GroupReader
from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.groups import create_group, record_owner
from spillable_stream.engine.process_owners import timeout_for
from spillable_stream.engine.requests import Request
from spillable_stream.engine.seeking import Choose, Seek, checked_position
from spillable_stream.engine.take_requests import Prepare, Rollback, Take, Takes, TakesAndPrepare
from spillable_stream.errors import (
    REFUSALS,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    GroupOwnedError,
    SpillableError,
    TransactionStateError,
)
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log_records import fields, log_of
from spillable_stream.names import check_group
from spillable_stream.quantities import Duration
from spillable_stream.state.ranges import Range, count_of

__all__ = ["Consumer", "TakeToCommit"]

_log = log_of(__name__)

_OWNER_SECONDS = 10.0

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class TakeToCommit(NamedTuple):
    """A take that `Consumer.commit_all` commits with others.

    Args:
        ranges: its events.
        prepared: the transaction's ID if `Consumer.prepare` wrote it, else 0.
    """

    ranges: list[Range]
    prepared: int = 0


class Consumer:
    """The one owner of a group; any number of its take transactions may be open at once.

    Beside what it says itself, every call raises a `ChannelClosedError` once the channel is closed, or the group is
    dropped, and what a look at the log raises (`Channel`).

    Args:
        engine: the channel.
        group: the group's name; it is created if it is new.
        owner_timeout_seconds: how long to wait for a former owner to go; by default 10 s, and not for another handle
            that the calling thread has made the owner: it would wait for itself.
        starting: where a new group starts: "earliest", "latest", or the ID of its first event.
        resume: keep the takes that a former owner prepared (`prepared`), for a reader that repeats its
            micro-batches; else they are rolled back.
        note: what to write about the owner beside the group, after its process and the time.
        create: creates the group if it is missing, once nobody else can own it; by default it starts at ``starting``.

    Attributes:
        group: the group's name.
        owner: what was written beside the group of this owner, and of no other (`Ownership.note`), when it came.
        former_owner: what was there of the last one (`Ownership.former`).
        active_calls: the calls that a close waits for, and that allow no other call inside.
        claims: what it has claimed, and not committed or given back.

    Raises:
        GroupOwnedError: another live consumer owns the group.
        OptionError: the group's name is not allowed, or another argument is not of its type.
    """

    def __init__(
        self,
        engine: Engine,
        group: str,
        owner_timeout_seconds: Duration | None = None,
        starting: str = "earliest",
        resume: bool = False,
        note: str = "",
        create: Callable[[], object] | None = None,
    ) -> None:
        self.group: str = check_group(group)
        resume = flag("resume", resume)
        if owner_timeout_seconds is None:
            owner_timeout_seconds = timeout_for(engine.owners.owner_of(group), _OWNER_SECONDS)
        wait_seconds = seconds("owner_timeout_seconds", owner_timeout_seconds)
        create = partial(create_group, engine, group, starting) if create is None else function("create", create)
        self._engine = engine
        self.active_calls: ActiveCalls = ActiveCalls(f"the group {group!r} of {engine.path}")
        self.active_calls.let_go = engine.active_calls.let_go
        self._mutex = threading.RLock()
        self._known = engine.follower.as_known
        self._reader = GroupReader(engine, group, self._mutex)
        self.claims: Claims = Claims(engine, group, self._reader, self._mutex)
        self._ownership = engine.owners.own(group, wait_seconds, text("note", note))
        try:
            self.owner: str = self._ownership.note
            self.former_owner: str = self._ownership.former
            _log.debug("the group %r of %s is owned here", group, engine.path, extra=fields(engine.path, group=group))
            self._take_over(create, resume)
        except BaseException:
            self.close()
            raise

    def _take_over(self, create: Callable[[], object], resume: bool) -> None:
        """Create the group; or roll back what a former owner left in flight, and record that an owner came.

        Every commit of the group's takes proves under the commit lock that its owner still is the owner. So once this
        owner has held the lock, those of a former owner, or on its behalf, are done or will be refused.
        """
        with self._engine.committing():
            self._ownership.require()
        with self._known as state:  # as it was found under the lock
            known, orphans = state.groups.get(self.group), state.open_takes(self.group)
            idle_ms = 0 if known is None else known.idle_ms
        if known is None:
            create()
        elif orphans and not resume:
            self._engine.commit(Rollback(orphans))
        if idle_ms:
            with suppress(*REFUSALS):  # then upkeep may see it
                record_owner(self._engine, self.group)

    def __repr__(self) -> str:
        return f"Consumer({self.group!r})"

    @property
    def is_lost(self) -> bool:
        """Whether it was closed, or a commit was refused because the group is another's: create a new one to take."""
        return self.active_calls.ended or self._ownership.lost is not None

    def require_owner(self) -> None:
        """Prove, by a look at the channel, that this is the group's owner still, before what can't be undone.

        Raises:
            ChannelClosedError: the consumer was closed.
            GroupOwnedError: another one owns the group, and is given the events.
        """
        self._call("a look", self._require_owner)

    def _require_owner(self) -> None:
        self._engine.follow()
        self._ownership.require()

    def position(self) -> int:
        """Return the ID up to which the group has taken every event."""
        with self._engine.snapshot() as state:
            return self.claims.group_in(state).position

    def lost(self) -> list[Range]:
        """Return the events that the group had yet to take when they were lost, until it takes a later one."""
        with self._engine.snapshot() as state:
            return list(self.claims.group_in(state).lost)

    def prepared(self) -> dict[int, list[Range]]:
        """Return what take transactions are prepared and not committed: transaction ID to ranges, oldest first."""
        with self._engine.snapshot() as state:
            return state.taking(self.group)

    def untaken(self, first_id: int, last_id: int) -> list[Range]:
        """Return the ranges between two IDs that the group has yet to take."""
        with self._engine.snapshot() as state:
            return list(self.claims.group_in(state).untaken(first_id, last_id))

    def has_missed(self, ranges: Iterable[Range]) -> bool:
        """Tell whether some of the events that the group had claimed have left the channel, and count as taken."""
        with self._engine.snapshot() as state:  # one: each is a look at the log, in a store a request
            group = self.claims.group_in(state)
            return any(list(group.untaken(first, last)) != [(first, last)] for first, last in ranges)

    def available(self) -> bool:
        """Tell whether there is an event to claim, without a look at the log: for `Engine.wait_for`, which looks."""
        with self._mutex, self._known as state:
            return next(self.claims.free(state), None) is not None

    def claim(self, limit: int, moved_at: int | None = None, into: list[Range] | None = None) -> list[Range]:
        """Take up to ``limit`` events out of the queue's head and return their IDs.

        Expired events are passed over: nobody is given them, and the next commit of this owner counts them as taken.
        Where nothing else is there, that is now; if it is refused now, the next call tries again. Nor is anything left
        then that is due: it is delivered first.

        Args:
            limit: how many at most.
            moved_at: `Claims.moved_at` at the first claim of the same transaction; None if this is the first.
            into: an empty list, which is returned and has the IDs as soon as they are claimed; None for a new one. Its
                owner gives it back after an interrupt.

        Raises:
            OptionError: ``limit`` is not an integer of at least 1.
            TransactionStateError: the group was moved since.
        """
        if type(limit) is not int or limit < 1:  # the whole rule is asked only of what looks wrong, for speed
            limit = whole_number("limit", limit)
        claimed: list[Range] = [] if into is None else into
        try:
            while True:
                expired, most_judged = self._call("a take", self.claims.claim, limit, limit, moved_at, claimed), limit
                while expired and (left := limit - count_of(claimed)) > 0:
                    most_judged *= 2  # a long run of expired events is read few times, and not once for each of them
                    expired = self._call("a take", self.claims.claim, left, most_judged, moved_at, claimed)
                if claimed or not (self._commit_passed() or self._engine.deliveries.deliver()):
                    return claimed
        except BaseException:
            self.claims.give_back(claimed, moved_at)
            raise

    def _commit_passed(self) -> bool:
        """Commit that expired events were passed over, and tell whether there were any; the commit may deliver more."""
        if self.claims.passed is not None:
            with suppress(TransactionStateError, *REFUSALS):  # the former: a seek came first, and gave them back
                self._commit([])
                return True
        return False

    def _call(self, call: str, section: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        """Call a section of code that `close` waits for.

        Raises:
            ChannelClosedError: the consumer was closed.
            GroupOwnedError: it was closed when it had lost its group.
        """
        calls, me = self.active_calls, get_ident()
        if me in calls.threads:
            calls.refuse(call)
        calls.threads[me] = call  # `ActiveCalls.run`, inlined for speed
        try:
            if calls.ended:
                self._engine.require_not_closed()
                if (lost := self._ownership.lost) is not None:
                    raise GroupOwnedError(lost.args[0], lost.owner)
                raise ChannelClosedError(f"{calls.of} was dropped or given up; its events are back in the queue")
            return section(*arguments)
        finally:
            del calls.threads[me]

    def read(self, ranges: Iterable[Range]) -> list[ReadBatch]:
        """Return the claimed events, in order.

        Raises:
            ChannelClosedError: the consumer was closed.
            CorruptionError: an event can't be read.
        """
        try:
            return self._call("a take", self._reader.read, ranges)
        except CorruptionError as e:
            self._engine.log.require_in_place()  # raises if the path leads elsewhere by now: that is why, then
            e.advise(self._engine.path)
            raise

    def prepare(self, ranges: list[Range], commit: Iterable[TakeToCommit] = (), *, after: int = 0) -> int:
        """Write that the ranges are being taken and return the transaction's ID.

        Those that were not claimed are judged now: which of them have expired is written, too.

        Args:
            ranges: the events.
            commit: takes to commit in the same append. On a disk, a crash may leave some of the first of them
                committed, and nothing prepared.
            after: the transaction's ID is greater than this one.

        Raises what `commit` does.
        """
        expired = self.claims.expired_among(ranges)
        prepare = Prepare(self.group, ranges, self._ownership.require, after, expired)
        takes = self._takes(commit)
        request = TakesAndPrepare(takes, prepare) if takes else prepare
        return self._call("a commit", self._engine.commit, request).transaction_id

    def commit(self, ranges: list[Range], prepared: int = 0, moved_at: int | None = None) -> int:
        """Commit claimed ranges: they never come back. Returns the transaction's ID.

        Args:
            ranges: the events.
            prepared: the transaction's ID if `prepare` wrote it, else 0.
            moved_at: `Claims.moved_at` when they were claimed; None if they were claimed just now.

        Raises:
            ChannelClosedError: the consumer was closed, or its group dropped: the events are back in the queue.
            CommitOutcomeUnknownError: whether it counts shows when the channel is opened again.
            GroupOwnedError: this is not the group's owner any more.
            StorageError: the storage refused; nothing was committed.
            TransactionStateError: the group was moved since (`seek`): the events are back in the queue.
        """
        require = partial(self._require_unmoved, self.claims.moved_at if moved_at is None else moved_at, prepared)
        take = Take(self.group, ranges, prepared, self._ownership.position, require)
        if self.claims.passed is not None:
            done = self._commit([take])
        else:
            try:
                done = self._call("a commit", self._engine.commit, take)
            except BaseException:
                self._hold_in_doubt(take, [take])
                raise
        self.claims.release(ranges)
        return done.transaction_id

    def _commit(self, takes: list[Take]) -> CommitResult:
        """Commit takes, and with them that of the expired events that were passed over, in one append."""
        passed, moved_at = self.claims.take_passed()
        require, ranges = partial(self._require_unmoved, moved_at, 0), list(passed)
        over = [Take(self.group, ranges, 0, self._ownership.position, require, ranges)] if ranges else []
        if not over and not takes:  # another thread has just committed it
            return CommitResult()
        request = Takes([*over, *takes])
        try:
            done = self._call("a commit", self._engine.commit, request)
        except BaseException:
            if self._hold_in_doubt(request, request.takes):
                self.claims.release(passed, moved_at)  # they are judged again if it does not take them
            else:
                self.claims.put_back_passed(passed, moved_at)
            raise
        self.claims.release(passed, moved_at)
        return done

    def _hold_in_doubt(self, request: Request, takes: list[Take]) -> bool:
        """Tell whether interrupts ended the wait for a commit of takes, not the commit: then hold what it may take."""
        is_committing = partial(self._engine.committer.group_commit.is_committing, request)
        if is_in_doubt := is_committing():
            self.claims.hold_while(is_committing, [r for take in takes for r in take.ranges])
        return is_in_doubt

    def commit_all(self, takes: Iterable[TakeToCommit]) -> None:
        """Commit several takes in one append: a crash leaves some of the first of them committed, and undoes none.

        Args:
            takes: the takes.

        Raises what `commit` does.
        """
        if request := self._takes(takes):
            self._call("a commit", self._engine.commit, request)

    def _takes(self, takes: Iterable[TakeToCommit]) -> Takes | None:
        requests = [
            Take(self.group, r, tx, self._ownership.position, partial(self._require_unmoved, self.claims.moved_at, tx))
            for r, tx in takes
        ]
        return Takes(requests) if requests else None

    def _require_unmoved(self, moved_at: int, prepared: int) -> None:
        """Prove that this is the owner, and what it commits was claimed or prepared where the group is now."""
        self._ownership.require()
        if moved_at != self.claims.moved_at or 0 < prepared < moved_at:
            raise self.claims.moved()

    def release(self, ranges: Iterable[Range], prepared: int = 0, moved_at: int | None = None) -> None:
        """Give claimed ranges back to the head of the queue; needs no disk unless they were prepared.

        Args:
            ranges: the events.
            prepared: the transaction's ID if `prepare` wrote it, else 0.
            moved_at: `Claims.moved_at` when they were claimed; None if they were claimed just now. What a seek has
                given back may be claimed again by now.
        """
        moved_at = self.claims.moved_at if moved_at is None else moved_at
        try:
            if prepared:  # first: whoever claims and prepares them then would get this transaction
                self._call("a rollback", self._engine.commit, Rollback([prepared]))
        finally:
            self.claims.release(ranges, moved_at)

    def seek(self, position: int, reset: str = "") -> None:
        """Move the group: the next event that it takes is the one after ``position``, or the first one after that.

        What it has claimed and prepared goes back to the queue; an open take transaction can only be rolled back. It is
        one durable commit: after a crash the group is where it was, or where it should be.

        Args:
            position: an event that the channel keeps, or the one before the first of these; the last event at most.
            reset: the move's name, if it must not be done twice: another seek of the name that was the last changes
                nothing.

        Raises:
            ChannelClosedError: the consumer was closed, or its group dropped.
            DataLossError: the event after ``position`` has left the channel; names the first that is kept.
            GroupOwnedError: this is not the group's owner any more.
            OptionError: ``position`` is beyond the last event, or not an integer of at least 0.
            StorageError: the disk refused; the group is where it was.
        """
        position, path = whole_number("position", position, 0), self._engine.path
        self.seek_to(lambda state: checked_position(position, state, path), reset)

    def seek_to(self, choose: Choose, reset: str = "") -> int:
        """Move the group as `seek` does, to where ``choose`` says under the commit lock; return its next event.

        It raises what `seek` raises, and what ``choose`` raises: nothing is changed then.
        """
        seek = Seek(self.group, choose, self._ownership, self._engine.path, reset, self.claims.void)

        def move() -> int:
            with self._mutex:  # nothing is claimed before the group is there
                with self._engine.snapshot() as state:
                    self.claims.group_in(state)
                claimed = self.claims.copy()
                try:
                    self._engine.commit(seek)
                except CommitOutcomeUnknownError:
                    raise
                except SpillableError:  # the group was not moved: what was claimed still is
                    self.claims.restore(claimed)
                    raise
            return seek.next_id

        return self._call("a seek", move)

    def write_note(self, note: str) -> None:
        """Write something else about the owner beside the group, after its process and the time.

        A loss of events is left to the next call: nobody asked for this one.

        Raises:
            ChannelClosedError: the consumer was closed.
            GroupOwnedError: this is not the group's owner any more.
            StorageError: the storage refused.
        """
        with self._engine.log.unasked():
            self._call("a note", self._ownership.write, text("note", note))

    def leave_note(self, note: str) -> None:
        """Write, at the end, what the group's next owner finds in `former_owner`, after the process and the time."""
        with suppress(ChannelClosedError):
            self._call("a note", self._ownership.leave_note, text("note", note))

    def close(self) -> None:
        """Give the group up when the calls under way are over; what was claimed is back in the queue.

        Raises:
            LockTimeoutError: a call of another thread does not end.
            TransactionStateError: this thread is inside of a call.
        """
        self.active_calls.end("a close", self._engine.lock_timeout_seconds)
        with self._mutex:  # whoever takes meanwhile closes it, too: the second one could release the next owner's lock
            self._reader.forget()
            self._ownership.close()
        path = self._engine.path
        _log.debug("the group %r of %s is given up", self.group, path, extra=fields(path, group=self.group))

    def leave(self) -> None:
        """In a forked child, where the threads of calls under way do not exist: leave the group to the parent."""
        self._reader.forget()
        self._ownership.leave()
