"""The blocks of one tier: a sparse index of its events by write-order ID, which counts them.

Consecutive small transactions share a block, so the index grows with bytes, not with events: a backlog of 100 million
events of 100 bytes takes about 40,000 blocks.

All events of a block share its time, so a block also spans a limited time. The limit grows with the time that the
backlog spans: a week of slow writes takes about 30,000 blocks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from spillable_stream.format.expiry import NEVER, Expiry
from spillable_stream.state.block import BLOCK_BYTES, NO_END, Block

__all__ = ["BlockIndex"]

_BLOCK_US = 250_000
_FIRST_ID = attrgetter("first_id")
_SPAN_PARTS = 4096  # a block may span this fraction of the time that its tier's events span, if that exceeds _BLOCK_US


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
        has_expiry: whether an event of a block had a ttl, ever since the index was created.
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
        self.files: dict[int | str, int] = {}
        for block in self._blocks:
            self.files[block.file] = self.files.get(block.file, 0) + 1
        self.emptied: set[int | str] = set()
        self.emptied_count: int = 0
        self.has_expiry: bool = any(b.first_expiry_us for b in self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def add(self, block: Block) -> None:
        """Append the next events. A block that directly follows the last one is merged into it."""
        b, expiry = block, block.expiry if block.first_expiry_us else NEVER
        if not self.extend(b.file, b.offset, b.first_id, b.count, b.payload_bytes, b.time_us, b.until_us, expiry):
            self.insert(block)

    def extend(
        self,
        file: int | str,
        offset: int,
        first_id: int,
        count: int,
        payload_bytes: int,
        time_us: int,
        until_us: int,
        expiry: Expiry = NEVER,
    ) -> bool:
        """Add the next events to the last block if they directly follow it, and tell whether they do.

        `Block` explains the arguments: there is none for each transaction.
        """
        last = self._blocks[-1] if self._blocks else None
        if (
            last is None
            or last.file != file
            or not isinstance(file, int)
            or last.first_id + last.count != first_id
            or offset - last.offset >= BLOCK_BYTES
            or (time_us - last.time_us > _BLOCK_US and time_us - last.time_us > self.longest_us(time_us))
        ):
            return False
        if self._kept == len(self._blocks):  # it is held again: one block for each put would be too many
            self._kept -= 1
            self._hold(last)
        last.count += count
        last.payload_bytes += payload_bytes
        last.until_us = until_us
        if expiry.first or last.first_expiry_us:
            last.expire(last.expiry.joined(expiry))
            self.has_expiry = True
        self.events += count
        self.payload_bytes += payload_bytes
        return True

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
            at = bisect_right(self._blocks, block.first_id, key=_FIRST_ID)
        self._blocks.insert(at, block)
        if block.first_expiry_us:
            self.has_expiry = True
        self.files[block.file] = self.files.get(block.file, 0) + 1
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
        at = bisect_right(self._blocks, first_id, key=_FIRST_ID) - 1
        if at >= 0 and self._blocks[at].first_id == first_id:
            self._forget(self._blocks.pop(at), kept=at < self._kept)
            self._kept -= at < self._kept

    def clear(self) -> None:
        """Forget every block."""
        self.drop_through(NO_END)

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
        at = bisect_right(self._blocks, first_id, key=_FIRST_ID) - 1
        if at < 0 or self._blocks[at].last_id < first_id:
            at += 1
        for i in range(at, len(self._blocks)):
            if self._blocks[i].first_id > last_id:
                return
            yield self._blocks[i]
