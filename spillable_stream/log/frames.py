"""Walks the frames of a file: up to the first damaged one, or past all damage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MAGIC,
    MOST_HEADER_BYTES,
    PUT,
    FrameHeader,
    FrameType,
    frame_size,
    header_size,
    parse_header,
    payload_matches,
)
from spillable_stream.storage.file import File

__all__ = [
    "Damage",
    "FrameScanner",
    "LocatedFrame",
    "Readable",
    "find_frame",
    "find_headers",
    "frame_before",
    "walk",
    "whole_frame",
]

# The size of one read: enough for a few small transactions, little waste for the header of a large payload.
_WINDOW_BYTES = 16 << 10
_LARGE_WINDOW_BYTES = 256 << 10  # if every payload is read
_FAR_BYTES = 1 << 20
_MAGIC = re.compile(re.escape(MAGIC))


class Readable(Protocol):
    """A file, or the bytes of an object that are at hand."""

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on; fewer at the end."""

    def size(self) -> int:
        """Return the size in bytes."""


class LocatedFrame(NamedTuple):
    """A frame found in a file.

    Args:
        offset: where it starts.
        header: its header.
        payload: its verified payload; None if it was skipped, as PUT payloads usually are.
    """

    offset: int
    header: FrameHeader
    payload: bytes | None

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.offset + frame_size(self.header.length)


class Damage(NamedTuple):
    """A damaged stretch of a file.

    Args:
        offset: where it starts.
        end: where the next frame starts, or the requested end.
        header: the frame's header if only its payload is damaged; otherwise None.
    """

    offset: int
    end: int
    header: FrameHeader | None

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.end - self.offset


class FrameScanner:
    """Yields the frames of a file in order, and stops at the first damaged one.

    After the iteration, `offset` is where it stopped: at the requested end, or at the damaged frame.

    Args:
        file: the file.
        seed: its CRC seed.
        start: the offset to start at.
        end: the offset to stop at; None for the end of the file.
        verify_from: PUT payloads from this offset on are read and verified too; None for none.
        keep_puts: whether to return these payloads.
    """

    def __init__(
        self,
        file: Readable,
        seed: int,
        start: int,
        end: int | None = None,
        verify_from: int | None = None,
        *,
        keep_puts: bool = False,
    ) -> None:
        self._file = file
        self._seed = seed
        self._end = file.size() if end is None else end
        self._verify_from = self._end if verify_from is None else verify_from
        self._keep_puts = keep_puts
        self._window_bytes = _LARGE_WINDOW_BYTES if keep_puts else _WINDOW_BYTES
        self.offset: int = start

    def __iter__(self) -> Iterator[LocatedFrame]:
        window, base = b"", 0
        while self.offset + HEADER_SIZE_BYTES <= self._end:
            at = self.offset - base
            if at < 0 or (at + MOST_HEADER_BYTES > len(window) and at + header_size(window, at) > len(window)):
                # Never read past the end: in the preallocated space there, the kernel would read far ahead.
                window = self._file.read(self.offset, min(self._window_bytes, self._end - self.offset))
                base, at = self.offset, 0
            header = parse_header(window, at, self._seed)
            if header is None or (end := self.offset + frame_size(header.length)) > self._end:
                return
            payload: bytes | None = None
            if header.type is not PUT or self.offset >= self._verify_from:
                start = at + HEADER_SIZE_BYTES
                payload = window[start : start + header.length]
                if len(payload) < header.length:
                    payload = self._file.read(self.offset + HEADER_SIZE_BYTES, header.length)
                if not payload_matches(header, payload):
                    return
                if header.type is PUT and not self._keep_puts:
                    payload = None
            found = LocatedFrame(self.offset, header, payload)
            self.offset = end
            yield found

    def skip_damage(self, end: int) -> Damage:
        """Skip the damaged stretch where the iteration stopped, and return it.

        The stretch ends at the next whole header, or at ``end``. The next iteration continues from there.
        """
        header = parse_header(self._file.read(self.offset, MOST_HEADER_BYTES), 0, self._seed)
        if header is not None and self.offset + frame_size(header.length) <= self._end:
            damage = Damage(self.offset, self.offset + frame_size(header.length), header)
        else:
            following = _next_header(self._file, self._seed, self.offset + 8, self._end)
            damage = Damage(self.offset, end if following is None else following, None)
        self.offset = damage.end
        return damage


def walk(file: Readable, seed: int, start: int, end: int) -> Iterator[LocatedFrame | Damage]:
    """Yield every frame and every damaged stretch between two offsets, in order. All frames have their payloads.

    Args:
        file: the file.
        seed: its CRC seed.
        start: the offset of a frame.
        end: the offset up to which the file counts.
    """
    size = min(end, file.size())  # bounds how much a damaged length makes this read
    scanner = FrameScanner(file, seed, start, size, start, keep_puts=True)
    while True:
        yield from scanner
        if scanner.offset >= end:
            return
        yield scanner.skip_damage(end)


def find_headers(file: File, seed: int, start: int) -> Iterator[LocatedFrame]:
    """Yield every whole header from ``start`` on, at any aligned offset, whatever became of its payload."""
    step = 1 << 20
    for begin, end in file.data_ranges(start & ~7):
        for base in range(begin & ~7, end, step):
            yield from _headers_in(file, seed, base, min(step, end - base))


def find_frame(file: File, seed: int, start: int, type: FrameType) -> Iterator[LocatedFrame]:
    """Yield every whole frame of a type from ``start`` on, at any aligned offset; used to analyse damage."""
    for found in find_headers(file, seed, start):
        if found.header.type == type and (whole := whole_frame(file, found)) is not None:
            yield whole


def whole_frame(file: File, found: LocatedFrame) -> LocatedFrame | None:
    """Return a frame with its payload, given where its header is; None if the payload is not whole."""
    if found.end > file.size():
        return None
    payload = file.read(found.offset + HEADER_SIZE_BYTES, found.header.length)
    return found._replace(payload=payload) if payload_matches(found.header, payload) else None


def frame_before(file: File, seed: int, end: int) -> LocatedFrame | None:
    """Return the frame that ends at ``end``; if none is found, the last one before it with a whole header.

    Payloads are not read. An event's payload may look like a frame of this file, so the search for a frame that ends
    exactly at ``end`` continues for a while past the nearest header.
    """
    nearest, base, step = None, end, 1 << 12
    while base > 0:
        base, step = max(0, end - step) & ~7, step << 4
        chunk = file.read(base, end - base + MOST_HEADER_BYTES)
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


def _headers_in(file: File, seed: int, base: int, length: int) -> Iterator[LocatedFrame]:
    """Yield every whole header that begins within ``length`` bytes from ``base``."""
    chunk = file.read(base, length + MOST_HEADER_BYTES)
    for match in _MAGIC.finditer(chunk, 0, length + len(MAGIC) - 1):
        at = match.start()
        if at % 8 == 0 and (header := parse_header(chunk, at, seed)):
            yield LocatedFrame(base + at, header, None)


_SEARCH_BYTES = 1 << 20


def _next_header(file: Readable, seed: int, start: int, end: int) -> int | None:
    """Return the offset of the next valid header, or None."""
    for base in range(start, end, _SEARCH_BYTES):
        chunk = file.read(base, min(_SEARCH_BYTES + MOST_HEADER_BYTES, end - base))
        at = chunk.find(MAGIC)
        while 0 <= at < _SEARCH_BYTES:
            if at % 8 == 0 and parse_header(chunk, at, seed) is not None:
                return base + at
            at = chunk.find(MAGIC, at + 1)
    return None
