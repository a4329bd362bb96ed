"""Takes an append back that was created behind a slot that is lost: nobody could pass what it left there.

A writer creates its slot, and then sees that the slot before it is still there (`appending.py`). If that one is gone, a
collector has deleted it, and the append may count: others may have read it meanwhile. Or the bucket was put back to an
earlier version, and then it can't. The log that is there tells which: no slot is collected before a later checkpoint
can be read, so a log that ends before the lost slot has lost it.
"""

from __future__ import annotations

from spillable_stream.errors import SpillableError, UnsafeStoreError
from spillable_stream.format.slot import Slot
from spillable_stream.objects.appending import Attempt
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.loading import load
from spillable_stream.objects.overwritten import find_lost
from spillable_stream.objects.slots import Slots

__all__ = ["withdraw"]


def withdraw(slots: Slots, checkpoints: Checkpoints, attempt: Attempt) -> UnsafeStoreError | None:
    """Delete an append's slot if the one before it is lost, and return the error for that loss.

    Args:
        slots: the channel's slots.
        checkpoints: its checkpoints.
        attempt: the append, whose proof has failed.

    Returns:
        store does not tell: then nothing was deleted.
    """
    try:
        lost = find_lost(slots, attempt.at, load(_Without(slots, attempt), checkpoints), is_gone=False)
        if lost is None or not _is_last(slots, attempt):
            return None
        slots.delete(attempt.number)
    except SpillableError:
        return None
    return lost


def _is_last(slots: Slots, attempt: Attempt) -> bool:
    """Tell whether an append is in its place, and no slot behind it, like that of a handle for which it counted."""
    if slots.token(attempt.number + 1) is not None:
        return False
    token = slots.token(attempt.number)  # last: on a store that ignores conditions it may be another's by now
    return token is not None and attempt.sent(token)


class _Without(Slots):
    """The slots of a channel as they are without an append."""

    def __init__(self, slots: Slots, attempt: Attempt) -> None:
        super().__init__(slots.store, slots.channel)
        self._attempt = attempt

    def read(self, number: int) -> Slot | None:
        found = super().read(number)
        return None if found is not None and self._hides(number, found.header.token) else found

    def token(self, number: int) -> bytes | None:
        token = super().token(number)
        return None if token is not None and self._hides(number, token) else token

    def _hides(self, number: int, token: bytes) -> bool:
        return number == self._attempt.number and self._attempt.sent(token)
