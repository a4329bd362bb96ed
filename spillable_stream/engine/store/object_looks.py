"""Looks at a log in a store: what others have appended to it."""

from __future__ import annotations

import threading
import time

from spillable_stream.engine.store.channel_presence import ChannelPresence
from spillable_stream.engine.store.handle_lock import HandleLock
from spillable_stream.engine.store.known_slots import KnownSlots
from spillable_stream.errors import CorruptionError
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.overwritten import find_overwritten
from spillable_stream.objects.read_ahead import BehindError, ReadAhead
from spillable_stream.objects.slots import Slots

__all__ = ["ObjectLooks"]


class ObjectLooks:
    """The looks of one handle.

    Args:
        slots: the channel's slots.
        known: what the handle knows of them.
        presence: whether the channel is still there.
        checkpoints: the channel's checkpoints.
        lock: keeps appends away while what is known changes.
    """

    def __init__(
        self,
        slots: Slots,
        known: KnownSlots,
        presence: ChannelPresence,
        checkpoints: Checkpoints,
        lock: HandleLock,
    ) -> None:
        self._slots = slots
        self._known = known
        self._presence = presence
        self._checkpoints = checkpoints
        self._lock = lock
        self._looking = threading.Lock()
        self._begun = 0
        self._ended = 0  # the number of the newest one that ended well

    def look(self) -> None:
        """Find what others appended. Threads that come while one looks share the next look; raises what `find` does."""
        before = self._begun
        with self._looking:
            if self._ended > before:
                return
            self._begun = number = self._begun + 1
            self.find()
            self._ended = number

    def find(self) -> None:
        """Find what others appended, also inside of an append.

        It raises the error of some damage once, if a later checkpoint has passed it, as that of a repair has: the
        next look begins there, as an open does.

        Raises:
            CorruptionError: a slot is damaged.
            NotAChannelError: the channel is no longer there.
            StoreError: the store refused or failed.
            UnsafeStoreError: the store overwrote a slot.
        """
        is_end = self._known.must_load  # what there is to find then, the load finds
        with ReadAhead(self._slots, self._known.tail) as ahead:
            while not is_end:
                began = time.monotonic()
                try:
                    found, is_end = ahead.chunk()
                except BehindError as e:
                    self.begin_anew(is_gone=e.is_gone)
                    return
                except CorruptionError as e:
                    e.advise(self._slots.store.root)
                    self._presence.is_proven = False  # another channel's slots look damaged
                    self._presence.require()
                    if max(self._checkpoints.numbers(), default=0) > self._known.tail.number:
                        self._known.losses += 1
                        self._begin_anew()
                    raise
                self._presence.saw(began)
                if found:
                    with self._lock.had():
                        self._known.know(found)

    def find_later_checkpoint(self) -> None:
        """List the checkpoints before the first append; if there is a later one, have the state loaded from that.

        The hint may be older than the newest checkpoint. If the log was cut off between the two, a handle that began
        with the hint would give the IDs of the lost events to others. The load tells what is lost. A listing costs what
        an append costs, so an open of a handle that may only look does not pay for it.

        Raises:
            StoreError: the store refused or failed.
        """
        known, base = self._known, self._known.unlisted
        if base is None:
            return
        if known.must_load or max(self._checkpoints.numbers(), default=0) > base:
            known.must_list = True
            self._begin_anew()
        else:
            known.unlisted = None

    def begin_anew(self, *, is_gone: bool) -> None:
        """Have the state loaded; see `KnownSlots.begin_anew`.

        Args:
            is_gone: whether the newest slot that is known is not there any more.

        Raises:
            UnsafeStoreError: not because slots were collected, but because the store overwrote one.
        """
        self.refuse_overwritten()
        self._known.losses += not is_gone
        self._begin_anew(is_gone=is_gone)

    def refuse_overwritten(self) -> None:
        """Refuse to continue as if nothing were lost. The next call continues with what is there.

        Raises:
            UnsafeStoreError: the store overwrote the newest slot that is known.
        """
        known = self._known
        overwritten = None if known.must_load else find_overwritten(self._slots, known.chain, known.tail)
        if overwritten is not None:
            self._begin_anew()
            known.is_told = True
            known.losses += 1
            raise overwritten

    def _begin_anew(self, *, is_gone: bool = False) -> None:
        with self._lock.had():
            self._presence.is_proven = False
            self._known.begin_anew(is_gone=is_gone)
