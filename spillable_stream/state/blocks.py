"""Where the events are: a sparse index of the log by write-order ID.

A block is a stretch of one file whose events have IDs without gaps. Small transactions that follow
each other share a block, so the index grows with bytes and not with events: a backlog of 100
million events of 100 bytes is some 40,000 blocks.

A block's time stands for all its events, so it is short in time too, but the less so the longer the
backlog: a trickle of a week is some 30,000 blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge

from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory
from spillable_stream.state.image import BlockImage
from spillable_stream.state.ranges import Range

__all__ = ["Block", "BlockIndex", "Blocks"]

_BLOCK_BYTES = 256 << 10
_BLOCK_US = 250_000
_SPAN_PARTS = 4096  # a block may last so much of the time that its tier's events span, if that is more
_NO_END = 1 << 63


@dataclass(slots=True)
class Block:
    """A stretch of a file.

    Args:
        first_id: its first event.
        count: how many events it holds.
        file: a log file's number, or a segment's name.
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

    def image(self) -> BlockImage:
        """Return it as plain values."""
        where = self.first_id, self.count, self.file, self.offset, self.payload_bytes, self.time_us
        return *where, self.base_id, self.transaction_id, self.commit_file

    def extent(self, first_id: int = 0, last_id: int = _NO_END) -> Extent:
        """Return where its events from ``first_id`` to ``last_id`` are, all of them by default."""
        first, last = max(first_id, self.first_id), min(last_id, self.last_id)
        time_us = self.time_us if self.transaction_id else 0
        return Extent(self.file, self.offset, first, last, self.base_id, self.transaction_id, time_us)


