"""Where the events are: a sparse index of the log by write-order ID.

A block is a stretch of one file whose events have IDs without gaps. Small transactions that follow
each other share a block, so the index grows with bytes and not with events: a backlog of 100
million events of 100 bytes is some 40,000 blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

from spillable_stream.log.reader import Extent

__all__ = ["Block", "BlockIndex"]

_BLOCK_BYTES = 256 << 10


@dataclass(slots=True)
class Block:
    """A stretch of a file.

    Args:
        first_id: its first event.
        count: how many events it holds.
        file: a data file's number, or a segment's name.
        offset: where its first PUT frame starts.
        payload_bytes: the size of the events' payloads.
        time_us: when its first event was committed.
        base_id: what to add to the IDs of the frames.
        transaction_id: for segments, the transaction that adopted it.
        commit_file: for segments, the data file that holds its COMMIT, which is kept as long.
    """

    first_id: int
    count: int
    file: int | str
    offset: int
    payload_bytes: int
    time_us: int
    base_id: int = 0
    transaction_id: int = 0
    commit_file: int = 0

    @property
    def last_id(self) -> int:
        """Its last event."""
        return self.first_id + self.count - 1


class BlockIndex:
    """The blocks of all events that are in the channel, in order.

    Args:
        blocks: what a checkpoint's image held.
    """

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._blocks = list(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def image(self) -> list[tuple[object, ...]]:
        """Return the blocks as plain values."""
        return [astuple(b) for b in self._blocks]

    def add(self, block: Block) -> None:
        """Append the next events; a block that goes on where the last one ends extends it."""
        last = self._blocks[-1] if self._blocks else None
        if (
            last is not None
            and last.file == block.file
            and isinstance(block.file, int)
            and last.last_id + 1 == block.first_id
            and block.offset - last.offset < _BLOCK_BYTES
        ):
            last.count += block.count
            last.payload_bytes += block.payload_bytes
        else:
            self._blocks.append(block)

    def drop_through(self, last_id: int) -> None:
        """Forget the blocks whose events all have IDs up to ``last_id``."""
        dropped = 0
        while dropped < len(self._blocks) and self._blocks[dropped].last_id <= last_id:
            dropped += 1
        del self._blocks[:dropped]

    def first_id(self) -> int | None:
        """Return the ID of the first event that has a place, or None."""
        return self._blocks[0].first_id if self._blocks else None

    def _index_of(self, event_id: int) -> int:
        return max(0, bisect_right(self._blocks, event_id, key=lambda b: b.first_id) - 1)

    def extents(self, first_id: int, last_id: int) -> list[Extent]:
        """Return where the events from ``first_id`` to ``last_id`` are, in order."""
        found = []
        for i in range(self._index_of(first_id), len(self._blocks)):
            b = self._blocks[i]
            if b.first_id > last_id:
                break
            first, last = max(first_id, b.first_id), min(last_id, b.last_id)
            if first <= last:
                adopted = b.transaction_id != 0
                time_us = b.time_us if adopted else 0
                found.append(Extent(b.file, b.offset, first, last, b.base_id, b.transaction_id, time_us))
        return found

    def payload_bytes(self, first_id: int, last_id: int) -> int:
        """Return about how many bytes the events of a range have: exact for whole blocks."""
        total = 0
        for i in range(self._index_of(first_id), len(self._blocks)):
            b = self._blocks[i]
            if b.first_id > last_id:
                break
            inside = min(last_id, b.last_id) - max(first_id, b.first_id) + 1
            total += b.payload_bytes * max(inside, 0) // b.count
        return total

    def last_id_within(self, first_id: int, last_id: int, size_bytes: int) -> int:
        """Return the last ID such that the events from ``first_id`` on have about ``size_bytes``.

        At least one event, and never past ``last_id``.
        """
        left = size_bytes
        for i in range(self._index_of(first_id), len(self._blocks)):
            b = self._blocks[i]
            first, last = max(first_id, b.first_id), min(last_id, b.last_id)
            if first > last:
                continue
            each = max(1, b.payload_bytes // b.count)
            if (last - first + 1) * each > left:
                return max(first_id, min(last, first + left // each - 1))
            left -= (last - first + 1) * each
        return last_id

    def time_of(self, event_id: int) -> int | None:
        """Return about when an event was committed, in microseconds since 1970, or None."""
        return self._blocks[self._index_of(event_id)].time_us if self._blocks else None

    def segments(self) -> set[str]:
        """Return the names of the segments that still hold events."""
        return {b.file for b in self._blocks if isinstance(b.file, str)}

    def oldest_data_file(self) -> int | None:
        """Return the number of the oldest data file that still holds events, or the COMMIT of a segment; or None."""
        return min((b.file if isinstance(b.file, int) else b.commit_file for b in self._blocks), default=None)
