"""When a channel was last seen to be where it is: a store keeps nobody from removing one that a handle has open."""

from __future__ import annotations

import contextlib
import time

from spillable_stream.errors import CorruptionError, NotAChannelError, StorageError
from spillable_stream.objects.identity import extend_identity, read_identity
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import LOG, ForeignSlotError, Slots, slot_key

__all__ = ["ChannelPresence"]

_SHORTEST_FRESH_SECONDS = 1.0


class ChannelPresence:
    """What a handle knows of whether its channel is still there.

    Args:
        slots: the channel's slots.
        location: what users call the channel.
        is_proven: whether it is known to be there.

    Attributes:
        is_proven: whether nothing speaks against it since it was seen.
    """

    def __init__(self, slots: Slots, location: Location, *, is_proven: bool) -> None:
        self.is_proven: bool = is_proven
        self._slots = slots
        self._location = location
        self._seen_at = float("-inf")  # when its newest slot that is known was there, at the latest
        self._fresh_seconds = _SHORTEST_FRESH_SECONDS

    def saw(self, at: float) -> None:
        """Note that the newest slot that is known was there at some time of the monotonic clock, or later."""
        self.is_proven, self._seen_at = True, at

    def keep_fresh_for(self, seconds: float) -> None:
        """Say how long after it was seen a channel counts as there."""
        self._fresh_seconds = max(_SHORTEST_FRESH_SECONDS, seconds)

    def is_fresh(self, seconds: float | None = None) -> bool:
        """Tell whether it was seen lately, and nothing speaks against it since.

        Args:
            seconds: how long ago at most; None for as long as it counts as there.
        """
        return self.is_proven and time.monotonic() - self._seen_at < (
            self._fresh_seconds if seconds is None else seconds
        )

    def require(self) -> None:
        """Ask the store, if it is not proven.

        Raises:
            CorruptionError: the identity that is there can't be read.
            NotAChannelError: there is no channel, or another one.
            StoreError: the store refused or failed.
        """
        if not self.is_proven:
            self._require(read_identity(self._slots.store) == self._slots.channel)

    def extend(self) -> None:
        """Note in its identity that it is extended (`extend_identity`); raises what `require` does."""
        self._require(extend_identity(self._slots.store, self._slots.channel))

    def _require(self, is_there: bool) -> None:
        self.is_proven = is_there
        if not is_there:
            raise NotAChannelError(
                f"the channel {self._slots.channel} is no longer at {self._location}: it was removed, or another "
                "one is there"
            )

    def require_after(self, number: int) -> None:
        """Ask the store after an append that found no trace of the channel, or one of another.

        What it left there is deleted. It would be damage in the channel that is created there next.

        Args:
            number: the slot of the append.

        Raises:
            NotAChannelError: there is no channel, or another one.
        """
        self.is_proven = False
        with contextlib.suppress(CorruptionError, StorageError):  # the append's own error says more
            try:
                self.require()
            except NotAChannelError:
                with contextlib.suppress(StorageError):
                    if self._is_rubbish(number):
                        self._slots.delete(number)
                raise

    def _is_rubbish(self, number: int) -> bool:
        """Tell whether a slot of this channel is nobody's: another channel is there or begun, or nothing else."""
        store = self._slots.store
        with contextlib.suppress(CorruptionError):
            is_another = read_identity(store) is not None or self._is_another_begun()
            if is_another or {i.key for i in store.list(LOG)} == {slot_key(number)}:
                return self._slots.read(number) is not None  # last: it may be another channel's by then
        return False

    def _is_another_begun(self) -> bool:
        try:
            self._slots.token(0)
        except ForeignSlotError:
            return True
        return False
