"""Finds the frame of an event in the middle of a segment, without all that is before it.

A segment has no index, and its frames are about as large as each other. So a guess leads near the event, and the next
frame from there on says by its header which events are before and behind it. A header's checksum starts from the
segment's own name, so nothing else in it passes for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import MAGIC, FrameHeader, FrameType, frame_size, parse_header

__all__ = ["FrameStart", "find_frame"]

_PROBE_BYTES = 4096  # has the segment's header, and that of its first frame
_MOST_GUESSES = 4
_WORTH_BYTES = 1 << 20  # to read less than that is cheaper than to look for where it ends
_ALIGNMENT_BYTES = 8


class FrameStart(NamedTuple):
    """Where to begin to read.

    Args:
        offset: where a frame begins, in bytes: that of the event, or one before.
        window: the segment's bytes from there on, as far as they were read.
    """

    offset: int
    window: pa.Buffer


class _Frame(NamedTuple):
    offset: int
    header: FrameHeader

    @property
    def size_bytes(self) -> int:
        return frame_size(self.header.length)


def find_frame(
    fetch: Callable[[int, int], pa.Buffer], seed: int, extent: Extent, window_bytes: int
) -> FrameStart | None:
    """Return where to begin to read an extent of a segment; None if that is where the segment begins.

    Args:
        fetch: returns so many of the segment's bytes from an offset on; fewer where it ends.
        seed: what the checksums of the segment's headers start from.
        extent: the extent; its first event is not the segment's.
        window_bytes: how much to read at a time.
    """
    wanted, high, found = extent.first_id - extent.base_id, None, None
    low = _first_put(fetch(extent.offset, _PROBE_BYTES), extent.offset, seed)
    for _ in range(_MOST_GUESSES):
        if low is None:
            break
        each = low.size_bytes / max(1, low.header.count)
        guess = low.offset + int((wanted - low.header.write_order_id) * each) - low.size_bytes
        if high is not None:  # the last guess was too far
            guess = min(guess, (low.offset + high) // 2)
        guess -= guess % _ALIGNMENT_BYTES
        if guess - low.offset < max(_WORTH_BYTES, low.size_bytes):
            break
        rest = int((extent.last_id - extent.first_id + 1) * each) + 3 * low.size_bytes
        window = fetch(guess, min(window_bytes, rest))
        frame = _first_put(window, guess, seed)
        if frame is None or frame.header.write_order_id > wanted:
            high = guess
        else:
            low, found = frame, FrameStart(frame.offset, window.slice(frame.offset - guess))
    return found


def _first_put(window: pa.Buffer, base: int, seed: int) -> _Frame | None:
    """Return the first frame with events whose header is in some bytes of a segment."""
    data, at = bytes(window), -1
    while (at := data.find(MAGIC, at + 1)) >= 0:
        if (base + at) % _ALIGNMENT_BYTES == 0:
            header = parse_header(data, at, seed)
            if header is not None and header.type == FrameType.PUT:
                return _Frame(base + at, header)
    return None
