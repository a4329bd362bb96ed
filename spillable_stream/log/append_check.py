"""Proof that the frames of a log are all there, once, and where they were written.

A frame's checksums say that it is whole, not that it is in its place. Every COMMIT says where its
append began, and how many events it is about, so a frame that is missing, there twice, or elsewhere
shows at the next COMMIT.
"""

from __future__ import annotations

from spillable_stream.format.frame import MAX_COUNT, FrameHeader, FrameType
from spillable_stream.format.record import MALFORMED, CommitFields, CommitRecord, SegmentRef, unpack
from spillable_stream.log.frames import Damage, LocatedFrame

__all__ = ["ENDS", "AppendChecker", "TolerantAppendChecker", "parsed_commit"]

# After which frames the log may end. A TAKE alone is a micro-batch in flight; a PUT alone is torn.
ENDS = {FrameType.FILE_HEADER, FrameType.COMMIT, FrameType.ROLLBACK, FrameType.TAKE}
_CONTROLS = {FrameType.OPTIONS, FrameType.SCHEMA, FrameType.GROUP, FrameType.RESERVE, FrameType.LOST}


class AppendChecker:
    """Follows the frames of one file.

    Args:
        start: where the first frame is that it will see: the beginning of an append, or of the file.
    """

    def __init__(self, start: int) -> None:
        self._starts = [start]  # where the append that a COMMIT ends may have begun
        self._committed: set[int] = set()  # the transactions of the last append, and the ID after its last event
        self._next_id = 0
        self._puts: list[FrameHeader] = []
        self._controls: list[FrameHeader] = []

    @classmethod
    def behind(cls, commit: LocatedFrame, start: int) -> AppendChecker:
        """Return one that goes on behind a COMMIT, of whose append it has not seen the frames.

        Args:
            commit: the COMMIT.
            start: where its append began.
        """
        checker = cls(start)
        checker._starts.append(commit.end)
        return checker

    def fault(self, found: LocatedFrame) -> str | None:
        """Return why a frame can't be the next one, or None if it can."""
        try:
            return self._fault(found)
        except MALFORMED as e:
            return f"a {found.header.type.name} is invalid: {e}"

    def _fault(self, found: LocatedFrame) -> str | None:
        header, type_ = found.header, found.header.type
        if type_ is FrameType.PUT:
            self._puts.append(header)
            return None
        if type_ is FrameType.COMMIT:
            fault = self._commit_fault(header, unpack(found.payload or b""))
            if fault is not None:
                return fault
        elif type_ in _CONTROLS:
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
        self._starts = [start]  # of which there may be more, when transactions were committed together
        self._committed.add(header.transaction_id)
        return None

    def _holds(self, header: FrameHeader, record: CommitFields) -> bool:
        """Tell whether the frames since the last COMMIT are all that one says."""
        tx, kind = header.transaction_id, record["kind"]
        if kind == "control":
            return not self._puts and [c.transaction_id for c in self._controls] == [tx]
        counted: int = sum(SegmentRef(*s).count for s in record["segments"]) if "segments" in record else 0
        if kind == "put":
            if self._next_id not in (0, header.write_order_id):
                return False
            for put in self._puts:
                if put.transaction_id != tx or put.write_order_id != header.write_order_id + counted:
                    return False
                counted += put.count
            self._next_id = header.write_order_id + counted
        else:  # what is moved keeps its IDs
            counted += sum(put.count for put in self._puts)
        return not self._controls and min(counted, MAX_COUNT) == (0 if kind == "take" else header.count)


class TolerantAppendChecker:
    """Follows the frames of one file past damage, as far as that lets it be told whether they are in their places.

    Args:
        start: where the first frame is that it will see: the beginning of an append, or of the file.
    """

    def __init__(self, start: int) -> None:
        self._checker: AppendChecker | None = AppendChecker(start)  # None from damage to the next whole COMMIT

    def fault(self, item: LocatedFrame | Damage) -> str | None:
        """Return why a frame can't be the next one, or None if it can, or if what is before it is damaged."""
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
    """Return the record of a COMMIT, or None where it is malformed."""
    try:
        return CommitRecord.parse(payload or b"")
    except MALFORMED:
        return None
