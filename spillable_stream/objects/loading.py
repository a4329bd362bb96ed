"""Loads the state of a channel: the newest checkpoint, then every slot after it, up to one that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from spillable_stream.errors import ChannelBusyError, CorruptionError, DataLossError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.slot import Slot, SlotFrame
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints, checkpoint_key
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.read_ahead import BehindError, ReadAhead, require_there
from spillable_stream.objects.slots import ForeignSlotError, Slots, slot_key
from spillable_stream.objects.void_slots import is_void, warn_of_void
from spillable_stream.option_names import named
from spillable_stream.progress import meter_of_open
from spillable_stream.shown_value import command
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "apply_frames",
    "apply_slot",
    "load",
]

_MOST_LOOKS = 10


class _RepairedError(BehindError):
    """A repair began the log anew after a checkpoint: only a later one says the state."""


def load(slots: Slots, checkpoints: Checkpoints, *, is_hinted: bool = True) -> Checkpoint:
    """Return the newest state, and its tail.

    Args:
        slots: the channel's slots.
        checkpoints: its checkpoints.
        is_hinted: whether the hint may say where to begin; else the checkpoints are listed.

    Raises:
        ChannelBusyError: slots are collected faster than they can be read.
        CorruptionError: the log or its newest checkpoints are damaged, or a repair was not finished.
        DataLossError: slots are missing, one of the newest checkpoint too.
        StoreError: the store refused or failed.
    """
    hint = checkpoints.hint() if is_hinted else None
    base = checkpoints.at(hint.checkpoint) if hint is not None and hint.checkpoint else None
    if base is not None:
        # An old hint leads to slots that were collected, or into damage that a repair has passed.
        with contextlib.suppress(BehindError, CorruptionError):
            return _replayed(slots, base)
    is_unfinished = False
    gone: tuple[Tail | None, list[int]] | None = None
    # No pause between the looks: it would only make the checkpoint older with which the next one begins. Of a trim all
    # slots stay from the checkpoint before the newest one on, and all others for gcDelay. So a look fails only if there
    # were two more checkpoints and a trim of them, and gcDelay passed, since it found its own.
    for _ in range(_MOST_LOOKS):
        look = _look(slots, checkpoints)
        if look.found == gone:  # no slot is collected before a newer checkpoint is there, and none was listed since
            raise _refusal(slots, look)
        is_unfinished = False
        if look.base is None:
            gone = look.found
            continue
        try:
            return replace(_replayed(slots, look.base), is_newest=True)
        except BehindError as e:  # a checkpoint was created meanwhile, or the slot of this one is lost
            is_unfinished = isinstance(e, _RepairedError)
            gone = look.found if _is_gone(slots, look.base.tail) else None
    if is_unfinished:
        root = slots.store.root
        text = (
            f"a repair was not finished: wait for it if it is running; otherwise run '{command('repair', root)}' again"
        )
        raise CorruptionError(text, root)
    raise ChannelBusyError(
        f"{slots.store.root} changes faster than it can be read: objects are deleted before an open comes to them; try "
        f"again; if it stays so, set a longer {named('gcDelay')} through a handle that is open"
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at the checkpoints found.

    Args:
        base: the newest checkpoint that could be read, or the state with which the channel began; None if neither is
            there.
        unread: the slots of newer checkpoints, ascending: they were listed, and could not be read. They were deleted
            in between, or are damaged.
    """

    base: Checkpoint | None
    unread: list[int]

    @property
    def found(self) -> tuple[Tail | None, list[int]]:
        """What two looks have in common if no checkpoint came or went between them that an open would begin with."""
        return None if self.base is None else self.base.tail, self.unread


def _look(slots: Slots, checkpoints: Checkpoints) -> _Look:
    first = begin(slots.store.root, partial(slots.read, 0))  # most likely there is no checkpoint yet
    numbers = checkpoints.numbers()
    base = checkpoints.newest_of(numbers)
    if base is not None:
        first.cancel()
        return _Look(base, [number for number in numbers if number > base.tail.number])
    slot = first.result()
    return _Look(None if slot is None else _state_of(slots, slot), numbers)


