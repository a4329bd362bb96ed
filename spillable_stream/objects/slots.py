"""The slots of a channel: reads them, and creates each at most once."""

from __future__ import annotations

import re

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import Payload
from spillable_stream.format.slot import HEADER_READ_BYTES, Slot, claimed_channel, parse_slot_header
from spillable_stream.objects.store import Content, ObjectMissingError, Store
from spillable_stream.shown_value import command

__all__ = ["LOG", "ForeignSlotError", "Slots", "number_in", "object_key", "slot_key"]

LOG = "log/"
"""What the keys of slots begin with."""

_NUMBER = re.compile(r"[0-9]{20}\Z")


class ForeignSlotError(CorruptionError):
    """A slot is whole, and another channel's: it will not be otherwise at another look."""


def slot_key(number: int) -> str:
    """Return the key of a slot."""
    return f"{LOG}{number:020d}"


def number_in(key: str, folder: str) -> int | None:
    """Return the number that an object of a folder has as its name, as slots and checkpoints do; None for others."""
    return int(key[len(folder) :]) if key.startswith(folder) and _NUMBER.match(key, len(folder)) else None


def object_key(file: int | str) -> str:
    """Return the key of the object that a block is in: a slot's number, or a segment's or merged object's key."""
    return slot_key(file) if isinstance(file, int) else file


class Slots:
    """The slots of one channel. Thread-safe.

    Args:
        store: where they are.
        channel: the channel's UUID.
    """

    def __init__(self, store: Store, channel: str) -> None:
        self.store = store
        self.channel = channel

    def create(self, number: int, data: Content) -> bool:
        """Create a slot if it is not there, with one request; returns and raises what `Store.create` does."""
        return self.store.create(slot_key(number), data)

    def read(self, number: int) -> Slot | None:
        """Return a slot; None if there is none now.

        Raises:
            CorruptionError: what is there is damaged, twice read; a `ForeignSlotError` if it is another channel's.
            StoreError: the store refused or failed.
            UnsupportedFormatError: a newer version wrote it.
        """
        try:
            try:
                return self._parsed(number)
            except CorruptionError:  # on the way, perhaps
                return self._parsed(number)
        except ObjectMissingError:
            return None

    def _parsed(self, number: int) -> Slot:
        data = self.store.get(slot_key(number))
        try:
            return Slot.parse(self.channel, number, data)
        except CorruptionError as e:
            self._require_mine(number, data)
            raise CorruptionError(e.args[0], self._place(number), e.offset) from e

    def _require_mine(self, number: int, data: Payload) -> None:
        if (found := claimed_channel(data)) not in ("", self.channel):
            raise ForeignSlotError(
                f"a slot of the channel {self.channel} is another channel's, {found}, which was written as that was "
                f"removed; run `{command('repair', self.store.root)}`, which moves it aside",
                self._place(number),
                0,
            )

    def _place(self, number: int) -> str:
        return f"{self.store.root}/{slot_key(number)}"

    def token(self, number: int) -> bytes | None:
        """Return the token of a slot; None if there is none now.

        Raises:
            CorruptionError: what is there is damaged, twice read; a `ForeignSlotError` if it is another channel's.
            StoreError: the store refused or failed.
        """
        key = slot_key(number)
        try:
            # The header of slot 0 holds a state of any size.
            data = bytes(self.store.get_range(key, 0, HEADER_READ_BYTES)) if number else self.store.get(key)
            found = parse_slot_header(self.channel, number, data)
            if found is None:  # damaged on the way, perhaps
                data = self.store.get(key)
                found = parse_slot_header(self.channel, number, data)
                if found is None:
                    self._require_mine(number, data)
        except ObjectMissingError:
            return None
        if found is None:
            raise CorruptionError("the header of a slot is damaged, or another slot's", self._place(number), 0)
        return found[0].token

    def delete(self, number: int) -> None:
        """Delete a slot; one that is not there is no error. Raises `StoreError`."""
        self.store.delete(slot_key(number))
