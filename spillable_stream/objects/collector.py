"""Deletes objects that nobody needs: slots before the last trim, old checkpoints, segments that nothing names.

Slots go by their numbers, and no listing says which there are: one that was left out would stay while those after it
go, and a writer that slept would take it for a proof. A listing only finds what such writers left, before all that.

How long ago something was trimmed is told by this process's own clock, which knows nothing of the time before it began.
So the first collection of each process also looks at what an older checkpoint says of trims, and how much later the
store wrote the newest one: two times of one clock, the store's. If that clock jumps, a slow reader misses its events
and says so; no commit depends on it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Set

from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.slots import LOG, Slots, number_in, slot_key
from spillable_stream.objects.staged_object import SEGMENTS, birth_of
from spillable_stream.objects.store import Store
from spillable_stream.objects.void_slots import void_key, void_slots
from spillable_stream.state.contents import Trimmed

__all__ = ["Collector"]

_MOST_SAMPLES = 1_000
_UNPROVEN = 32  # objects that are deleted without another question whether the channel is there
_PROVEN_SECONDS = 5.0  # and for how long
_CUT_SECONDS = 2.0  # what is lost of the difference of two times that stores cut to seconds


class Collector:
    """Deletes what was trimmed, once it was for ``gc_delay_seconds`` by this process's clock. For one thread at a time.

    Args:
        store: where.
        slots: the channel's slots.
        checkpoints: its checkpoints.
        cache: objects that are at hand.
        require_there: raises if another channel is there by now: slots of that one have the same names.
        monotonic: tells the time; for tests.

    Attributes:
        gc_delay_seconds: how long slow readers may still read what was taken.
        sample_seconds: how much time there is between two samples of the newest slot, at least.
        deleted_through: every slot up to this one is gone, as far as this process knows; -1 if it knows none.
    """

    def __init__(
        self,
        store: Store,
        slots: Slots,
        checkpoints: Checkpoints,
        cache: ObjectCache,
        require_there: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gc_delay_seconds: float = 3600.0
        self.sample_seconds: float = 0.0
        self._store = store
        self._slots = slots
        self._checkpoints = checkpoints
        self._cache = cache
        self._require_there = require_there
        self._monotonic = monotonic
        self.deleted_through: int = -1
        self._trims: deque[tuple[float, Trimmed]] = deque()  # when each was seen
        self._named: set[str] = set()  # the segments that events were in
        self._left: deque[tuple[float, str]] = deque()  # since when no event is in them
        self._tails: deque[tuple[float, int]] = deque(maxlen=_MOST_SAMPLES)  # when which slot was the newest
        self._has_looked_back = False
        self._births_before: int | None = None  # the slot that was the newest long ago, before this process knew any

    def sample_tail(self, number: int) -> None:
        """Sample the number of the newest slot, from which `births` tells how old a slot is."""
        now = self._monotonic()
        if not self._tails or now - self._tails[-1][0] >= self.sample_seconds:
            self._tails.append((now, number))

    def births(self, staging_seconds: float) -> int:
        """Return the slot that was the newest ``staging_seconds`` ago, or an older one, as far as known; 0 if not."""
        before, found = self._monotonic() - staging_seconds, 0
        for at, number in self._tails:
            if at > before:
                break
            found = number
        if not found and self._births_before is None:
            self._births_before = self._newest_before(staging_seconds)
        return max(found, self._births_before or 0)

    def _newest_before(self, seconds: float) -> int:
        """Return the newest slot that the store wrote at least ``seconds`` before the last one; 0 if none is there."""
        found = ((number_in(info.key, LOG), info.modified_seconds) for info in self._store.list(LOG))
        return _newest_before_last({number: at for number, at in found if number is not None}, seconds) or 0

    def add_left(self, keys: MutableSequence[str]) -> None:
        """Add segments that are not needed any more, as far as this process knows; takes them off the list."""
        now = self._monotonic()
        while keys:
            self._left.append((now, key := keys.pop()))
            self._named.discard(key)

    def is_due(self, trimmed: Trimmed) -> bool:
        """Tell whether `collect` may find something to delete by now.

        Args:
            trimmed: what the channel's state says of trims.
        """
        before = self._monotonic() - self.gc_delay_seconds
        is_ripe = any(waits and waits[0][0] <= before for waits in (self._trims, self._left))
        return is_ripe or (not self._has_looked_back and trimmed.through > self.deleted_through)

    def begin_anew(self) -> None:
        """Forget what was trimmed and deleted, and which slot was the newest at what time: the log may be another one.

        A repair may have found that more is needed, or the bucket was put back, where slots have their numbers again.
        """
        self._trims.clear()
        self._tails.clear()
        self._births_before, self.deleted_through = None, -1

    def collect(self, trimmed: Trimmed, named: Set[str], older_checkpoint: int, newest_checkpoint: int) -> None:
        """Delete what may go by now.

        Args:
            trimmed: what the channel's state says of trims.
            named: the segments that events are in, by that state, which nobody changed meanwhile.
            older_checkpoint: the slot of the checkpoint before the newest, which can be read; 0 if none is known.
            newest_checkpoint: the slot of a checkpoint that can be read.

        Raises:
            NotAChannelError: the channel is no longer there.
            StoreError: the store refused or failed; a later call continues.
        """
        now = self._monotonic()
        self.deleted_through = max(self.deleted_through, trimmed.deleted)
        if trimmed.through > self.deleted_through and (not self._trims or self._trims[-1][1] != trimmed):
            self._trims.append((now, trimmed))
        self._add_unnamed(named, now)
        since, ripe = now, None
        while self._trims and now - self._trims[0][0] >= self.gc_delay_seconds:
            since, ripe = self._trims.popleft()
        if ripe is not None:
            self._trims.appendleft((since, ripe))  # until all went, which the store may refuse
            all_went = self._let_go(ripe, named, newest_checkpoint)
            # How many are there says nothing: a handle of a channel that was in this place may have left some.
            older = [n for n in self._checkpoints.numbers() if n < older_checkpoint]
            if self.delete_checkpoints(older) and all_went:
                self._trims.popleft()
        if not self._has_looked_back and trimmed.through > self.deleted_through:
            self._has_looked_back = self._look_back(trimmed, named, newest_checkpoint)
        while self._left and now - self._left[0][0] >= self.gc_delay_seconds:
            if (key := self._left[0][1]) not in named:
                self._delete(key)
            self._left.popleft()

    def _look_back(self, trimmed: Trimmed, named: Set[str], newest_checkpoint: int) -> bool:
        """Delete what was trimmed before this process began, as far as the store's clock says that it was long ago.

        And as far as the channel's state says that it was trimmed: the checkpoint that says when may be of a log that
        is lost, since the bucket was put back.

        Returns:
            Whether all of it went; else a later call continues.
        """
        # The time of a later one says nothing: a handle of a channel that was in this place may have left it.
        times = {number: at for number, at in self._checkpoints.times().items() if number <= newest_checkpoint}
        number = _newest_before_last(times, self.gc_delay_seconds)
        found = None if number is None else self._checkpoints.at(number)
        if found is None or number is None:
            return True
        then = found.state.trimmed
        ripe = then._replace(through=min(then.through, trimmed.through), births=min(then.births, trimmed.births))
        if ripe.through > self.deleted_through and not self._let_go(ripe, named, newest_checkpoint):
            return False
        return self.delete_checkpoints([n for n in times if n < number])  # the others will be old enough one day

    def _let_go(self, trimmed: Trimmed, named: Set[str], newest_checkpoint: int) -> bool:
        """Delete slots that were trimmed, and what writers and tasks left before that; tell whether all went."""
        if not (self._delete_slots(min(trimmed.through, newest_checkpoint - 1)) and self._delete_strays()):
            return False
        self._delete_segments(named, trimmed.births)
        return True

    def _add_unnamed(self, named: Set[str], now: float) -> None:
        """Add the segments that no event is in any more, of those that were in the state at the last call."""
        self._left += [(now, key) for key in self._named - named]
        self._named = set(named)

    def _delete(self, key: str) -> None:
        self._store.delete(key)
        self._cache.forget(key)

    def _delete_slots(self, through: int) -> bool:
        """Delete slots in ascending order, each after the one before it is gone: the proofs of all writers need it."""
        return self._delete_numbers(range(self.deleted_through + 1, through + 1), self._delete_slot)

    def _delete_slot(self, number: int) -> None:
        self._slots.delete(number)
        self.deleted_through = max(self.deleted_through, number)
        self._cache.forget(slot_key(number))

    def _delete_strays(self) -> bool:
        """Delete what writers that slept created in the place of slots that were gone: it counts for nobody.

        And what says that slots which are gone were void.
        """
        void, strays = set[str](), set[int]()
        for info in self._store.list(LOG):
            number = number_in(info.key, LOG)
            if number is not None and number <= self.deleted_through:
                strays.add(number)
            void |= {void_key(n, token) for n, token in void_slots([info.key]) if n <= self.deleted_through}
        if void:
            self._require_there()  # behind the listing: no other object ever has one of these keys
        for key in void:
            self._store.delete(key)
        return self._delete_numbers(sorted(strays), self._delete_slot)

    def _delete_segments(self, named: Set[str], births: int) -> None:
        born = ((info.key, birth_of(info.key)) for info in self._store.list(SEGMENTS))
        unnamed = {key for key, birth in born if birth is not None and birth < births and key not in named}
        if unnamed:
            self._require_there()  # behind the listing: no other segment ever has one of these keys
        for key in sorted(unnamed):
            self._delete(key)

    def delete_checkpoints(self, numbers: Iterable[int]) -> bool:
        """Delete the checkpoints of some slots, and tell whether all went; raises what `collect` raises."""
        return self._delete_numbers(numbers, self._checkpoints.delete)

    def _delete_numbers(self, numbers: Iterable[int], delete: Callable[[int], None]) -> bool:
        """Delete objects whose names come again in a channel that is created in this place, as long as none is.

        Returns:
            Whether all went. After a pause behind the question the rest stays, and the caller continues later.
        """
        asked_at = float("-inf")
        for i, number in enumerate(numbers):
            if i % _UNPROVEN == 0 or self._is_long_ago(asked_at):
                asked_at = self._monotonic()
                self._require_there()
                if self._is_long_ago(asked_at):
                    return False
            delete(number)
        return True

    def _is_long_ago(self, at: float) -> bool:
        return self._monotonic() - at >= _PROVEN_SECONDS


def _newest_before_last(times: Mapping[int, float], seconds: float) -> int | None:
    """Return the greatest number whose time is at least ``seconds`` before that of the last one; None without one."""
    last = times[max(times)] if times else 0.0
    return max((number for number, at in times.items() if last - at >= seconds + _CUT_SECONDS), default=None)
