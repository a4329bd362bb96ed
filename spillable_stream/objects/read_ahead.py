"""Reads the slots after a tail, in order, and asks for several at the same time where many are likely to be there."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType

from spillable_stream.errors import DataLossError
from spillable_stream.format.slot import Slot
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.parallel import MOST_AT_ONCE, begin, most_at_once
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.objects.void_slots import pass_void
from spillable_stream.shown_value import command

__all__ = ["BehindError", "ReadAhead", "require_there"]

_MOST_SLOTS = 256  # read before they are proven
_MOST_BYTES = 64 << 20
_RAMP = {2: 1, 6: 4, 22: 16}  # while fewer slots than this were there, so many are asked for at the same time


class BehindError(Exception):
    """What a reader knows is so old that slots after it were collected: it must begin from a checkpoint.

    Args:
        is_gone: whether the newest slot that the reader knows is not there any more; else a repair began the log anew.
    """

    def __init__(self, *, is_gone: bool = False) -> None:
        super().__init__()
        self.is_gone = is_gone


class ReadAhead:
    """The slots after a tail, read as they are asked for, and some ahead: ``with ReadAhead(slots, tail) as ahead``.

    The requests for the slots after a chunk are under way while that is proven, and while its caller applies it. At the
    block's end none is.

    Args:
        slots: the channel's slots.
        tail: the last one that is known.
    """

    def __init__(self, slots: Slots, tail: Tail) -> None:
        self._slots = slots
        self._tail = tail
        self._found = 0
        self._sizes: deque[int] = deque(maxlen=MOST_AT_ONCE)  # of the slots that were found last, in bytes
        self._asked = tail.number
        self._under_way: deque[Future[Slot | None]] = deque()

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def chunk(self) -> tuple[list[Slot], bool]:
        """Return the next slots, proven, and whether the log ended there just now; not too many at once.

        One that is void holds nothing.

        The proof comes last: where the tail before them is still there, no slot after it was ever deleted, so none that
        was found is a late writer's, and one that was not there was never there.

        Raises:
            BehindError: slots after the tail were collected, or a repair began the log anew.
            CorruptionError: a slot is damaged.
            DataLossError: a slot was appended after one that is not the one there now.
            StoreError: the store refused or failed.
        """
        found: list[Slot] = []
        size_bytes, is_end = 0, False
        while not is_end and len(found) < _MOST_SLOTS and size_bytes < _MOST_BYTES:
            slot = self._next()
            if slot is None:
                is_end = True
            else:
                found.append(slot)
                size_bytes += slot.end
        require_there(self._slots, self._tail)
        for i, slot in enumerate(found):
            if not self._tail.accepts(slot):
                if (void := pass_void(self._slots, slot)) is None:
                    raise self._broken(slot, found[i:])
                found[i] = void
            self._tail = self._tail.after(slot)
        return found, is_end

    def _broken(self, slot: Slot, rest: Sequence[Slot]) -> Exception:
        """Return what to raise at a proven slot that no writer can have appended behind the ones before it."""
        if any(later.begins_anew for later in rest):
            return BehindError()
        before, root = self._tail.number, self._slots.store.root
        return DataLossError(
            f"slot {slot.number} was appended after a slot {before} that is not the one there now: objects of the "
            "channel were removed, overwritten, or put back to an earlier version, and others took their places. Run "
            f"`{command('verify', root)}`, and `{command('repair', root)}` to continue without what "
            "is lost",
            f"{root}/{slot_key(slot.number)}",
        )

    def _next(self) -> Slot | None:
        under_way, width = self._under_way, self._width()
        if not under_way and width == 1:  # the usual look, which needs no thread
            self._asked += 1
            slot = self._slots.read(self._asked)
        else:
            while len(under_way) < width:
                self._asked += 1
                under_way.append(begin(self._slots.store.root, partial(self._slots.read, self._asked)))
            slot = under_way.popleft().result()
        if slot is not None:
            self._found += 1
            self._sizes.append(slot.end)
        return slot

    def _width(self) -> int:
        """Return how many requests may be under way: each that finds nothing costs money, too."""
        width = next((width for found, width in _RAMP.items() if self._found < found), MOST_AT_ONCE)
        return min(width, most_at_once(max(self._sizes, default=0)))

    def _end(self) -> None:
        waits = [request for request in self._under_way if not request.cancel()]
        self._under_way.clear()
        for request in waits:
            request.exception()


def require_there(slots: Slots, tail: Tail) -> None:
    """Prove that a slot is still there: then none after it has ever been deleted.

    Raises:
        BehindError: it is not, or another one is in its place.
        StoreError: the store refused or failed.
    """
    if tail.gone_in(slots) is not None:
        raise BehindError(is_gone=True)
