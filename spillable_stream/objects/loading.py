"""Loads the state of a channel: the newest checkpoint, then every slot after it, up to one that is not there."""

from __future__ import annotations

from collections.abc import Sequence

from spillable_stream.errors import ChannelBusyError, CorruptionError, DataLossError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.slot import Slot, SlotFrame
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints
from spillable_stream.objects.parallel import MOST_AT_ONCE
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.progress import meter_of_open
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "BehindError",
    "apply_frames",
    "apply_slot",
    "counting_frames",
    "load",
    "read_on",
    "require_there",
]

_MOST_LOOKS = 10
_MOST_SLOTS = 256  # read before they are applied
_MOST_BYTES = 64 << 20


class BehindError(Exception):
    """What a reader knows is so old that slots after it were collected: it must begin from a checkpoint."""


def load(slots: Slots, checkpoints: Checkpoints) -> Checkpoint:
    """Return the newest state, and its tail.

    Raises:
        ChannelBusyError: slots are collected faster than they can be read.
        CorruptionError: the log is damaged.
        DataLossError: slots are missing.
        StoreError: the store refused or failed.
    """
    hint = checkpoints.hint()
    base = checkpoints.at(hint.checkpoint) if hint is not None and hint.checkpoint else None
    for look in range(_MOST_LOOKS):
        if base is None:
            base = checkpoints.newest() or _first(slots, is_last=look == _MOST_LOOKS - 1)
        if base is not None:
            try:
                return _replayed(slots, base)
            except BehindError:  # the hint was old, or a checkpoint was made meanwhile
                base = None
    raise ChannelBusyError(f"{slots.store.root} changes faster than it can be read; try again")


def _first(slots: Slots, *, is_last: bool) -> Checkpoint | None:
    """Return the state with which the channel began; None if slot 0 was collected: there is a checkpoint by now."""
    slot = slots.read(0)
    if slot is None:
        if is_last:
            raise DataLossError(
                "slot 0 is missing, and there is no whole checkpoint: objects of the channel were removed",
                f"{slots.store.root}/{slot_key(0)}",
            )
        return None
    if slot.header.state is None:
        raise CorruptionError("slot 0 holds no state", f"{slots.store.root}/{slot_key(0)}", 0)
    try:
        state, first = ChannelState.from_image(slot.header.state), Tail.of_first(slot)
        return Checkpoint(first, state, Chain(first.number, first.token))
    except NONSENSE as e:
        text = f"the state of slot 0 is invalid: {type(e).__name__}: {e}"
        raise CorruptionError(text, f"{slots.store.root}/{slot_key(0)}", 0) from e


def _replayed(slots: Slots, base: Checkpoint) -> Checkpoint:
    tail, state, is_end, is_behind = base.tail, base.state, False, False
    meter = meter_of_open("slots")
    meter.begin(None)
    while not is_end:
        found, is_end = read_on(slots, tail, is_behind=is_behind)
        is_behind = True
        for slot in found:
            apply_slot(slots, state, tail, slot)
            tail = tail.then(slot)
            base.chain.add(slot.number, slot.header.token)
        meter.add(len(found))
    meter.end()
    return Checkpoint(tail, state, base.chain, base.base)


def read_on(slots: Slots, tail: Tail, *, is_behind: bool = False) -> tuple[list[Slot], bool]:
    """Return the slots after a tail, proven, and whether the log ended there just now; not too many at once.

    The proof comes last: where the tail is still there, no slot after it was ever deleted, so none that was found is a
    late writer's, and one that was not there was never there.

    Args:
        slots: the channel's slots.
        tail: the last one that is known.
        is_behind: whether many slots are likely to be there, so that many are asked for at once from the first on.

    Raises:
        BehindError: slots after the tail were collected.
        CorruptionError: a slot is damaged.
        StoreError: the store refused or failed.
    """
    found: list[Slot] = []
    size_bytes, is_end, width = 0, False, MOST_AT_ONCE if is_behind else 1
    while not is_end and len(found) < _MOST_SLOTS and size_bytes < _MOST_BYTES:
        first = tail.number + 1 + len(found)
        for slot in slots.read_all(range(first, first + width)):
            if slot is None:
                is_end = True
                break
            found.append(slot)
            size_bytes += slot.end
        if len(found) > 1:
            width = min(width * 4, MOST_AT_ONCE)
    require_there(slots, tail)
    return found, is_end


def require_there(slots: Slots, tail: Tail) -> None:
    """Prove that a slot is still there: then none after it has ever been deleted.

    Raises:
        BehindError: it is not, or another one is in its place.
        StoreError: the store refused or failed.
    """
    if slots.token(tail.number) != tail.token:
        raise BehindError


def apply_slot(slots: Slots, state: ChannelState, tail: Tail, slot: Slot) -> None:
    """Apply the slot after a tail to the state at that tail; one that does not count changes nothing.

    Raises:
        CorruptionError: a frame is invalid, though its checksums are right.
    """
    apply_frames(slots, state, slot.number, counting_frames(tail, slot))


def counting_frames(tail: Tail, slot: Slot) -> list[SlotFrame]:
    """Return the frames of the slot after a tail, without events; none of a slot that does not count."""
    return slot.frames() if tail.accepts(slot) else []


def apply_frames(slots: Slots, state: ChannelState, number: int, frames: Sequence[SlotFrame]) -> None:
    """Apply the frames of a slot to the state before it.

    Raises:
        CorruptionError: a frame is invalid, though its checksums are right.
    """
    for frame in frames:
        try:
            state.apply(number, frame.offset, frame.header, frame.payload)
        except (CorruptionError, *NONSENSE) as e:
            text = f"a {frame.header.type.name} is invalid: {type(e).__name__}: {e}"
            raise CorruptionError(text, f"{slots.store.root}/{slot_key(number)}", frame.offset) from e
