"""A block: where events with consecutive IDs are, in a contiguous region of one file."""

from __future__ import annotations

from dataclasses import dataclass

from spillable_stream.format.expiry import Expiry
from spillable_stream.format.extent import Extent
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.state.image import BlockImage

__all__ = ["BLOCK_BYTES", "NO_END", "Block"]

BLOCK_BYTES = 256 << 10
"""A block begins no frame so far behind its first one."""

NO_END = 1 << 63
"""An ID that no event has: an end of a range that has none."""


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

    def extent(self, first_id: int = 0, last_id: int = NO_END) -> Extent:
        """Return the extent of its events from ``first_id`` to ``last_id``; by default, of all."""
        first, last = max(first_id, self.first_id), min(last_id, self.last_id)
        time_us = self.time_us if self.transaction_id else 0
        where = self.file, self.offset, first, last, self.base_id, self.transaction_id, time_us
        return new_tuple(Extent, where)
