"""Walking the frames of a file past damage, every payload checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MAGIC,
    FrameHeader,
    FrameType,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.format.record import NONSENSE, CommitRecord, FileHeader
from spillable_stream.log.appends import ENDS, Appends
from spillable_stream.log.recovery import written_bytes
from spillable_stream.log.scan import Scanned, find_frame
from spillable_stream.storage.filesystem import File

__all__ = ["MALFORMED", "Damage", "Order", "parsed_commit", "parsed_header", "settled_end", "walk"]

_WINDOW_BYTES = 256 << 10
_SEARCH_BYTES = 1 << 20

# What reading a record raises whose checksum is right and whose contents are not what this package writes.
MALFORMED = (CorruptionError, *NONSENSE)


class Damage(NamedTuple):
    """A stretch of a file that is no whole frame.

    Args:
        offset: where it starts.
        end: where the next frame starts, or the end of what was asked for.
        header: the frame's header, if that is whole and only the payload is not.
    """

    offset: int
    end: int
    header: FrameHeader | None

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.offset


def walk(file: File, seed: int, start: int, end: int) -> Iterator[Scanned | Damage]:
    """Yield every frame and every damaged stretch between two offsets, in order; payloads are there for all types.

    Args:
        file: the file.
        seed: its CRC seed.
        start: where a frame starts.
        end: up to where the file counts.
    """
    window, base, offset = b"", 0, start
    size = min(end, file.size())  # bounds what a damaged length can make this read
    while offset < end:
        at = offset - base
        if at < 0 or at + HEADER_SIZE_BYTES > len(window):
            window, base, at = file.read(offset, min(_WINDOW_BYTES, size - offset)) if offset < size else b"", offset, 0
        header = parse_header(window, at, seed)
        if header is None or offset + frame_size(header.length) > size:
            following = _next_header(file, seed, offset + 8, size)
            yield Damage(offset, end if following is None else following, None)
            offset = end if following is None else following
            continue
        payload = window[at + HEADER_SIZE_BYTES : at + HEADER_SIZE_BYTES + header.length]
        if len(payload) < header.length:
            payload = file.read(offset + HEADER_SIZE_BYTES, header.length)
        found = Scanned(offset, header, payload)
        yield found if payload_matches(header, payload) else Damage(offset, found.end, header)
        offset = found.end


def _next_header(file: File, seed: int, start: int, end: int) -> int | None:
    """Return where the next valid header is, or None."""
    for base in range(start, end, _SEARCH_BYTES):
        chunk = file.read(base, min(_SEARCH_BYTES + HEADER_SIZE_BYTES, end - base))
        at = chunk.find(MAGIC)
        while 0 <= at < _SEARCH_BYTES:
            if at % 8 == 0 and parse_header(chunk, at, seed) is not None:
                return base + at
            at = chunk.find(MAGIC, at + 1)
    return None


class Order:
    """Tells whether the frames of a file are all there and in their places, as far as damage lets it be told.

    Args:
        start: where the first frame is: the beginning of the file or of an append.
    """

    def __init__(self, start: int) -> None:
        self._appends: Appends | None = Appends(start)

    def wrong(self, item: Scanned | Damage) -> str | None:
        """Return why a frame can't be the next one, or None if it can, or if what is before it is damaged."""
        header = item.header
        if header is None or (isinstance(item, Damage) and header.type == FrameType.COMMIT):
            self._appends = None
            return None
        found = item if isinstance(item, Scanned) else Scanned(item.offset, header, None)
        if self._appends is None:
            if header.type == FrameType.COMMIT and (record := parsed_commit(found.payload)) is not None:
                self._appends = Appends(record.start)
                self._appends.wrong(Scanned(found.offset, header._replace(type=FrameType.ROLLBACK), None))  # goes on
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
