"""What the frames of a file say together: whether they are all there, and where its log ends."""

from __future__ import annotations

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import NONSENSE, CommitRecord, FileHeader
from spillable_stream.log.append_check import ENDS, AppendChecker
from spillable_stream.log.frames import Damage, LocatedFrame, find_frame, walk
from spillable_stream.log.recovery import written_bytes
from spillable_stream.storage.filesystem import File

__all__ = ["MALFORMED", "Order", "parsed_commit", "parsed_header", "settled_end"]

# What reading a record raises whose checksum is right and whose contents are not what this package writes.
MALFORMED = (CorruptionError, *NONSENSE)


class Order:
    """Tells whether the frames of a file are all there and in their places, as far as damage lets it be told.

    Args:
        start: where the first frame is: the beginning of the file or of an append.
    """

    def __init__(self, start: int) -> None:
        self._appends: AppendChecker | None = AppendChecker(start)

    def wrong(self, item: LocatedFrame | Damage) -> str | None:
        """Return why a frame can't be the next one, or None if it can, or if what is before it is damaged."""
        header = item.header
        if header is None or (isinstance(item, Damage) and header.type == FrameType.COMMIT):
            self._appends = None
            return None
        found = item if isinstance(item, LocatedFrame) else LocatedFrame(item.offset, header, None)
        if self._appends is None:
            if header.type == FrameType.COMMIT and (record := parsed_commit(found.payload)) is not None:
                self._appends = AppendChecker(record.start)
                self._appends.wrong(
                    LocatedFrame(found.offset, header._replace(type=FrameType.ROLLBACK), None)
                )  # goes on
            return None
        wrong = self._appends.wrong(found)
        if wrong is not None:
            self._appends = None
        return wrong


def settled_end(file: File, seed: int, floor: int) -> tuple[int, int]:
    """Return where a file's log ends if no head says so, by the rules of `spillable_stream.log.recovery`.

    Args:
        file: the file.
        seed: its CRC seed.
        floor: up to where it is known to have been synced.

    Returns:
        The end, past all damage that is proven to be damage; and how many bytes the next open cuts behind it.
    """
    synced = floor
    for found in find_frame(file, seed, 0, FrameType.COMMIT):
        record = parsed_commit(found.payload)
        synced = max(synced, record.start if record else 0)
    end, order = 0, Order(0)
    for item in walk(file, seed, 0, file.size()):
        if order.wrong(item) is not None and end >= synced:
            break
        if isinstance(item, Damage):
            if item.offset >= synced:
                break
        elif item.header.type in ENDS:
            end = item.end
    end = max(end, synced)
    return end, written_bytes(file, end)


def parsed_commit(payload: bytes | None) -> CommitRecord | None:
    """Return the record of a COMMIT, or None where it is malformed."""
    try:
        return CommitRecord.parse(payload or b"")
    except MALFORMED:
        return None


def parsed_header(payload: bytes | None) -> FileHeader | None:
    """Return the record of a FILE_HEADER, or None where it is malformed."""
    try:
        return FileHeader.parse(payload or b"")
    except MALFORMED:
        return None
