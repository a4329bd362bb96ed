"""Locates events: a sparse index of the log by write-order ID.

A block is a contiguous region of one file whose events have consecutive IDs. Consecutive small
transactions share a block, so the index grows with bytes, not with events: a backlog of 100
million events of 100 bytes takes about 40,000 blocks.

All events of a block share its time, so a block also spans a limited time. The limit grows with the
time that the backlog spans: a week of slow writes takes about 30,000 blocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge

from spillable_stream.format.expiry import Expiry
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory
from spillable_stream.state.image import BlockImage
from spillable_stream.state.ranges import Range

__all__ = ["BLOCK_BYTES", "Block", "BlockIndex", "Blocks"]

BLOCK_BYTES = 256 << 10
"""A block begins no frame so far behind its first one."""

_BLOCK_US = 250_000
_SPAN_PARTS = 4096  # a block may span this fraction of the time that its tier's events span, if that exceeds _BLOCK_US
_NO_END = 1 << 63


@dataclass(slots=True)
class Block:
    """A contiguous region of a file whose events have consecutive IDs.

    Args:
        first_id: the ID of its first event.
        count: its number of events.
        file: a log file's number, or a segment's name.
        offset: where its first PUT frame starts, in bytes.
        payload_bytes: the total size of its events' payloads.
        time_us: when its first event was committed, in microseconds since 1970.
        base_id: added to the IDs in the frames.
        transaction_id: for a segment, the transaction that adopted it.
        commit_file: for a segment, the data file that holds its COMMIT. That file is kept as long as the segment.
        until_us: when its last event was committed, in microseconds since 1970; 0 where nothing is kept by age.
        first_expiry_us: when the first of its events that expire does; 0 if none ever does.
        last_expiry_us: when all of its events have expired; 0 if one of them never does.
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
    until_us: int = 0
    first_expiry_us: int = 0
    last_expiry_us: int = 0

    @property
    def expiry(self) -> Expiry:
        """When its events expire."""
        return Expiry(self.first_expiry_us, self.last_expiry_us)

    @property
    def last_id(self) -> int:
        """The ID of its last event."""
        return self.first_id + self.count - 1

    def image(self) -> BlockImage:
        """Return it as plain values."""
        where = self.first_id, self.count, self.file, self.offset, self.payload_bytes, self.time_us
        image = *where, self.base_id, self.transaction_id, self.commit_file
        if self.first_expiry_us:
            return (*image, self.until_us, *self.expiry)
        return (*image, self.until_us) if self.until_us else image

    def expire(self, expiry: Expiry) -> None:
        """Note when its events expire."""
        self.first_expiry_us, self.last_expiry_us = expiry

    def extent(self, first_id: int = 0, last_id: int = _NO_END) -> Extent:
        """Return the extent of its events from ``first_id`` to ``last_id``; by default, of all."""
        first, last = max(first_id, self.first_id), min(last_id, self.last_id)
        time_us = self.time_us if self.transaction_id else 0
        return Extent(self.file, self.offset, first, last, self.base_id, self.transaction_id, time_us)


