"""Loads the state of a channel: the newest checkpoint, then every slot after it, up to one that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from spillable_stream.errors import ChannelBusyError, CorruptionError, DataLossError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.slot import Slot, SlotFrame
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.read_ahead import BehindError, ReadAhead, require_there
from spillable_stream.objects.slots import LOG, ForeignSlotError, Slots, slot_key
from spillable_stream.option_names import named
from spillable_stream.progress import meter_of_open
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "apply_frames",
    "apply_slot",
    "load",
]

_log = log_of(__name__)

_MOST_LOOKS = 10


class _RepairedError(BehindError):
    """A repair began the log anew after a checkpoint: only a later one says the state."""


def load(slots: Slots, checkpoints: Checkpoints) -> Checkpoint:
    """Return the newest state, and its tail.

    Raises:
        ChannelBusyError: slots are collected faster than they can be read.
        CorruptionError: the log is damaged, or a repair was not finished.
        DataLossError: slots are missing.
        StoreError: the store refused or failed.
    """
    hint = checkpoints.hint()
    base = checkpoints.at(hint.checkpoint) if hint is not None and hint.checkpoint else None
    if base is not None:
        # An old hint leads to slots that were collected, or into damage that a repair has passed.
        with contextlib.suppress(BehindError, CorruptionError):
            return _replayed(slots, base)
    is_unfinished = False
    looks, gone, lost = 0, None, dict[int, Checkpoint]()
    # No pause between the looks: it would only make the checkpoint older with which the next one begins. Of a trim all
    # slots stay from the checkpoint before the newest one on, and all others for gcDelay. So a look fails only if there
    # were two more checkpoints and a trim of them, and gcDelay passed, since it found its own.
    while looks < _MOST_LOOKS:
        before = len(lost)
        base = _newest(slots, checkpoints, gone, lost, is_last=looks == _MOST_LOOKS - 1)
        looks += len(lost) == before
        is_unfinished, gone = False, None
        if base is not None:
            first = base.tail
            try:
                found = _replayed(slots, base)
            except BehindError as e:  # a checkpoint was created meanwhile, or the slot of this one is lost
                is_unfinished = isinstance(e, _RepairedError)
                gone = first if _is_gone(slots, first) else None
            else:
                if lost:
                    _require_no_slot_behind(slots, found.tail.number)
                    _warn_of_lost(slots, lost, found)
                return found
    if is_unfinished:
        root = slots.store.root
        text = f"a repair was not finished: wait for it if it runs now, else run 'spillable repair {root}' again"
        raise CorruptionError(text, root)
    raise ChannelBusyError(
        f"{slots.store.root} changes faster than it can be read: objects are deleted before an open comes to them; try "
        f"again; if it stays so, set a longer {named('gcDelay')} through a handle that is open"
    )


def _is_gone(slots: Slots, tail: Tail) -> bool:
    try:
        require_there(slots, tail)
    except BehindError:
        return True
    return False


def _warn_of_lost(slots: Slots, lost: dict[int, Checkpoint], found: Checkpoint) -> None:
    """Warn that a state was found by passing over checkpoints of slots that are lost."""
    number, where = max(lost), slots.store.root
    first, last = found.state.last_id + 1, lost[number].state.last_id
    events = f", with the events {first} to {last}" if first <= last else ""
    _log.warning(
        "%s: the checkpoint of slot %d is passed over, since that slot is not in the log: the bucket was put back to "
        "an earlier version, or objects of the channel were removed. Acknowledged commits are lost%s. Run `spillable "
        "verify %s` to see what is there",
        where,
        number,
        events,
        where,
        extra=fields(where, slot=number),
    )


def _newest(
    slots: Slots, checkpoints: Checkpoints, gone: Tail | None, lost: dict[int, Checkpoint], *, is_last: bool
) -> Checkpoint | None:
    """Return the newest checkpoint, or the state with which the channel began.

    A checkpoint whose slot is gone, and that is the newest still, is of no slot that was collected: those after it
    would be gone with none that says the state. So the slot is lost, and an older checkpoint says the state.

    Args:
        slots: the channel's slots.
        checkpoints: its checkpoints.
        gone: the slot of a checkpoint that was found before, and the slot was not; None if there is none.
        lost: the checkpoints of slots that are lost, by number; that of ``gone`` comes to them if it is the newest.
        is_last: whether this is the last look.

    Returns:
        None if slot 0 was collected: there is a checkpoint by now, or others than those that were listed.

    Raises:
        DataLossError: slot 0 is missing in the last look, too, and no checkpoint came or went beside it.
    """
    first = begin(partial(slots.read, 0))  # most likely there is no checkpoint yet
    numbers = checkpoints.numbers()
    found = checkpoints.newest_of([n for n in numbers if n not in lost])
    if found is not None and found.tail == gone:
        lost[found.tail.number] = found
        found = checkpoints.newest_of([n for n in numbers if n < found.tail.number])
    if found is not None:
        first.cancel()
        return found
    slot = first.result()
    if slot is None and is_last and checkpoints.numbers() == numbers:
        raise DataLossError(
            "slot 0 is missing, and there is no whole checkpoint: objects of the channel were removed. Run `spillable "
            "verify`, and `spillable repair` to continue with what is left",
            f"{slots.store.root}/{slot_key(0)}",
        )
    return None if slot is None else _state_of(slots, slot)


def _state_of(slots: Slots, slot: Slot) -> Checkpoint:
    """Return the state that slot 0 holds."""
    if slot.header.state is None:
        raise CorruptionError("slot 0 holds no state", f"{slots.store.root}/{slot_key(0)}", 0)
    try:
        state, first = ChannelState.from_image(slot.header.state), Tail.of(slot)
        return Checkpoint(first, state, Chain(first.number, first.token))
    except NONSENSE as e:
        text = f"the state of slot 0 is invalid: {type(e).__name__}: {e}"
        raise CorruptionError(text, f"{slots.store.root}/{slot_key(0)}", 0) from e


def _replayed(slots: Slots, base: Checkpoint) -> Checkpoint:
    tail, state, is_end = base.tail, base.state, False
    meter = meter_of_open("slots")
    meter.begin(None)
    with ReadAhead(slots, tail) as ahead:
        while not is_end:
            found, is_end = ahead.chunk()
            for slot in found:
                if slot.begins_anew:
                    raise _RepairedError
                apply_slot(slots, state, slot)
                tail = Tail.of(slot)
                base.chain.add(slot.number, slot.header.token)
            meter.add(len(found))
    meter.end()
    _require_end(slots, tail)
    return Checkpoint(tail, state, base.chain, base.base)


def _require_end(slots: Slots, tail: Tail) -> None:
    """Prove that a slot is the newest one, and not the last one before a hole: an append would go into that.

    Raises:
        BehindError: slots after it were collected.
        DataLossError: the next slot is missing, and the one behind it is there, damaged or not.
        StoreError: the store refused or failed.
    """
    missing = tail.number + 1
    if not _is_there(slots, missing + 1) or _is_there(slots, missing):  # the latter appended meanwhile
        return
    require_there(slots, tail)  # last: neither was collected meanwhile
    raise _hole(slots, missing, missing + 1)


def _require_no_slot_behind(slots: Slots, last: int) -> None:
    """Prove by a listing that no slot is behind a hole: the log ends, and was not torn.

    Raises:
        DataLossError: one is.
        StoreError: the store refused or failed.
    """
    names = [info.key.removeprefix(LOG) for info in slots.store.list(LOG)]
    behind = sorted(n for n in (int(name) for name in names if name.isdigit()) if n > last)
    while behind and behind[0] == last + 1:  # appended meanwhile
        last = behind.pop(0)
    for number in behind:
        if _is_there(slots, number) and not _is_there(slots, last + 1):
            raise _hole(slots, last + 1, number)


def _hole(slots: Slots, missing: int, there: int) -> DataLossError:
    return DataLossError(
        f"slot {missing} is missing, and slot {there} is there: objects of the channel were removed. Run `spillable "
        "verify`, and `spillable repair` to continue without it",
        f"{slots.store.root}/{slot_key(missing)}",
    )


def _is_there(slots: Slots, number: int) -> bool:
    """Tell whether a slot of the channel is there, damaged or not; whoever comes to it says which."""
    try:
        return slots.token(number) is not None
    except ForeignSlotError:  # what a channel that was removed left in this place
        return False
    except CorruptionError:
        return True


def apply_slot(slots: Slots, state: ChannelState, slot: Slot) -> None:
    """Apply a slot to the state before it.

    Raises:
        CorruptionError: a frame is invalid, though its checksums are right.
    """
    apply_frames(slots, state, slot.number, slot.frames())


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