class BlockIndex:
    """The blocks of one tier, in order.

    Args:
        blocks: what a checkpoint's image held.

    Attributes:
        events: how many events they hold.
        payload_bytes: the size of the events' payloads.
        files: how many blocks there are in every file.
        emptied: files that held blocks and hold none any more, until who removes them clears it.
        emptied_count: how many files that were, ever.
    """

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._blocks = list(blocks)
        self.events: int = sum(b.count for b in self._blocks)
        self.payload_bytes: int = sum(b.payload_bytes for b in self._blocks)
        self.files: Counter[int | str] = Counter(b.file for b in self._blocks)
        self.emptied: set[int | str] = set()
        self.emptied_count: int = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def add(self, block: Block) -> None:
        """Append the next events; a block that goes on where the last one ends extends it."""
        last = self._blocks[-1] if self._blocks else None
        if (
            last is not None
            and last.file == block.file
            and isinstance(block.file, int)
            and last.last_id + 1 == block.first_id
            and block.offset - last.offset < _BLOCK_BYTES
            and block.time_us - last.time_us <= self._longest_us(block.time_us)
        ):
            last.count += block.count
            last.payload_bytes += block.payload_bytes
            self.events += block.count
            self.payload_bytes += block.payload_bytes
        else:
            self.insert(block)

    def _longest_us(self, now_us: int) -> int:
        """Return how long a block may last, as of the newest event."""
        return max(_BLOCK_US, (now_us - self._blocks[0].time_us) // _SPAN_PARTS)

    def insert(self, block: Block) -> None:
        """Add events anywhere, as a block of their own: those around them may lie elsewhere in the file."""
        at = len(self._blocks)
        if at and self._blocks[-1].first_id > block.first_id:
            at = bisect_right(self._blocks, block.first_id, key=lambda b: b.first_id)
        self._blocks.insert(at, block)
        self.events += block.count
        self.payload_bytes += block.payload_bytes
        self.files[block.file] += 1

    def drop_through(self, last_id: int) -> None:
        """Forget the blocks whose events all have IDs up to ``last_id``."""
        dropped = 0
        while dropped < len(self._blocks) and self._blocks[dropped].last_id <= last_id:
            self._forget(self._blocks[dropped])
            dropped += 1
        del self._blocks[:dropped]

    def remove(self, first_id: int) -> None:
        """Forget the block that begins with an event, if there is one."""
        at = bisect_right(self._blocks, first_id, key=lambda b: b.first_id) - 1
        if at >= 0 and self._blocks[at].first_id == first_id:
            self._forget(self._blocks.pop(at))

    def clear(self) -> None:
        """Forget every block."""
        self.drop_through(_NO_END)

    def _forget(self, block: Block) -> None:
        self.events -= block.count
        self.payload_bytes -= block.payload_bytes
        self.files[block.file] -= 1
        if not self.files[block.file]:
            del self.files[block.file]
            self.emptied.add(block.file)
            self.emptied_count += 1

    def first(self) -> Block | None:
        """Return the first block, or None."""
        return self._blocks[0] if self._blocks else None

    def between(self, first_id: int, last_id: int) -> Iterator[Block]:
        """Yield the blocks that hold an event from ``first_id`` to ``last_id``, in order."""
        at = bisect_right(self._blocks, first_id, key=lambda b: b.first_id) - 1
        if at < 0 or self._blocks[at].last_id < first_id:
            at += 1
        for i in range(at, len(self._blocks)):
            if self._blocks[i].first_id > last_id:
                return
            yield self._blocks[i]


class Blocks:
    """Where the events of a channel are, in both tiers.

    Args:
        blocks: what a checkpoint's image held.

    Attributes:
        disk: the blocks on disk.
        memory: the blocks in memory.
    """

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        kept = list(blocks)
        self.disk: BlockIndex = BlockIndex(b for b in kept if not in_memory(b.file))
        self.memory: BlockIndex = BlockIndex(b for b in kept if in_memory(b.file))

    def __len__(self) -> int:
        return len(self.disk) + len(self.memory)

    def __iter__(self) -> Iterator[Block]:
        """Yield every block of both tiers, in order."""
        if not len(self.memory):
            return iter(self.disk)
        return merge(self.disk, self.memory, key=lambda b: b.first_id)

    def image(self) -> list[BlockImage]:
        """Return the blocks as plain values."""
        return [b.image() for b in self]

    def add(self, block: Block) -> None:
        """Add events to the tier that their file belongs to."""
        (self.memory if in_memory(block.file) else self.disk).add(block)

    def drop_through(self, last_id: int) -> None:
        """Forget the blocks whose events all have IDs up to ``last_id``."""
        self.disk.drop_through(last_id)
        self.memory.drop_through(last_id)

    def between(self, first_id: int, last_id: int) -> Iterator[Block]:
        """Yield the blocks that hold an event from ``first_id`` to ``last_id``, in order."""
        if not len(self.memory):
            return self.disk.between(first_id, last_id)
        if not len(self.disk):
            return self.memory.between(first_id, last_id)
        tiers = self.disk.between(first_id, last_id), self.memory.between(first_id, last_id)
        return merge(*tiers, key=lambda b: b.first_id)

    def extents(self, first_id: int, last_id: int) -> list[Extent]:
        """Return where the events from ``first_id`` to ``last_id`` are, in order."""
        return [b.extent(first_id, last_id) for b in self.between(first_id, last_id)]

    def payload_bytes(self, first_id: int, last_id: int) -> int:
        """Return about how many bytes the events of a range have: exact for whole blocks."""
        total = 0
        for b in self.between(first_id, last_id):
            inside = min(last_id, b.last_id) - max(first_id, b.first_id) + 1
            total += b.payload_bytes * inside // b.count
        return total

    def last_id_within(self, first_id: int, last_id: int, size_bytes: int) -> int:
        """Return the last ID such that the events from ``first_id`` on have about ``size_bytes``.

        At least one event, and never past ``last_id``.
        """
        left = size_bytes
        for b in self.between(first_id, last_id):
            first, last = max(first_id, b.first_id), min(last_id, b.last_id)
            each = max(1, b.payload_bytes // b.count)
            if (last - first + 1) * each > left:
                return max(first_id, min(last, first + left // each - 1))
            left -= (last - first + 1) * each
        return last_id

    def time_of(self, event_id: int) -> int | None:
        """Return about when the first event from an ID on was committed, in microseconds since 1970, or None.

        Never too late, and too early by at most a quarter of a second, or 1/4096 of the time that the backlog
        spanned when the event came.
        """
        for b in self.between(event_id, _NO_END):
            return b.time_us
        return None

    def gaps(self, first_id: int, last_id: int) -> Iterator[Range]:
        """Yield the ranges from ``first_id`` to ``last_id`` of which no block holds an event."""
        for b in self.between(first_id, last_id):
            if b.first_id > first_id:
                yield first_id, b.first_id - 1
            first_id = b.last_id + 1
        if first_id <= last_id:
            yield first_id, last_id

    def segments(self) -> set[str]:
        """Return the names of the segments that still hold events."""
        return {b.file for b in self if isinstance(b.file, str)}

    def oldest_data_file(self) -> int | None:
        """Return the number of the oldest data file that still holds events, or the COMMIT of a segment; or None."""
        return min((b.file if isinstance(b.file, int) else b.commit_file for b in self.disk), default=None)
