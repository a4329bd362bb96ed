"""Walking the frames of a file past damage, every payload checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MAGIC,
    FrameHeader,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.storage.filesystem import File

__all__ = ["Damage", "walk"]

_WINDOW_BYTES = 256 << 10
_SEARCH_BYTES = 1 << 20


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


def walk(file: File, seed: int, start: int, end: int) -> Iterator[LocatedFrame | Damage]:
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
        found = LocatedFrame(offset, header, payload)
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
