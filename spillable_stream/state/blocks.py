"""Locates the events of a channel, in both tiers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory
from spillable_stream.state.block import NO_END, Block
from spillable_stream.state.block_index import BlockIndex
from spillable_stream.state.image import BlockImage
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["Blocks"]


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

    def in_file(self, file: int | str, first_id: int, last_id: int) -> list[Range]:
        """Return which of the events from ``first_id`` to ``last_id`` are in a file, in order."""
        return list(RangeSet((e.first_id, e.last_id) for e in self.extents(first_id, last_id) if e.file == file))

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
        for b in self.between(event_id, NO_END):
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
