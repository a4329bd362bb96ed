"""The table at the end of a large object of delayed events: when its events are due, for readers of a part of them.

It is a frame behind the bytes that count, so whoever does not look for it does not see it. Its payload has for each
pair of frames where the PUT is, how long its payload is, how many events it has, and the size of the DUES payload, as
four 64-bit integers, and then that payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from spillable_stream.format.dues import parse_dues, parse_puts
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    Frame,
    FrameType,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.log.delayed_frames import DelayedFrame

__all__ = ["dues_table", "parse_dues_table"]

_ENTRY = struct.Struct("<4q")


def dues_table(frames: Sequence[Frame], start: int) -> Frame:
    """Return the table of an object.

    Args:
        frames: the pairs of a DUES and a PUT frame.
        start: where the first of them is.
    """
    parts, at = list[bytes](), start
    for frame in frames:
        if frame.type is FrameType.DUES:
            dues = bytes(frame.payload)
        else:
            parts += [_ENTRY.pack(at, len(frame.payload), frame.count, len(dues)), dues]
        at += frame_size(len(frame.payload))
    return Frame.of(FrameType.DUES, b"".join(parts), sum([frame.count for frame in frames[1::2]]))


def parse_dues_table(data: bytes, seed: int, start: int) -> Iterator[DelayedFrame] | None:
    """Return the frames that a table has; None if there is none, or it is damaged.

    Args:
        data: what is behind the bytes of the object that count.
        seed: what the object's checksums start from.
        start: the first offset that is asked for.
    """
    header = parse_header(data, 0, seed)
    if header is None or header.type is not FrameType.DUES:
        return None
    payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length]
    return _entries(payload, start) if payload_matches(header, payload) else None


def _entries(payload: bytes, start: int) -> Iterator[DelayedFrame]:
    at = 0
    while at < len(payload):
        offset, length, count, size = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size + size
        if offset >= start:
            dues = payload[at - size : at]
            yield DelayedFrame(offset, length, parse_dues(dues, count), parse_puts(dues, count))
