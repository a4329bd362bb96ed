"""Slots that their own writers have declared void: they count for nobody.

A writer that does not know yet that the bucket was put back to an older version creates its slot behind those that are
lost, and learns from its proof that they are. Nobody was told that the slot counts. It stays, since a number that was
used is never free again. So its writer says beside it, under a name with the slot's token, that it is void::

    log/0…11                       planned on a slot 10 that is lost
    log/0…11.void.TOKEN            its writer could not prove it

Whoever comes to a slot that was not planned on the one before it asks for that object, and passes the slot. Nothing
else depends on it: a slot that was planned on the one that is there counts, whatever is said beside it. And where a
handle saw the lost slot in time, what it planned on the void one is refused: that is not the last one that counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from spillable_stream.format.slot import TOKEN_BYTES, Slot
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.slots import LOG, Slots, number_in, slot_key
from spillable_stream.objects.store import ObjectMissingError
from spillable_stream.shown_value import command
from spillable_stream.state.ranges import events_in

__all__ = ["declare_void", "is_void", "pass_void", "void_key", "void_slots", "warn_of_void", "withdraw_void"]

_log = log_of(__name__)

_VOID = ".void."
_TEXT = b"The writer of this slot found that the slot before it was lost. It has acknowledged nothing of it.\n"


def void_key(number: int, token: bytes) -> str:
    """Return the key of the object that says that a slot is void."""
    return f"{slot_key(number)}{_VOID}{token.hex()}"


def declare_void(slots: Slots, number: int, token: bytes) -> None:
    """Say that a slot is void; only for its own writer, which has told nobody that it counts.

    Raises:
        StoreError: the store refused or failed.
    """
    slots.store.replace(void_key(number, token), _TEXT)


def withdraw_void(slots: Slots, number: int, token: bytes) -> None:
    """Take back that a slot is void; only for its own writer, which has proven it since.

    Raises:
        StoreError: the store refused or failed.
    """
    slots.store.delete(void_key(number, token))


def is_void(slots: Slots, number: int, token: bytes) -> bool:
    """Tell whether a slot that was not planned on the one before it is void.

    Raises:
        StoreError: the store refused or failed.
    """
    try:
        slots.store.get(void_key(number, token))
    except ObjectMissingError:
        return False
    return True


def pass_void(slots: Slots, slot: Slot) -> Slot | None:
    """Return a slot that was not planned on the one before it as its readers pass it, without an append.

    Returns:
        None if it is not void.

    Raises:
        StoreError: the store refused or failed.
    """
    if not is_void(slots, slot.number, slot.header.token):
        return None
    warn_of_void(slots, slot)
    return slot.without_append()


def warn_of_void(slots: Slots, slot: Slot, last_id: int | None = None) -> None:
    """Say what a void slot says is lost: its writer may have been killed before it could tell.

    Args:
        slots: the channel's slots.
        slot: the slot.
        last_id: the last write-order ID that is in use without it; None if other events may have those that are lost.
    """
    root, through = slots.store.root, slot.first_id - 1
    _log.warning(
        "%s: slot %d counts for nobody: its writer, %s%s, found that slots before it were lost%s. If nobody knows of "
        "that, run '%s'",
        root,
        slot.number,
        slot.header.writer,
        f", which knew the events up to {through}" if through > 0 else "",
        f": {events_in([(last_id + 1, through)])}" if last_id is not None and last_id < through else "",
        command("verify", root),
        extra=fields(root, slot=slot.number),
    )


def void_slots(keys: Iterable[str]) -> set[tuple[int, bytes]]:
    """Return the numbers and tokens of the slots that some of these keys of a listing say to be void."""
    found = set[tuple[int, bytes]]()
    for key in keys:
        slot, is_said, token = key.partition(_VOID)
        number = number_in(slot, LOG)
        if number is not None and is_said and len(token) == 2 * TOKEN_BYTES:
            try:
                said = number, bytes.fromhex(token)
            except ValueError:
                continue
            if void_key(*said) == key:
                found.add(said)
    return found
