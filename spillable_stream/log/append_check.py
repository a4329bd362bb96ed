"""Checks that each frame of a log is present, occurs once, and is where it was written.

A frame's checksums prove that it is whole, not that it is in its place. Every COMMIT says where its append began and
how many events it is about, so a missing, duplicated or misplaced frame is found at the next COMMIT.
"""

from __future__ import annotations

from spillable_stream.format.commit_record import CommitFields, CommitRecord, SegmentRef
from spillable_stream.format.frame import CONTROL_TYPES, MAX_COUNT, FrameHeader, FrameType
from spillable_stream.format.packing import MALFORMED, unpack
from spillable_stream.log.frames import Damage, LocatedFrame

__all__ = ["ENDS", "AppendChecker", "TolerantAppendChecker", "parsed_commit"]

# The frames that a log may end with. A TAKE without a COMMIT is a micro-batch in flight; such a PUT is torn.
ENDS = {FrameType.FILE_HEADER, FrameType.COMMIT, FrameType.ROLLBACK, FrameType.TAKE}


class AppendChecker:
    """Checks the frames of one file, in order.

    Args:
        start: the offset of the first frame that it will see: where an append begins, or 0.
    """

    def __init__(self, start: int) -> None:
        self._starts = [start]  # the offsets where the next COMMIT's append may have begun
        self._committed: set[int] = set()  # the transactions of the last append
        self._next_id = 0  # the ID after its last event
        self._puts: list[FrameHeader] = []
        self._controls: list[FrameHeader] = []

    @classmethod
    def behind(cls, commit: LocatedFrame, start: int) -> AppendChecker:
        """Return a checker that continues after a COMMIT without having seen the other frames of its append.

        Args:
            commit: the COMMIT.
            start: the offset where its append began.
        """
        checker = cls(start)
        checker._starts.append(commit.end)
        return checker

    def fault(self, found: LocatedFrame) -> str | None:
        """Return why a frame can't be the next one, or None if it can."""
        header, type_ = found.header, found.header.type
        if type_ is FrameType.PUT:
            self._puts.append(header)
            return None
        if type_ is FrameType.COMMIT:
            try:
                fault = self._commit_fault(header, unpack(found.payload or b""))
            except MALFORMED as e:
                return f"a COMMIT is invalid: {e}"
            if fault is not None:
                return fault
        elif type_ in CONTROL_TYPES:
            self._controls.append(header)
            return None
        elif type_ not in ENDS or (type_ is FrameType.FILE_HEADER) != (found.offset == 0):
            return f"a {type_.name} frame has no place here"
        elif self._puts or self._controls:
            return f"a {type_.name} frame follows frames that no COMMIT ends"
        self._starts.append(found.end)
        self._puts.clear()
        self._controls.clear()
        return None

    def _commit_fault(self, header: FrameHeader, record: CommitFields) -> str | None:
        start = record["start"]
        if start != self._starts[0]:
            if start not in self._starts:
                return f"a COMMIT of an append at offset {start} is not where it was written"
            self._committed.clear()
            self._next_id = 0
        if header.transaction_id in self._committed or not self._holds(header, record):
            return "a COMMIT is not about the frames before it"
        self._starts = [start]  # more COMMITs of this append may follow, because of group commit
        self._committed.add(header.transaction_id)
        return None

    def _holds(self, header: FrameHeader, record: CommitFields) -> bool:
        """Tell whether the frames since the last COMMIT are exactly those that a COMMIT is about."""
        tx, kind = header.transaction_id, record["kind"]
        if kind == "control":
            return not self._puts and [c.transaction_id for c in self._controls] == [tx]
        if kind == "merge":  # of a log of objects: the events are elsewhere
            return not self._puts and not self._controls
        counted: int = sum(SegmentRef(*s).count for s in record["segments"]) if "segments" in record else 0
        if kind == "put":
            if self._next_id not in (0, header.write_order_id):
                return False
            for put in self._puts:
                if put.transaction_id != tx or put.write_order_id != header.write_order_id + counted:
                    return False
                counted += put.count
            self._next_id = header.write_order_id + counted
        else:  # moved events keep their IDs, which ascend, and need not be contiguous
            ids = [put.write_order_id for put in self._puts]
            if ids != sorted(ids):
                return False
            counted += sum(put.count for put in self._puts)
        return not self._controls and min(counted, MAX_COUNT) == (0 if kind == "take" else header.count)


class TolerantAppendChecker:
    """Checks the frames of one file past damage, as far as the damage allows.

    Args:
        start: the offset of the first frame that it will see: where an append begins, or 0.
    """

    def __init__(self, start: int) -> None:
        self._checker: AppendChecker | None = AppendChecker(start)  # None from damage to the next whole COMMIT

    def fault(self, item: LocatedFrame | Damage) -> str | None:
        """Return why a frame can't be the next one; None if it can, or if damage before it leaves that open."""
        header = item.header
        if header is None or (isinstance(item, Damage) and header.type == FrameType.COMMIT):
            self._checker = None
            return None
        found = item if isinstance(item, LocatedFrame) else LocatedFrame(item.offset, header, None)
        if self._checker is None:
            if header.type == FrameType.COMMIT and (record := parsed_commit(found.payload)) is not None:
                self._checker = AppendChecker.behind(found, record.start)
            return None
        fault = self._checker.fault(found)
        if fault is not None:
            self._checker = None
        return fault


def parsed_commit(payload: bytes | None) -> CommitRecord | None:
    """Return the record in a COMMIT payload, or None if it is invalid."""
    try:
        return CommitRecord.parse(payload or b"")
    except MALFORMED:
        return None
