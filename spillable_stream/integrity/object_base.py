"""Where the replay of a channel in an object store begins: the oldest state after which every slot must be there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.object_inventory import ObjectInventory, numbers_after
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.checkpoints import Checkpoint, checkpoint_key
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState, restored

__all__ = ["Base", "find_base"]


@dataclass(frozen=True, slots=True)
class Base:
    """A state to replay from.

    Args:
        number: the slot after which it is.
        tail: that slot; None if the state is a guess.
        state: the state.
        is_proven: whether that slot is there: if it still is after the replay, none after it was ever deleted.
        unrepairable: why nothing can be made of the channel; "" if something can.
        missing: what is wrong with slots before it, by number. It is nothing wrong if the log, which is yet to be read,
            says that they were trimmed.
    """

    number: int
    tail: Tail | None
    state: ChannelState
    is_proven: bool = True
    unrepairable: str = ""
    missing: dict[int, Finding] = field(default_factory=dict)


def find_base(slots: Slots, inventory: ObjectInventory, findings: Findings) -> Base:
    """Return the state to replay from.

    What was trimmed may be missing: slots up to there are not asked for. Checkpoints of them are left over.

    Args:
        slots: the channel's slots.
        inventory: what else is there.
        findings: collects what is wrong with checkpoints.

    Raises:
        StoreError: the store refused or failed.
        UnsupportedFormatError: a newer version wrote a slot.
    """
    base = _found(slots, inventory)
    for number in inventory.bad_checkpoints:
        path = Path(checkpoint_key(number))
        if base.tail is None:
            findings.damage(path, "the checkpoint is damaged, and no other is whole", 0)
        else:
            findings.warn(path, "the checkpoint is damaged; it costs nothing but time: the log says the same", 0)
    return base


def _found(slots: Slots, inventory: ObjectInventory) -> Base:
    checkpoints = inventory.checkpoints
    trimmed = max([c.state.trimmed.through for c in checkpoints], default=-1)
    missing: dict[int, Finding] = {}
    if trimmed < 0:
        first = _first(slots, is_needed=not checkpoints)
        if isinstance(first, Base):
            return first
        missing[0] = first
    if not checkpoints:
        return _without_state(inventory, missing)
    for checkpoint in [c for c in checkpoints if c.tail.number > trimmed]:
        fault = _fault(slots, checkpoint)
        if fault is None:
            return Base(checkpoint.tail.number, checkpoint.tail, checkpoint.state.copy(), missing=missing)
        missing[checkpoint.tail.number] = fault
    newest = checkpoints[-1]
    return Base(newest.tail.number, newest.tail, newest.state.copy(), is_proven=False, missing=missing)


def _first(slots: Slots, *, is_needed: bool) -> Base | Finding:
    """Return the state with which the channel began; if slot 0 does not say it, what is wrong with that."""
    path, else_ = Path(slot_key(0)), "" if is_needed else ": a checkpoint says the same"
    try:
        slot = slots.read(0)
        if slot is None:
            return Finding(Severity.DAMAGE, path, f"slot 0 is missing{else_}")
        if slot.header.state is None:
            raise CorruptionError("it holds no state")
        return Base(0, Tail.of(slot), restored(slot.header.state))
    except CorruptionError:
        text = f"slot 0 is damaged, and with it the state with which the channel began{else_}"
        return Finding(Severity.DAMAGE, path, text, 0)


def _fault(slots: Slots, checkpoint: Checkpoint) -> Finding | None:
    """Return what is wrong with the slot of a checkpoint, from which a reader begins; None if nothing is."""
    number = checkpoint.tail.number
    path = Path(slot_key(number))
    try:
        token = slots.token(number)
    except CorruptionError:
        return Finding(Severity.DAMAGE, path, "the slot's header is damaged, and a checkpoint needs the slot", 0)
    if token is None:
        return Finding(Severity.DAMAGE, path, f"slot {number} is missing, and a checkpoint needs it")
    if token != checkpoint.tail.token:
        text = "the checkpoint belongs to a slot that is not the one there now"
        return Finding(Severity.DAMAGE, Path(checkpoint_key(number)), text, 0)
    return None


def _without_state(inventory: ObjectInventory, missing: dict[int, Finding]) -> Base:
    """Return the initial state of an event channel: neither slot 0 nor a checkpoint says what it was."""
    state = ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)])
    later = next(numbers_after(inventory.slots, 0), None)
    # Slots are deleted in ascending order: if slot 1 is there, the others were never deleted.
    if later == 1 or (0 in inventory.slots and later is None and not inventory.bad_checkpoints):
        return Base(0, None, state, is_proven=False, missing=missing)
    first = later or 1
    text = (
        f"no checkpoint can be read, and the slots before {first} were deleted: nothing says what the groups had taken "
        "by then, and where the events before it are; restore a checkpoint from a version of the bucket"
    )
    return Base(first - 1, None, state, is_proven=False, unrepairable=text, missing=missing)
