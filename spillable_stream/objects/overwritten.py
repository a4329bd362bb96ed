"""Finds out that a slot was overwritten or lost: that the store breaks the promises on which a log relies.

A slot is created if it is absent, and slots are deleted in ascending order. So a slot that is another one than before
was deleted and filled by a late writer, and then the one before it is gone; or it was overwritten, and what it held is
lost, though it was acknowledged. And a log never gets shorter, and no slot in it becomes another.
"""

from __future__ import annotations

from spillable_stream.errors import UnsafeStoreError
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint
from spillable_stream.objects.slots import ForeignSlotError, Slots, slot_key
from spillable_stream.shown_value import command

__all__ = ["find_lost", "find_overwritten"]


def find_overwritten(slots: Slots, chain: Chain, tail: Tail) -> UnsafeStoreError | None:
    """Return the error if a slot is another one than is known; None if it is not, or if that proves nothing.

    Args:
        slots: the channel's slots.
        chain: the slots that are known.
        tail: the newest of them.

    Raises:
        CorruptionError: a slot is damaged.
        StoreError: the store refused or failed.
    """
    before = chain.token_of(tail.number - 1)
    if before is None:
        return None
    try:
        if slots.token(tail.number) in (None, tail.token) or slots.token(tail.number - 1) != before:
            return None
    except ForeignSlotError:  # the channel was removed, and another one created
        return None
    root = slots.store.root
    return UnsafeStoreError(
        f"{root}/{slot_key(tail.number)} was overwritten: the store has ignored that it was there, or was put back to "
        "an earlier version. Its acknowledged events are lost. Stop all writers, run "
        f"`{command('check-store', root)}`, and `{command('verify', root)}`. If that finds damage, run "
        f"`{command('repair', root)}`; else the channel continues with what is there when it is opened again"
    )


def find_lost(
    slots: Slots, known: Tail, loaded: Checkpoint, *, is_gone: bool, left: int = 0
) -> UnsafeStoreError | None:
    """Return the error if a log that was loaded has lost a slot; None if it has not, or if nothing loaded tells.

    It asks for nothing. Where others have created a checkpoint behind the slot, the slot was not loaded. If it is gone,
    it may have been collected; but no slot is before the log says that it was trimmed. A repair undoes a trim only from
    a slot on that is there, and behind that none was collected.

    Args:
        slots: the channel's slots.
        known: the newest slot that was known before the log was read.
        loaded: what was read.
        is_gone: whether the slot was not in its place before the log was read.
        left: the slot of an append of this handle, planned on the one that was known; 0 if there was none.
    """
    root, last = slots.store.root, loaded.tail.number
    if last < known.number:
        found = f"ends with slot {last}, and slot {known.number} was there"
    elif (other := _other_in(loaded.chain, known)) is not None:
        found = f"continues with other slots: slot {other.number} is not the one that was there"
    elif is_gone and loaded.base > known.number > loaded.state.trimmed.through:
        found = f"lacks slot {known.number}, which was there, and which nobody has trimmed"
    else:
        return None
    if left > last:
        advice = (
            f"The commit that noticed may have left slot {left} behind them, which the log can't pass. Close all "
            f"handles, and run `{command('repair', root)}` before anything else is put"
        )
    else:
        advice = (
            f"Close all handles, and run `{command('verify', root)}`. If it finds damage, run "
            f"`{command('repair', root)}`; else the channel continues with what is there when it is "
            "opened again"
        )
    return UnsafeStoreError(
        f"{root} {found}: the bucket was put back to an earlier version, or objects of the channel were removed. "
        f"Acknowledged events are lost. {advice}"
    )


def _other_in(chain: Chain, known: Tail | None) -> Tail | None:
    """Return the first slot that is another one in a log that was loaded: one that is known, or behind void ones."""
    while known is not None and chain.token_of(known.number) in (None, known.token):
        known = known.behind
    return known
