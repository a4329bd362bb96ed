"""Walking the frames of a file: headers always, payloads only where they are small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MAGIC,
    FrameHeader,
    FrameType,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.storage.filesystem import File

__all__ = ["FrameScanner", "LocatedFrame", "find_frame", "frame_before"]

# What one read brings: a few small transactions, or one header in front of a large payload.
_WINDOW_BYTES = 16 << 10
_FAR_BYTES = 1 << 20


class LocatedFrame(NamedTuple):
    """A frame found in a file.

    Args:
        offset: where it starts.
        header: its header.
        payload: its payload, checked; None for PUT frames, which are skipped.
    """

    offset: int
    header: FrameHeader
    payload: bytes | None

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.offset + frame_size(self.header.length)


class FrameScanner:
    """Yields the frames of a file in order and stops at the first that is not whole.

    After the iteration `offset` is where it stopped: the end asked for, or the damaged frame.

    Args:
        file: the file.
        seed: its CRC seed.
        start: where to start.
        end: where to stop; None for the end of the file.
        verify_from: PUT payloads from this offset on are read and checked too.
    """

    def __init__(
        self, file: File, seed: int, start: int, end: int | None = None, verify_from: int | None = None
    ) -> None:
        self._file = file
        self._seed = seed
        self._end = file.size() if end is None else end
        self._verify_from = self._end if verify_from is None else verify_from
        self.offset = start

    def __iter__(self) -> Iterator[LocatedFrame]:
        window, base = b"", 0
        while self.offset + HEADER_SIZE_BYTES <= self._end:
            at = self.offset - base
            if at < 0 or at + HEADER_SIZE_BYTES > len(window):
                # Never past the end: of what is preallocated there, the kernel would read much more ahead.
                window = self._file.read(self.offset, min(_WINDOW_BYTES, self._end - self.offset))
                base, at = self.offset, 0
            header = parse_header(window, at, self._seed)
            if header is None or self.offset + frame_size(header.length) > self._end:
                return
            payload: bytes | None = None
            if header.type != FrameType.PUT or self.offset >= self._verify_from:
                start = at + HEADER_SIZE_BYTES
                payload = window[start : start + header.length]
                if len(payload) < header.length:
                    payload = self._file.read(self.offset + HEADER_SIZE_BYTES, header.length)
                if not payload_matches(header, payload):
                    return
                if header.type == FrameType.PUT:
                    payload = None
            found = LocatedFrame(self.offset, header, payload)
            self.offset = found.end
            yield found


def find_frame(file: File, seed: int, start: int, type: FrameType) -> Iterator[LocatedFrame]:
    """Yield every whole frame of a type from ``start`` on, wherever it lies; for the study of damage."""
    step = 1 << 20
    for begin, end in file.data_ranges(start & ~7):
        for base in range(begin & ~7, end, step):
            yield from _frames_in(file, seed, base, min(step, end - base), type)


def frame_before(file: File, seed: int, end: int) -> LocatedFrame | None:
    """Return the frame that ends at ``end``; else the last one whose header is whole and that begins before it.

    No payload is read. What an event holds may look like a frame of the file it is in, so a frame that ends there is
    looked for a little further than the nearest header.
    """
    nearest, base, step = None, end, 1 << 12
    while base > 0:
        base, step = max(0, end - step) & ~7, step << 4
        chunk = file.read(base, end - base + HEADER_SIZE_BYTES)
        at = chunk.rfind(MAGIC, 0, end - base + len(MAGIC) - 1)
        while at >= 0:
            if at % 8 == 0 and (header := parse_header(chunk, at, seed)):
                found = LocatedFrame(base + at, header, None)
                nearest = nearest or found
                if found.end == end:
                    return found
            at = chunk.rfind(MAGIC, 0, at + len(MAGIC) - 1)
        if nearest is not None and end - base >= _FAR_BYTES:
            break
    return nearest


def _frames_in(file: File, seed: int, base: int, length: int, type: FrameType) -> Iterator[LocatedFrame]:
    """Yield every whole frame of a type that begins in a stretch of a file."""
    chunk = file.read(base, length + HEADER_SIZE_BYTES)
    at = chunk.find(MAGIC)
    while 0 <= at < length:
        if at % 8 == 0 and (header := parse_header(chunk, at, seed)) and header.type == type:
            found = LocatedFrame(base + at, header, None)
            payload = file.read(found.offset + HEADER_SIZE_BYTES, header.length) if found.end <= file.size() else b""
            if len(payload) == header.length and payload_matches(header, payload):
                yield found._replace(payload=payload)
        at = chunk.find(MAGIC, at + 1)
