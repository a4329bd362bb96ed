"""What the owner of a group has claimed: events that it gives to nobody else until they are committed or given back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import RLock

from spillable_stream.channel.group_reader import GroupReader
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import now_us
from spillable_stream.errors import ChannelClosedError, TransactionStateError
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["Claims"]


class Claims:
    """The claims of a group's owner, in memory only. Thread-safe.

    Args:
        engine: the channel.
        group: the group's name.
        reader: tells which events have expired.
        mutex: the reader's, which keeps the claims as they are while it is held.

    Attributes:
        moved_at: the first transaction ID that was not in use when the owner last moved the group (`Consumer.seek`); 0
            before. Claims with an earlier value, and takes that were prepared with a smaller ID, are void.
        passed: the claimed events that have expired, which the next commit takes; None if there are none.
    """

    def __init__(self, engine: Engine, group: str, reader: GroupReader, mutex: RLock) -> None:
        self.moved_at: int = 0
        self.passed: RangeSet | None = None
        self._held = RangeSet()
        self._forgotten: deque[tuple[list[Range], int]] = deque()  # what `release_later` was told
        self._in_doubt: list[tuple[Callable[[], bool], list[Range]]] = []  # what `hold_while` was told
        self._engine = engine
        self._group = group
        self._reader = reader
        self._mutex = mutex
        self._snapshot = engine.follower.snapshot

    def group_in(self, state: ChannelState) -> GroupState:
        """Return the group in a state of the channel.

        Raises:
            ChannelClosedError: it was dropped.
        """
        found = state.groups.get(self._group)
        if found is None:
            raise ChannelClosedError(f"the group {self._group!r} of {self._engine.path} was dropped")
        return found

    def free(self, state: ChannelState) -> Iterator[Range]:
        """Yield what the group has yet to take and no claim has; the mutex is held. Raises what `group_in` does."""
        if self._forgotten:
            self._release_forgotten()
        group = state.groups.get(self._group) or self.group_in(state)  # a call less in each take
        busy = group.ahead.union(self._held) if len(self._held) else group.ahead
        if self._in_doubt:
            self._in_doubt = [doubt for doubt in self._in_doubt if doubt[0]()]
            busy = busy.union(r for _, ranges in self._in_doubt for r in ranges)
        return busy.gaps(group.position + 1, state.next_id - 1)

    def claim(self, limit: int, most_judged: int, moved_at: int | None, into: list[Range]) -> list[Range]:
        """Claim up to ``limit`` events, and return those before or among them that have expired and are passed over.

        Args:
            limit: how many at most.
            most_judged: of how many events at most it is asked whether they have expired, at least ``limit``.
            moved_at: `moved_at` at the first claim of the same transaction; None if this is the first.
            into: gets what was claimed together with the claim, so that its owner has what to `give_back` wherever an
                interrupt comes.

        Raises:
            ChannelClosedError: the group was dropped.
            TransactionStateError: the group was moved since.
        """
        claimed: list[Range] = []
        expired: list[Range] = []
        with self._mutex:
            with self._snapshot as state:
                if moved_at is not None and moved_at != self.moved_at:
                    raise self.moved()
                may_expire = state.blocks.disk.has_expiry or state.blocks.memory.has_expiry
                by_us = now_us() if may_expire else 0
                if by_us:
                    claimed = self._first_free(state, most_judged, by_us)
                else:
                    for first, last in self.free(state):
                        last = min(last, first + limit - 1)
                        claimed.append((first, last))
                        limit -= last - first + 1
                        if limit <= 0:
                            break
            if by_us:
                claimed, expired = self._judged(claimed, limit, by_us)
            try:
                for first, last in claimed:
                    self._held.add(first, last)
                if expired:
                    self._pass_over(expired)
                into += claimed
            except BaseException:
                for first, last in (*claimed, *expired):
                    self._held.remove(first, last)
                    if self.passed is not None:
                        self.passed.remove(first, last)
                raise
        return expired

    def _first_free(self, state: ChannelState, limit: int, by_us: int) -> list[Range]:
        """Return the first events that nobody has; whole blocks that have expired don't count against the limit."""
        found = RangeSet()
        for first, last in self.free(state):
            while first <= last and limit > 0:
                through = state.blocks.expired_through(first, last, by_us)
                end = min(last, through + limit)
                found.add(first, end)
                limit -= end - through
                first = end + 1
        return list(found)

    def _judged(self, free: list[Range], limit: int, by_us: int) -> tuple[list[Range], list[Range]]:
        """Return the first events that are left to take, up to ``limit``, and the expired before and among them."""
        expired = RangeSet(self._reader.expired(free, by_us))
        left: list[Range] = []
        for first, last in (r for each in free for r in expired.gaps(*each)):
            if limit <= 0:
                break
            last = min(last, first + limit - 1)
            left.append((first, last))
            limit -= last - first + 1
        if limit <= 0:
            for first, last in expired.within(left[-1][1] + 1, free[-1][1]):
                expired.remove(first, last)
        return left, list(expired)

    def _pass_over(self, expired: list[Range]) -> None:
        self.passed = self.passed or RangeSet()
        for first, last in expired:
            self._held.add(first, last)
            self.passed.add(first, last)

    def expired_among(self, ranges: Iterable[Range]) -> list[Range]:
        """Return those of some events that have expired by now. Claimed events were judged when they were claimed."""
        with self._mutex:
            return self._reader.expired([r for each in ranges for r in self._held.gaps(*each)], now_us())

    def release(self, ranges: Iterable[Range], moved_at: int | None = None) -> None:
        """End the claims of some events: they are committed, or free again.

        Args:
            ranges: the events.
            moved_at: `moved_at` when they were claimed; None if they were claimed just now. What a move has voided may
                be claimed again by now, so it stays.
        """
        with self._mutex:
            if moved_at in (None, self.moved_at):
                for first, last in ranges:
                    self._held.remove(first, last)

    def give_back(self, claimed: list[Range], moved_at: int | None) -> None:
        """Let events be claimed again that `claim` gave, and empty the list: nothing is given back twice.

        Args:
            claimed: the events.
            moved_at: as in `release`.
        """
        with self._mutex:
            is_void = moved_at not in (None, self.moved_at)
            while claimed:
                first, last = claimed[-1]
                del claimed[-1]  # first: somebody else may have the events as soon as they are free
                if not is_void:
                    self._held.remove(first, last)

    def hold_while(self, is_committing: Callable[[], bool], ranges: list[Range]) -> None:
        """Keep events claimed while a commit is in doubt, whatever becomes of their claims: it may yet take them.

        Args:
            is_committing: tells whether it is still in doubt. When it is not, the channel's state says what they are.
            ranges: the events.
        """
        with self._mutex:
            self._in_doubt.append((is_committing, list(ranges)))

    def release_later(self, ranges: list[Range], moved_at: int) -> None:
        """End the claims of some events, which are free again, with the next look for free ones; waits for no lock.

        It is for finalizers, which run in any thread, also in the middle of another method of this object.

        Args:
            ranges: the events.
            moved_at: as in `release`.
        """
        self._forgotten.append((ranges, moved_at))

    def _release_forgotten(self) -> None:
        while self._forgotten:
            self.release(*self._forgotten[0])  # once more after an interrupt: nothing was claimed in between
            self._forgotten.popleft()

    def take_passed(self) -> tuple[RangeSet, int]:
        """Return `passed`, which is None from then on, and `moved_at`: the caller commits it."""
        with self._mutex:
            passed, self.passed = self.passed or RangeSet(), None
            return passed, self.moved_at

    def put_back_passed(self, passed: RangeSet, moved_at: int) -> None:
        """Let the next commit take what this one could not; the arguments are what `take_passed` returned."""
        with self._mutex:
            if moved_at == self.moved_at:
                self.passed = passed.union(self.passed or ())

    def void(self, transaction: int) -> None:
        """Void all claims: the group is being moved, under the commit lock, and the mutex is held.

        Args:
            transaction: what `moved_at` is from now on.
        """
        self.moved_at = transaction
        self._held, self.passed = RangeSet(), None

    def copy(self) -> tuple[int, RangeSet, RangeSet | None]:
        """Return what `restore` needs after a move that failed; the mutex is held until then."""
        return self.moved_at, self._held, self.passed

    def restore(self, claimed: tuple[int, RangeSet, RangeSet | None]) -> None:
        """Claim again what a move has voided that did not come to be."""
        self.moved_at, self._held, self.passed = claimed

    def moved(self) -> TransactionStateError:
        """Return the error of a transaction whose claims a move has voided."""
        return TransactionStateError(
            f"the group {self._group!r} of {self._engine.path} was moved by a seek since this transaction took "
            "from it: nothing of it is committed. Roll it back, and begin another one"
        )