def _refusal(slots: Slots, look: _Look) -> CorruptionError:
    """Return the error for a log that has lost what an open begins with."""
    root, base = slots.store.root, look.base
    first = 0 if base is None else base.tail.number
    place = f"{root}/{slot_key(first)}"
    advice = f"Run `{command('verify', root)}`, and `{command('repair', root)}` to continue with what is there"
    if look.unread:
        numbers = ", ".join(map(str, look.unread))
        are = "checkpoint of slot {} is" if len(look.unread) == 1 else "checkpoints of the slots {} are"
        return CorruptionError(
            f"the {are.format(numbers)} damaged, and slot {first}, with which an open would begin instead, is gone. "
            f"Restore a checkpoint from a version of the bucket if there is one. {advice}",
            f"{root}/{checkpoint_key(look.unread[-1])}",
        )
    if base is None:
        text = "slot 0 is missing, and there is no checkpoint: objects of the channel were removed"
        return DataLossError(f"{text}. {advice}", place)
    missing = f"Acknowledged events are missing, up to the event {base.state.last_id}"
    put_back = "the bucket was put back to an earlier version while the channel was open"
    if _is_there(slots, first):
        text = f"the newest checkpoint is of another slot {first} than the one in the log: {put_back}. {missing}"
        return DataLossError(f"{text}. {advice}", place)
    text = f"the newest checkpoint is of slot {first}, which is not in the log: {put_back}, or it was not copied"
    return DataLossError(f"{text} completely. {missing}. If it is a copy, complete it. {advice}", place)


def _is_gone(slots: Slots, tail: Tail) -> bool:
    try:
        require_there(slots, tail)
    except BehindError:
        return True
    return False


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
                tail = tail.after(slot)
                base.chain.add(slot.number, slot.header.token)
            meter.add(len(found))
    meter.end()
    _require_end(slots, tail, state.last_id)
    return Checkpoint(tail, state, base.chain, base.base)


def _require_end(slots: Slots, tail: Tail, last_id: int) -> None:
    """Prove that a slot is the newest one, and not the last one before a hole: an append would go into that.

    Raises:
        BehindError: slots after it were collected.
        DataLossError: the next slot is missing, and the one behind it is there, damaged or not. A void one proves
            no hole: its writer knew a slot that is lost, as where the bucket was put back. The log says what it held.
        StoreError: the store refused or failed.
    """
    missing, root = tail.number + 1, slots.store.root
    behind = _first_there(slots, missing + 1, last_id)
    if behind is None or _is_there(slots, missing):  # the latter appended meanwhile
        return
    require_there(slots, tail)  # last: neither was collected meanwhile
    raise DataLossError(
        f"slot {missing} is missing, and slot {behind} is there: objects of the channel were removed, or the "
        f"bucket was put back while somebody wrote. Run `{command('verify', root)}`, and "
        f"`{command('repair', root)}` to continue without it",
        f"{root}/{slot_key(missing)}",
    )


def _first_there(slots: Slots, number: int, last_id: int) -> int | None:
    """Return the first slot from a number on that is not void; None if one is missing before it."""
    while (token := _token_of(slots, number)) is not None:
        if not token or not is_void(slots, number, token):
            return number
        with contextlib.suppress(CorruptionError):
            if (slot := slots.read(number)) is not None:
                warn_of_void(slots, slot, last_id)
        number += 1
    return None


def _is_there(slots: Slots, number: int) -> bool:
    """Tell whether a slot of the channel is there, damaged or not; whoever comes to it says which."""
    return _token_of(slots, number) is not None


def _token_of(slots: Slots, number: int) -> bytes | None:
    """Return the token of a slot; b"" if it is damaged, and None if there is none of this channel."""
    try:
        return slots.token(number)
    except ForeignSlotError:  # what a channel that was removed left in this place
        return None
    except CorruptionError:
        return b""


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