class BlockIndex:
    """The blocks of one tier, in order.

    The first ones are kept: every group has taken all of their events. The others are held::

        ├── kept: whole blocks ──┼── held: what `events` counts ──┤

    Args:
        blocks: the blocks from a checkpoint's image.
        kept_through: every group has taken the events up to this one.

    Attributes:
        events: the number of events in the blocks that are held.
        payload_bytes: the total size of their payloads.
        kept_events: the number of events in the blocks that are kept.
        kept_bytes: the total size of their payloads.
        files: the number of blocks in each file.
        emptied: files whose last block was dropped. Whoever removes these files clears the set.
        emptied_count: how many files have ever been added to `emptied`.
        has_expiry: whether an event of a block had a ttl, ever since the index was made.
    """

    def __init__(self, blocks: Iterable[Block] = (), kept_through: int = 0) -> None:
        self._blocks = list(blocks)
        self._kept_through = kept_through
        self._kept = bisect_right(self._blocks, kept_through, key=lambda b: b.last_id)  # how many are kept
        kept, held = self._blocks[: self._kept], self._blocks[self._kept :]
        self.events: int = sum([b.count for b in held])
        self.payload_bytes: int = sum([b.payload_bytes for b in held])
        self.kept_events: int = sum([b.count for b in kept])
        self.kept_bytes: int = sum([b.payload_bytes for b in kept])
        self.files: Counter[int | str] = Counter(b.file for b in self._blocks)
        self.emptied: set[int | str] = set()
        self.emptied_count: int = 0
        self.has_expiry: bool = any(b.first_expiry_us for b in self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def add(self, block: Block) -> None:
        """Append the next events. A block that directly follows the last one is merged into it."""
        last = self._blocks[-1] if self._blocks else None
        if (
            last is not None
            and last.file == block.file
            and isinstance(block.file, int)
            and last.last_id + 1 == block.first_id
            and block.offset - last.offset < BLOCK_BYTES
            and block.time_us - last.time_us <= self.longest_us(block.time_us)
        ):
            if self._kept == len(self._blocks):  # it is held again: one block for each put would be too many
                self._kept -= 1
                self._hold(last)
            last.count += block.count
            last.payload_bytes += block.payload_bytes
            last.until_us = block.until_us
            if block.first_expiry_us or last.first_expiry_us:
                last.expire(last.expiry.joined(block.expiry))
                self.has_expiry = True
            self.events += block.count
            self.payload_bytes += block.payload_bytes
        else:
            self.insert(block)

    def keep_through(self, last_id: int) -> None:
        """Keep the blocks whose events all have IDs up to ``last_id``: every group has taken them."""
        self._kept_through = max(self._kept_through, last_id)
        while self._kept < len(self._blocks) and self._blocks[self._kept].last_id <= last_id:
            block = self._blocks[self._kept]
            self._kept += 1
            self.events -= block.count
            self.payload_bytes -= block.payload_bytes
            self.kept_events += block.count
            self.kept_bytes += block.payload_bytes

    def _hold(self, block: Block) -> None:
        self.events += block.count
        self.payload_bytes += block.payload_bytes
        self.kept_events -= block.count
        self.kept_bytes -= block.payload_bytes

    def longest_us(self, now_us: int) -> int:
        """Return the longest time that a block may span, given the time of the newest event."""
        return max(_BLOCK_US, (now_us - self._blocks[0].time_us) // _SPAN_PARTS)

    def insert(self, block: Block) -> None:
        """Add events anywhere, as a separate block: their neighbors in ID order may lie elsewhere in the file."""
        at = len(self._blocks)
        if at and self._blocks[-1].first_id > block.first_id:
            at = bisect_right(self._blocks, block.first_id, key=lambda b: b.first_id)
        self._blocks.insert(at, block)
        if block.first_expiry_us:
            self.has_expiry = True
        self.files[block.file] += 1
        if block.first_id + block.count <= self._kept_through + 1:
            self._kept += 1
            self.kept_events += block.count
            self.kept_bytes += block.payload_bytes
        else:
            self.events += block.count
            self.payload_bytes += block.payload_bytes

    def join(self, block: Block) -> None:
        """Add events anywhere, as `insert` does, and merge the last ones into the last block, as `add` does."""
        if self._blocks and block.first_id <= self._blocks[-1].last_id:
            self.insert(block)
        else:
            self.add(block)
            self.keep_through(self._kept_through)

    def drop_through(self, last_id: int) -> None:
        """Forget the blocks whose events all have IDs up to ``last_id``."""
        dropped = 0
        while dropped < len(self._blocks) and self._blocks[dropped].last_id <= last_id:
            self._forget(self._blocks[dropped], kept=dropped < self._kept)
            dropped += 1
        del self._blocks[:dropped]
        self._kept = max(0, self._kept - dropped)

    def remove(self, first_id: int) -> None:
        """Forget the block whose first event is ``first_id``, if there is one."""
        at = bisect_right(self._blocks, first_id, key=lambda b: b.first_id) - 1
        if at >= 0 and self._blocks[at].first_id == first_id:
            self._forget(self._blocks.pop(at), kept=at < self._kept)
            self._kept -= at < self._kept

    def clear(self) -> None:
        """Forget every block."""
        self.drop_through(_NO_END)

    def _forget(self, block: Block, *, kept: bool) -> None:
        if kept:
            self.kept_events -= block.count
            self.kept_bytes -= block.payload_bytes
        else:
            self.events -= block.count
            self.payload_bytes -= block.payload_bytes
        self.files[block.file] -= 1
        if not self.files[block.file]:
            del self.files[block.file]
            self.emptied.add(block.file)
            self.emptied_count += 1

    def kept(self) -> list[Block]:
        """Return the blocks that are kept."""
        return self._blocks[: self._kept]

    def last(self) -> Block | None:
        """Return the last block, or None."""
        return self._blocks[-1] if self._blocks else None

    def first_held(self) -> Block | None:
        """Return the first block that is not kept, or None."""
        return self._blocks[self._kept] if self._kept < len(self._blocks) else None

    def first_time_in(self, file_id: int) -> int | None:
        """Return when the first event of the newest data file was committed, in microseconds since 1970.

        Args:
            file_id: the newest data file's number.

        Returns:
            None if the file holds no events.
        """
        time_us: int | None = None
        left = self.files.get(file_id, 0)
        for block in reversed(self._blocks):
            if not left:
                break
            if block.file == file_id:
                time_us, left = block.time_us, left - 1
        return time_us

    def around(self, time_us: int) -> tuple[Block | None, Block | None]:
        """Return the last block that begins before a time, and the first that does not."""
        at = bisect_left(self._blocks, time_us, key=lambda b: b.time_us)
        return (self._blocks[at - 1] if at else None), (self._blocks[at] if at < len(self._blocks) else None)

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
    """The blocks of a channel, in both tiers.

    Args:
        blocks: the blocks from a checkpoint's image.
        kept_through: every group has taken the events up to this one.

    Attributes:
        disk: the blocks on disk.
        memory: the blocks in memory.
    """

    def __init__(self, blocks: Iterable[Block] = (), kept_through: int = 0) -> None:
        found = list(blocks)
        self.disk: BlockIndex = BlockIndex((b for b in found if not in_memory(b.file)), kept_through)
        self.memory: BlockIndex = BlockIndex((b for b in found if in_memory(b.file)), kept_through)

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

    def date_last(self, now_us: int) -> None:
        """Note that the last event was committed by now, unless it is known when it was."""
        lasts = (block for block in (self.disk.last(), self.memory.last()) if block is not None)
        last = max(lasts, key=lambda b: b.first_id, default=None)
        if last is not None and not last.until_us:
            last.until_us = now_us

    def drop_through(self, last_id: int) -> None:
        """Forget the blocks whose events all have IDs up to ``last_id``."""
        self.disk.drop_through(last_id)
        self.memory.drop_through(last_id)

    def keep_through(self, last_id: int) -> None:
        """Keep the blocks whose events all have IDs up to ``last_id``: every group has taken them."""
        self.disk.keep_through(last_id)
        self.memory.keep_through(last_id)

    def between(self, first_id: int, last_id: int) -> Iterator[Block]:
        """Yield the blocks that hold an event from ``first_id`` to ``last_id``, in order."""
        if not len(self.memory):
            return self.disk.between(first_id, last_id)
        if not len(self.disk):
            return self.memory.between(first_id, last_id)
        tiers = self.disk.between(first_id, last_id), self.memory.between(first_id, last_id)
        return merge(*tiers, key=lambda b: b.first_id)

    def around(self, time_us: int) -> tuple[Block | None, Block | None]:
        """Return the last block whose first event was committed before a time, and the first block that has none."""
        before, following = zip(self.disk.around(time_us), self.memory.around(time_us), strict=True)
        return (
            max((b for b in before if b is not None), key=lambda b: b.first_id, default=None),
            min((b for b in following if b is not None), key=lambda b: b.first_id, default=None),
        )

    def extents(self, first_id: int, last_id: int) -> list[Extent]:
        """Return the extents of the events from ``first_id`` to ``last_id``, in order."""
        return [b.extent(first_id, last_id) for b in self.between(first_id, last_id)]

    def payload_bytes(self, first_id: int, last_id: int) -> int:
        """Return the payload size of a range of events, in bytes: exact for whole blocks, estimated for parts."""
        total = 0
        for b in self.between(first_id, last_id):
            inside = min(last_id, b.last_id) - max(first_id, b.first_id) + 1
            total += b.payload_bytes * inside // b.count
        return total

    def last_id_within(self, first_id: int, last_id: int, size_bytes: int) -> int:
        """Return the last ID of a range that starts at ``first_id`` and has about ``size_bytes`` of payload.

        The range has at least one event and never extends past ``last_id``.
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
        """Return when the first event at or after an ID was committed, in microseconds since 1970; None without one.

        The time is never too late. It is too early by at most 0.25 s, or 1/4096 of the time that the backlog
        spanned when the event was put, whichever is more.
        """
        for b in self.between(event_id, _NO_END):
            return b.time_us
        return None

    @property
    def has_expiry(self) -> bool:
        """Whether an event may have a ttl."""
        return self.disk.has_expiry or self.memory.has_expiry

    def expired_through(self, first_id: int, last_id: int, now_us: int) -> int:
        """Return up to which event whole blocks have expired, from ``first_id`` on; the one before it if none has."""
        through = first_id - 1
        for b in self.between(first_id, last_id):
            if b.first_id > through + 1 or not 0 < b.last_expiry_us <= now_us:
                break
            through = min(b.last_id, last_id)
        return through

    def expired(self, first_id: int, last_id: int, now_us: int) -> tuple[list[Range], list[Extent]]:
        """Return what of a range of events has expired, as far as that is known here.

        Args:
            first_id: the first event.
            last_id: the last event.
            now_us: when that is judged, in microseconds since 1970.

        Returns:
            Events that have expired, and extents that may have others: only their frames tell.
        """
        expired: list[Range] = []
        unclear: list[Extent] = []
        for b in self.between(first_id, last_id):
            if 0 < b.last_expiry_us <= now_us:
                expired.append((max(first_id, b.first_id), min(last_id, b.last_id)))
            elif 0 < b.first_expiry_us <= now_us:
                unclear.append(b.extent(first_id, last_id))
        return expired, unclear

    def gaps(self, first_id: int, last_id: int) -> Iterator[Range]:
        """Yield the ranges within ``first_id`` to ``last_id`` that no block covers."""
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
        """Return the oldest data file that holds events, or the COMMIT of a segment with events; None without one."""
        return min((b.file if isinstance(b.file, int) else b.commit_file for b in self.disk), default=None)
