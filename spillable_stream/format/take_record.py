"""The TAKE record: events that a group takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillable_stream.format.frame import MAX_COUNT, TAKE, Frame
from spillable_stream.format.packing import NONSENSE, nonsense, pack, unpack

__all__ = ["GroupTaken", "Ranges", "TakeRecord"]

Ranges = list[tuple[int, int]]
"""First and last write-order IDs, both inside."""

GroupTaken = tuple[int, Ranges]
"""What a group has taken: every event up to an ID, and ranges after it."""


@dataclass(slots=True)
class TakeRecord:
    """Events that a group takes.

    Args:
        group: the group.
        ranges: the events, as inclusive ranges of write-order IDs.
        expired: those of them that had expired when that was judged: nobody is given them, now or later.
    """

    group: str
    ranges: Ranges
    expired: Ranges = field(default_factory=list)

    def frame(self, count: int) -> Frame:
        """Return the record as a frame about ``count`` events, capped at `MAX_COUNT`: the ranges are exact."""
        value: dict[str, object] = {"group": self.group, "ranges": self.ranges}
        if self.expired:
            value["expired"] = self.expired
        return Frame.of(TAKE, pack(value), min(count, MAX_COUNT))

    @classmethod
    def parse(cls, payload: bytes) -> TakeRecord:
        """Return the record in a TAKE payload.

        Raises:
            CorruptionError: the payload is invalid.
        """
        v = unpack(payload)
        try:
            expired = [(a, b) for a, b in v["expired"]] if "expired" in v else []
            return cls(v["group"], [(a, b) for a, b in v["ranges"]], expired)
        except NONSENSE as e:
            raise nonsense(cls, e) from e
