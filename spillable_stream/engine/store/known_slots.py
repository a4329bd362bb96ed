"""What a handle knows of the slots of its channel: where the log ends, and what the state has yet to apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from spillable_stream.errors import UnsafeStoreError
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.format.slot import NO_TOKEN, Slot, SlotFrame
from spillable_stream.log.tier_logs import Positions
from spillable_stream.objects.appending import Attempt, Tail
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint
from spillable_stream.objects.loading import apply_frames
from spillable_stream.objects.overwritten import find_lost
from spillable_stream.objects.pace import Pace
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.state.channel_state import ChannelState

__all__ = ["KnownSlots"]


class KnownSlots:
    """The newest slots, as one handle knows them. It changes with the handle's lock held.

    Args:
        slots: the channel's slots.
        cache: where the bytes of those that are known are kept.
        pace: learns of those that others appended.

    Attributes:
        chain: the slots that the state is built from.
        point: where the log ends.
        unsettled: the handle's append whose outcome is not known; None if there is none.
        must_load: whether slots were collected that this handle has not read, or a repair began the log anew, so that
            the state must be loaded.
        is_gone: whether the newest slot that is known is not there any more: it was collected, or is lost.
        left: the slot of an append of this handle that was planned on that one, that nobody proves any more, and that
            is not said to be void; until the state is loaded; 0 if there is none.
        is_told: whether the user was told that the newest slot that is known is lost; until the state is loaded.
        losses: how many losses and repairs this handle has met: after each, an ID may be another event's.
        unlisted: the checkpoint from which the state was loaded, here or by the handle that told it to this one, as
            long as no listing has shown that it is the newest one; None once one has.
        must_list: whether the next load must list the checkpoints: the hint led to an older one than the newest.
    """

    def __init__(self, slots: Slots, cache: ObjectCache, pace: Pace) -> None:
        self.chain: Chain = Chain(-1, NO_TOKEN)
        self.point: CommitPoint = CommitPoint(NO_TIER, NO_TIER)
        self.unsettled: Attempt | None = None
        self.must_load: bool = False
        self.is_gone: bool = False
        self.left: int = 0
        self.is_told: bool = False
        self.losses: int = 0
        self.unlisted: int | None = None
        self.must_list: bool = False
        self._slots = slots
        self._cache = cache
        self._pace = pace
        self._tail: Tail | None = None
        self._news: dict[int, list[SlotFrame]] = {}  # what was found and not applied, without events
        self._appended: Attempt | None = None  # the last one; it may not be applied yet

    @property
    def tail(self) -> Tail:
        """The newest slot that is known."""
        assert self._tail is not None
        return self._tail

    def expecting(self) -> Callable[[Checkpoint], UnsafeStoreError | None]:
        """Return what finds out whether the newest slot that is known by now is lost, in a state that is loaded."""
        if self._tail is None or self.is_told:
            return lambda _: None
        return partial(find_lost, self._slots, self._tail, is_gone=self.is_gone, left=self.left)

    def publish(self) -> None:
        """Say anew where the log ends, also whether an append waits to be settled."""
        self.point = self._point_at(self.tail)

    def _point_at(self, tail: Tail) -> CommitPoint:
        state = HeadState.APPENDING if self.unsettled is not None else HeadState.CLEAN
        # The end of a log that must be loaded lies beyond all that was applied, wherever that is.
        number, end = (tail.number + 1, 0) if self.must_load else (tail.number, tail.end)
        return CommitPoint(TierEnd(number, end, state), NO_TIER)

    def begin(self, loaded: Checkpoint) -> None:
        """Know a state that was loaded, and no slot after it."""
        self._news.clear()
        self._cache.clear()  # there may be other slots of the same numbers now
        self.must_load = self.is_gone = self.is_told = self.must_list = False
        self.left = 0
        self.unlisted = None if loaded.is_newest else loaded.base
        self._settle(loaded.tail)
        point = self._point_at(loaded.tail)
        self._tail, self.chain, self.point = loaded.tail, loaded.chain, point  # no call in between, as in `_move_to`

    def begin_anew(self, *, is_gone: bool = False) -> None:
        """Have the state loaded: slots were collected that this handle has not read, or the log is another one.

        Args:
            is_gone: whether the newest slot that is known is not there any more.
        """
        self.must_load, self.is_gone = True, self.is_gone or is_gone
        if self.unsettled is not None:
            # Its place was collected, or lies behind a loss.
            self.left, self.unsettled = 0 if self.unsettled.is_void else self.unsettled.number, None
        self.publish()

    def know(self, found: Sequence[Slot]) -> None:
        """Take note of slots that follow each other; an append of this handle may have come before, and be in them.

        Where a repair is among them, the state must be loaded: what was known before does not count any more.
        """
        tail = self.tail
        for slot in found:
            if slot.number == tail.number + 1:
                self._pace.saw_others()
                if slot.begins_anew:
                    self.losses += 1
                    self.begin_anew()
                    return
                self._news[slot.number] = slot.frames()  # the cache has the events, as far as it can
                self._cache.put(slot_key(slot.number), slot.data)
                self.chain.add(slot.number, slot.header.token)
                tail = tail.after(slot)
        self._move_to(tail)

    def appended(self, attempt: Attempt) -> None:
        """Take note of an append of this handle that is in the log, proven."""
        self._cache.put(slot_key(attempt.number), attempt.parts)
        self.chain.add(attempt.number, attempt.token)
        self._appended = attempt
        self._move_to(attempt.won)

    def _move_to(self, tail: Tail) -> None:
        if tail is not self._tail:
            if self.unsettled is not None:  # a call less for most
                self._settle(tail)
            point = self._point_at(tail)
            # No call in between: an interrupt that left a tail without its point would let the next commit be planned
            # on a state without that slot, and give out its IDs once more.
            self._tail, self.point = tail, point

    def _settle(self, tail: Tail) -> None:
        """Forget this handle's append whose outcome is not known if the log is known up to its place.

        To ask for it would refuse all later appends once that place is collected.
        """
        if self.unsettled is not None and self.unsettled.number <= tail.number:
            self.unsettled = None

    def apply(self, state: ChannelState, start: Positions, end: Positions) -> int:
        """Apply to a state the slots between two positions, and return how many there were.

        Raises:
            FileNotFoundError: they are not at hand: load the state.
            CorruptionError: a frame is invalid.
        """
        if self.must_load:
            raise FileNotFoundError(f"slots after {start.disk.file_id} were collected")
        for number in range(start.disk.file_id + 1, end.disk.file_id + 1):
            found = self._news.pop(number, None)
            if found is None:
                found = self._own(number)
            if found is None:
                raise FileNotFoundError(f"slot {number} is not at hand")
            apply_frames(self._slots, state, number, found)
        return end.disk.file_id - start.disk.file_id

    def _own(self, number: int) -> list[SlotFrame] | None:
        """Return the frames of a slot that this handle has just appended, for a thread that looks before they apply."""
        own = self._appended
        if own is None or own.number != number:
            return None
        return Slot.parse(self._slots.channel, number, own.data).frames()
