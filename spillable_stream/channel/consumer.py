"""A group's owner: claims events for take transactions, in order, and commits what was taken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TypeVar, TypeVarTuple

from spillable_stream.arguments import flag, function, seconds, text, whole_number
from spillable_stream.channel.group_reader import GroupReader
from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import now_us
from spillable_stream.engine.groups import create_group
from spillable_stream.engine.seeking import Choose, Seek, checked_position
from spillable_stream.engine.take_requests import Prepare, Rollback, Take, Takes, TakesAndPrepare
from spillable_stream.errors import (
    REFUSALS,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    SpillableError,
    TransactionStateError,
)
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log_records import fields
from spillable_stream.names import check_group
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range, RangeSet, count_of

__all__ = ["Consumer"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Ts = TypeVarTuple("_Ts")


class Consumer:
    """The one owner of a group; any number of its take transactions may be open at once.

    Args:
        engine: the channel.
        group: the group's name; it is created if it is new.
        owner_timeout_seconds: how long to wait for a former owner to go.
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
        moved_at: the first transaction ID that was not in use when this owner last moved the group (`seek`); 0 before.
            What was claimed with an earlier value, and what was prepared with a smaller ID, is void.

    Raises:
        GroupOwnedError: another live consumer owns the group.
        OptionError: the group's name is not allowed, or another argument is not of its type.
    """

    def __init__(
        self,
        engine: Engine,
        group: str,
        owner_timeout_seconds: float = 10.0,
        starting: str = "earliest",
        resume: bool = False,
        note: str = "",
        create: Callable[[], object] | None = None,
    ) -> None:
        self.group: str = check_group(group)
        wait_seconds, resume = seconds("owner_timeout_seconds", owner_timeout_seconds), flag("resume", resume)
        create = partial(create_group, engine, group, starting) if create is None else function("create", create)
        self._engine = engine
        self.active_calls: ActiveCalls = ActiveCalls(f"the group {group!r} of {engine.path}")
        self.moved_at: int = 0
        self._held = RangeSet()
        self._passed: RangeSet | None = None  # of these the expired ones, which the next commit takes
        self._mutex = threading.RLock()
        self._known = engine.follower.as_known
        self._snapshot = engine.follower.snapshot
        self._reader = GroupReader(engine, group, self._mutex)
        self._ownership = engine.owners.own(group, wait_seconds, text("note", note))
        self.owner: str = self._ownership.note
        self.former_owner: str = self._ownership.former
        _log.debug("the group %r of %s is owned here", group, engine.path, extra=fields(engine.path, group=group))
        try:
            self._take_over(create, resume)
        except BaseException:
            self.close()
            raise

    def _take_over(self, create: Callable[[], object], resume: bool) -> None:
        """Create the group, or roll back what a former owner left in flight.

        Whoever commits takes of the group passes through the channel's lock, and looks there whether it is still the
        owner. So one that was the owner, or helps one, is done when this one has had the lock, or will find it here.
        """
        with self._engine.committing():
            self._ownership.require()
        with self._known as state:  # as it was found under the lock
            known, orphans = self.group in state.groups, state.open_takes(self.group)
        if not known:
            create()
        elif orphans and not resume:
            self._engine.commit(Rollback(orphans))

    def _state(self, state: ChannelState) -> GroupState:
        found = state.groups.get(self.group)
        if found is None:
            raise ChannelClosedError(f"the group {self.group!r} of {self._engine.path} was dropped")
        return found

    def position(self) -> int:
        """Return the ID up to which the group has taken every event."""
        with self._engine.snapshot() as state:
            return self._state(state).position

    def lost(self) -> list[Range]:
        """Return the events that the group had yet to take when they were lost, until it takes a later one."""
        with self._engine.snapshot() as state:
            return list(self._state(state).lost)

    def prepared(self) -> dict[int, list[Range]]:
        """Return what take transactions are prepared and not committed: transaction ID to ranges, oldest first."""
        with self._engine.snapshot() as state:
            return state.taking(self.group)

    def untaken(self, first_id: int, last_id: int) -> list[Range]:
        """Return the ranges between two IDs that the group has yet to take."""
        with self._engine.snapshot() as state:
            group = self._state(state)
            return list(group.ahead.gaps(max(first_id, group.position + 1), last_id))

    def is_taken(self, first_id: int, last_id: int) -> bool:
        """Tell whether an event of a range, which the group had claimed, counts as taken: it has expired meanwhile."""
        return self.untaken(first_id, last_id) != [(first_id, last_id)]

    def available(self) -> bool:
        """Tell whether there is an event to claim, without a look at the log: for `Engine.wait_for`, which looks."""
        with self._mutex, self._known as state:
            return next(self._free(state), None) is not None

    def _free(self, state: ChannelState) -> Iterator[Range]:
        group = self._state(state)
        busy = group.ahead.union(self._held) if len(self._held) else group.ahead
        return busy.gaps(group.position + 1, state.last_id)

    def claim(self, limit: int, moved_at: int | None = None) -> list[Range]:
        """Take up to ``limit`` events out of the queue's head and return their IDs.

        Expired events are passed over: nobody is given them, and the next commit of this owner counts them as taken.
        Where nothing else is there, that is now; if it is refused now, the next call tries again.

        Args:
            limit: how many at most.
            moved_at: `moved_at` at the first claim of the same transaction; None if this is the first.

        Raises:
            OptionError: ``limit`` is not an integer of at least 1.
            TransactionStateError: the group was moved since.
        """
        if type(limit) is not int or limit < 1:  # the whole rule is asked only of what looks wrong, for speed
            limit = whole_number("limit", limit)
        claimed, expired = self._call("a take", self._claim, limit, limit, moved_at)
        most_judged = limit
        while expired and (left := limit - count_of(claimed)) > 0:
            most_judged *= 2  # a long run of expired events is read few times, and not once for each of them
            try:
                more, expired = self._call("a take", self._claim, left, most_judged, moved_at)
            except BaseException:
                self.release(claimed, moved_at=moved_at)
                raise
            claimed += more
        if not claimed and self._passed is not None:
            with suppress(TransactionStateError, *REFUSALS):  # the former: a seek came first, and has given them back
                self._commit([])
        return claimed

    def _call(self, call: str, section: Callable[[*_Ts], T], *arguments: *_Ts) -> T:
        """Call a section of code that `close` waits for.

        Raises:
            ChannelClosedError: the consumer was closed.
        """
        calls, me = self.active_calls, get_ident()
        if me in calls.threads:
            calls.refuse(call)
        calls.threads[me] = call  # `ActiveCalls.run`, inlined for speed
        try:
            if calls.ended:
                raise ChannelClosedError(f"{calls.of} was dropped or given up; its events are back in the queue")
            return section(*arguments)
        finally:
            del calls.threads[me]

    def _moved(self) -> TransactionStateError:
        return TransactionStateError(
            f"the group {self.group!r} of {self._engine.path} was moved by a seek since this transaction took "
            "from it: nothing of it is committed. Roll it back, and begin another one"
        )

    def _claim(self, limit: int, most_judged: int, moved_at: int | None) -> tuple[list[Range], list[Range]]:
        """Return up to ``limit`` events, and those before or among them that have expired and are passed over.

        Whether they have is asked of up to ``most_judged`` events, at least ``limit``.
        """
        claimed: list[Range] = []
        with self._mutex:
            with self._snapshot as state:
                if moved_at is not None and moved_at != self.moved_at:
                    raise self._moved()
                may_expire = state.blocks.disk.has_expiry or state.blocks.memory.has_expiry
                by_us = now_us() if may_expire else 0
                if by_us:
                    claimed = self._first_free(state, most_judged, by_us)
                else:
                    for first, last in self._free(state):
                        last = min(last, first + limit - 1)
                        claimed.append((first, last))
                        limit -= last - first + 1
                        if limit <= 0:
                            break
                for first, last in claimed:
                    self._held.add(first, last)
            return self._pass_over(claimed, limit, by_us) if by_us else (claimed, [])

    def _first_free(self, state: ChannelState, limit: int, by_us: int) -> list[Range]:
        """Return the first events that nobody has; whole blocks that have expired don't count against the limit."""
        found = RangeSet()
        for first, last in self._free(state):
            while first <= last and limit > 0:
                through = state.blocks.expired_through(first, last, by_us)
                end = min(last, through + limit)
                found.add(first, end)
                limit -= end - through
                first = end + 1
        return list(found)

    def _pass_over(self, claimed: list[Range], limit: int, by_us: int) -> tuple[list[Range], list[Range]]:
        """Divide events that were just claimed into the first that are left to take, and those that have expired.

        What is behind ``limit`` of the former is given back.
        """
        try:
            expired = RangeSet(self._reader.expired(claimed, by_us))
        except BaseException:
            for first, last in claimed:
                self._held.remove(first, last)
            raise
        left: list[Range] = []
        for first, last in (r for each in claimed for r in expired.gaps(*each)):
            if limit <= 0:
                break
            last = min(last, first + limit - 1)
            left.append((first, last))
            limit -= last - first + 1
        if limit <= 0:
            for first, last in RangeSet(claimed).within(left[-1][1] + 1, claimed[-1][1]):
                self._held.remove(first, last)
                expired.remove(first, last)
        if expired:
            self._passed = self._passed or RangeSet()
            for first, last in expired:
                self._passed.add(first, last)
        return left, list(expired)

    def read(self, ranges: Iterable[Range]) -> list[ReadBatch]:
        """Return the claimed events, in order.

        Raises:
            ChannelClosedError: the consumer was closed.
            CorruptionError: an event can't be read.
        """
        try:
            return self._call("a take", self._reader.read, ranges)
        except CorruptionError:
            self._engine.log.require_in_place()  # else it read what is at the path now
            raise

    def prepare(self, ranges: list[Range], commit: Iterable[tuple[list[Range], int]] = (), *, after: int = 0) -> int:
        """Write that the ranges are being taken and return the transaction's ID.

        Those that were not claimed are judged now: which of them have expired is written, too.

        Args:
            ranges: the events.
            commit: takes to commit in the same append, as `commit_all` takes them: all of it is durable, or nothing.
            after: the transaction's ID is greater than this one.

        Raises what `commit` does.
        """
        with self._mutex:
            expired = self._reader.expired([r for each in ranges for r in self._held.gaps(*each)], now_us())
        prepare = Prepare(self.group, ranges, self._ownership.require, after, expired)
        takes = self._takes(commit)
        request = TakesAndPrepare(takes, prepare) if takes else prepare
        return self._call("a commit", self._engine.commit, request).transaction_id

    def commit(self, ranges: list[Range], prepared: int = 0, moved_at: int | None = None) -> int:
        """Commit claimed ranges: they never come back. Returns the transaction's ID.

        Args:
            ranges: the events.
            prepared: the transaction's ID if `prepare` wrote it, else 0.
            moved_at: `moved_at` when they were claimed; None if they were claimed just now.

        Raises:
            ChannelClosedError: the consumer was closed, or its group dropped: the events are back in the queue.
            TransactionStateError: the group was moved since (`seek`): the events are back in the queue.
        """
        require = partial(self._require_unmoved, self.moved_at if moved_at is None else moved_at, prepared)
        take = Take(self.group, ranges, prepared, self._ownership.position, require)
        commit = self._engine.commit
        done = self._call("a commit", commit, take) if self._passed is None else self._commit([take])
        with self._mutex:
            for first, last in ranges:
                self._held.remove(first, last)
        return done.transaction_id

    def _commit(self, takes: list[Take]) -> CommitResult:
        """Commit takes, and with them that of the expired events that were passed over, in one append."""
        with self._mutex:
            passed, moved_at, self._passed = self._passed or RangeSet(), self.moved_at, None
        require, ranges = partial(self._require_unmoved, moved_at, 0), list(passed)
        over = [Take(self.group, ranges, 0, self._ownership.position, require, ranges)] if ranges else []
        if not over and not takes:  # another thread has just committed it
            return CommitResult()
        try:
            done = self._call("a commit", self._engine.commit, Takes([*over, *takes]))
        except BaseException:
            with self._mutex:
                if moved_at == self.moved_at:
                    self._passed = passed.union(self._passed or ())
            raise
        with self._mutex:
            if moved_at == self.moved_at:
                for first, last in passed:
                    self._held.remove(first, last)
        return done

    def commit_all(self, takes: Iterable[tuple[list[Range], int]]) -> None:
        """Commit several takes in one append: a crash leaves some of the first of them committed, and undoes none.

        Args:
            takes: of each the ranges, and the transaction's ID if `prepare` wrote it, else 0.

        Raises what `commit` does.
        """
        if request := self._takes(takes):
            self._call("a commit", self._engine.commit, request)

    def _takes(self, takes: Iterable[tuple[list[Range], int]]) -> Takes | None:
        requests = [
            Take(self.group, r, tx, self._ownership.position, partial(self._require_unmoved, self.moved_at, tx))
            for r, tx in takes
        ]
        return Takes(requests) if requests else None

    def _require_unmoved(self, moved_at: int, prepared: int) -> None:
        """Prove that this is the owner, and what it commits was claimed or prepared where the group is now."""
        self._ownership.require()
        if moved_at != self.moved_at or 0 < prepared < moved_at:
            raise self._moved()

    def release(self, ranges: Iterable[Range], prepared: int = 0, moved_at: int | None = None) -> None:
        """Give claimed ranges back to the head of the queue; needs no disk unless they were prepared.

        Args:
            ranges: the events.
            prepared: the transaction's ID if `prepare` wrote it, else 0.
            moved_at: `moved_at` when they were claimed; None if they were claimed just now. What a seek has given back
                may be claimed again by now.
        """
        with self._mutex:
            if moved_at in (None, self.moved_at):
                for first, last in ranges:
                    self._held.remove(first, last)
        if prepared:
            self._call("a rollback", self._engine.commit, Rollback([prepared]))

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
        """Move the group as `seek` does, to where ``choose`` says under the channel's lock; return its next event.

        It raises what `seek` raises, and what ``choose`` raises: nothing is changed then.
        """
        seek = Seek(self.group, choose, self._ownership, self._engine.path, reset, self._give_back)

        def move() -> int:
            with self._mutex:  # nothing is claimed before the group is there
                with self._engine.snapshot() as state:
                    self._state(state)
                claimed = self.moved_at, self._held, self._passed
                try:
                    self._engine.commit(seek)
                except CommitOutcomeUnknownError:
                    raise
                except SpillableError:  # the group was not moved: what was claimed still is
                    self.moved_at, self._held, self._passed = claimed
                    raise
            return seek.next_id

        return self._call("a seek", move)

    def _give_back(self, transaction: int) -> None:
        """Void what was claimed and prepared: the group is being moved, under the channel's lock."""
        self.moved_at = transaction
        self._held, self._passed = RangeSet(), None

    def write_note(self, note: str) -> None:
        """Write something else about the owner beside the group, after its process and the time.

        Raises:
            ChannelClosedError: the consumer was closed.
            GroupOwnedError: this is not the group's owner any more.
            StorageError: the storage refused.
        """
        self._call("a note", self._ownership.write, text("note", note))

    def leave_note(self, note: str) -> None:
        """Write, at the end, what the group's next owner finds in `former_owner`, after the process and the time."""
        with suppress(ChannelClosedError):
            self._call("a note", self._ownership.leave_note, text("note", note))

    def close(self) -> None:
        """Give the group up when the calls under way are over; what was claimed is back in the queue.

        Raises:
            TransactionStateError: this thread is inside of a call.
        """
        self.active_calls.end("a close")
        self._reader.forget()
        self._ownership.close()
        path = self._engine.path
        _log.debug("the group %r of %s is given up", self.group, path, extra=fields(path, group=self.group))

    def leave(self) -> None:
        """In a forked child, where the threads of calls under way do not exist: leave the group to the parent."""
        self._reader.forget()
        self._ownership.leave()
