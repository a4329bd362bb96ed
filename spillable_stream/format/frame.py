"""Frames: the unit of every file of a channel.

A frame is a header of 48 bytes and a payload, padded with zeros to a multiple of 8::

     0      4        8    9    10     12      16            24            32     40       44      48
    ┌──────┬────────┬────┬────┬──────┬───────┬─────────────┬─────────────┬──────┬────────┬────────┐
    │magic │ length │type│flag│schema│ count │ transaction │ write-order │ time │ payload│ header │
    │"SPL1"│        │    │    │  ID  │       │     ID      │     ID      │  µs  │ CRC32C │ CRC32C │
    └──────┴────────┴────┴────┴──────┴───────┴─────────────┴─────────────┴──────┴────────┴────────┘
    │ payload: `length` bytes …                                                       │ 0–7 zeros │

All integers are little-endian. The payload's checksum covers the payload. The header's checksum covers the first
44 bytes, the payload's checksum included, and starts from a *seed* that belongs to the file, so that bytes of one
file never pass as frames of another. The 8-byte alignment keeps a length from being torn, and gives Arrow aligned
buffers.

Flags are of a PUT alone. 1: its events expire, and its payload begins with their ttl, in microseconds, of 8 bytes.
2: a channel that they are shipped to delays them, and when each is due comes next, in milliseconds, of 8 bytes each.
With a flag the header's checksum covers the first 8 bytes of the payload, too, so that a ttl is known without the rest.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import google_crc32c
import pyarrow as pa

from spillable_stream.errors import StateTooLargeError
from spillable_stream.format.named_tuple import new_tuple

__all__ = [
    "COMMIT",
    "CONTROL_TYPES",
    "FILE_HEADER",
    "HEADER_SIZE_BYTES",
    "MAGIC",
    "MAX_COUNT",
    "MAX_PAYLOAD_BYTES",
    "MAX_SCHEMAS",
    "MOST_HEADER_BYTES",
    "PUT",
    "TAKE",
    "TTL_SIZE_BYTES",
    "Frame",
    "FrameHeader",
    "FrameType",
    "Payload",
    "dues_of",
    "encode",
    "encode_all",
    "encode_with",
    "file_seed",
    "frame_size",
    "header_size",
    "message_of",
    "parse_header",
    "payload_matches",
    "total_size",
]

Payload: TypeAlias = bytes | pa.Buffer  # google_crc32c and os.writev take both without a copy

MAGIC = b"SPL1"
_HEADER = struct.Struct("<4sIBBHIQQQI")
_CRC = struct.Struct("<I")
HEADER_SIZE_BYTES = 48
assert _HEADER.size + _CRC.size == HEADER_SIZE_BYTES

_TTL = struct.Struct("<Q")
_EXPIRES, _HAS_DUES = 1, 2  # the flags
_FLAGS_AT = 9
_PADDINGS = [b"\0" * (-length & 7) for length in range(8)]
_DUE_SIZE_BYTES = 8
_LEAST_BYTES = 4097  # to copy fewer is cheaper than to write three buffers

TTL_SIZE_BYTES = 8
"""How much of the payload a ttl is; without one, as much is covered of the due times."""

MOST_HEADER_BYTES = HEADER_SIZE_BYTES + TTL_SIZE_BYTES
"""How much `parse_header` looks at, at most."""

# Bounds how much memory a damaged length makes a reader allocate.
MAX_PAYLOAD_BYTES = 1 << 30

MAX_COUNT = (1 << 32) - 1
"""The largest number of events that a header can hold."""

MAX_SCHEMAS = 1 << 16
"""The number of schemas that a header can distinguish."""


class FrameType(IntEnum):
    """The type of a frame's payload. 0 is never written, so zeros never pass as a frame."""

    FILE_HEADER = 1
    PUT = 2
    TAKE = 3
    COMMIT = 4
    ROLLBACK = 5
    OPTIONS = 6
    SCHEMA = 7
    GROUP = 8
    CHECKPOINT = 9
    SEGMENT_HEADER = 10
    RESERVE = 11
    LOST = 12
    RETENTION = 13
    TRIM = 14
    DUES = 15


CONTROL_TYPES = frozenset(
    {
        FrameType.OPTIONS,
        FrameType.SCHEMA,
        FrameType.GROUP,
        FrameType.RESERVE,
        FrameType.LOST,
        FrameType.RETENTION,
        FrameType.TRIM,
    }
)
"""The types of the frames of control transactions, which have one each."""

# Those of every transaction by themselves: in CPython 3.11 a name is found in a tenth of the time that an enum's
# attribute takes.
FILE_HEADER, PUT, TAKE, COMMIT = FrameType.FILE_HEADER, FrameType.PUT, FrameType.TAKE, FrameType.COMMIT

_TYPES = {int(t): t for t in FrameType}


class FrameHeader(NamedTuple):
    """The 48 bytes before a payload.

    Args:
        type: the payload's type.
        length: the payload's size in bytes, without padding.
        transaction_id: the frame's transaction; 0 for none.
        write_order_id: the ID of the first event; 0 if a COMMIT assigns the IDs.
        count: how many events the frame is about; `MAX_COUNT` also for a take or a move of more.
        schema_id: the number of the payload's schema (PUT only).
        time_us: when it was committed (in a segment: staged), in microseconds since 1970.
        payload_crc: the payload's CRC32C.
        ttl_us: for how long after their commit the events count, in microseconds; 0 forever (PUT only). The payload
            begins with it then.
        has_dues: whether the payload says when each of the events is due, behind the ttl (PUT only).
    """

    type: FrameType
    length: int
    transaction_id: int
    write_order_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    schema_id: int
    time_us: int
    payload_crc: int
    ttl_us: int = 0
    has_dues: bool = False


class Frame(NamedTuple):
    """A frame to write; its IDs are filled in under the commit lock."""

    type: FrameType
    payload: Payload
    payload_crc: int
    count: int = 0  # type: ignore[assignment]
    schema_id: int = 0
    ttl_us: int = 0
    has_dues: bool = False

    @classmethod
    def of(
        cls, type: FrameType, payload: Payload, count: int = 0, schema_id: int = 0, ttl_us: int = 0, dues: bytes = b""
    ) -> Frame:
        """Return a frame, and compute its payload's checksum. With a ttl or due times, the payload is copied once.

        Args:
            type: its type.
            payload: its payload, without these times.
            count: how many events it is about.
            schema_id: the number of the payload's schema.
            ttl_us: the ttl of its events, in microseconds; 0 for none.
            dues: when each of its events is due, as `spillable_stream.format.dues` writes it; empty for now.

        Raises:
            StateTooLargeError: the payload is larger than `MAX_PAYLOAD_BYTES`.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise StateTooLargeError(
                f"a {type.name} of {len(payload):,} bytes does not fit a frame of {MAX_PAYLOAD_BYTES:,} bytes: the "
                "channel's state is too large; drop groups that nobody needs, and end transactions that are open"
            )
        if ttl_us or dues:
            payload = b"".join((_TTL.pack(ttl_us) if ttl_us else b"", dues, payload))
        return new_tuple(cls, (type, payload, google_crc32c.value(payload), count, schema_id, ttl_us, bool(dues)))

    def header(self, transaction_id: int = 0, write_order_id: int = 0, time_us: int = 0) -> FrameHeader:
        """Return the frame's header.

        Args:
            transaction_id: the transaction's ID.
            write_order_id: the ID of the frame's first event, or 0.
            time_us: the time of the commit, in microseconds since 1970.
        """
        type_, payload, crc, count, schema_id, ttl_us, has_dues = self
        length, tx, order = len(payload), transaction_id, write_order_id
        return new_tuple(FrameHeader, (type_, length, tx, order, count, schema_id, time_us, crc, ttl_us, has_dues))


@functools.lru_cache(maxsize=256)
def file_seed(channel_uuid: str, name: str) -> int:
    """Return the CRC seed of the channel's file ``name``."""
    return int(google_crc32c.value(f"{channel_uuid}/{name}".encode()))


def frame_size(length: int) -> int:
    """Return the size in a file of a payload of ``length`` bytes, with header and padding, in bytes."""
    return HEADER_SIZE_BYTES + (length + 7 & ~7)


def encode(
    frame: Frame, seed: int, transaction_id: int = 0, write_order_id: int = 0, time_us: int = 0
) -> list[Payload]:
    """Return the buffers of a frame, in file order, for a gathering write.

    Args:
        frame: the frame; a large payload is not copied.
        seed: the file's seed (`file_seed`).
        transaction_id: the transaction's ID.
        write_order_id: the ID of the frame's first event, or 0.
        time_us: the time of the commit, in microseconds since 1970, which the time of a clock before that becomes.
    """
    return encode_with(frame.header(transaction_id, write_order_id, max(time_us, 0)), frame.payload, seed)


def encode_with(header: FrameHeader, payload: Payload, seed: int) -> list[Payload]:
    """Return the buffers of a frame that has its header already; see `encode`."""
    return encode_all([(header, payload, None)], seed)


def encode_all(
    frames: Iterable[tuple[FrameHeader, Payload, object]], seed: int, least_bytes: int = _LEAST_BYTES
) -> list[Payload]:
    """Return the buffers of frames that have their headers already, in file order, for a gathering write.

    Args:
        frames: the header and the payload of each, and what nobody asks for here.
        seed: the file's seed (`file_seed`).
        least_bytes: a payload of so many bytes is not copied; all else is put together.
    """
    made, small = list[Payload](), list[Payload]()
    for header, payload, _ in frames:
        type_, length, tx, order, count, schema_id, time_us, payload_crc, ttl_us, has_dues = header
        flags = (_EXPIRES if ttl_us else 0) | (_HAS_DUES if has_dues else 0)
        head = _HEADER.pack(MAGIC, length, type_, flags, schema_id, count, tx, order, time_us, payload_crc)
        crc = _CRC.pack(google_crc32c.extend(seed, head + bytes(payload[:TTL_SIZE_BYTES]) if flags else head))
        small += head, crc
        if length < least_bytes:
            small.append(payload)
        else:
            made += b"".join(small), payload
            small.clear()
        if length & 7:
            small.append(_PADDINGS[length & 7])
    if small:
        made.append(b"".join(small))
    return made


def parse_header(buffer: Payload, offset: int, seed: int | None) -> FrameHeader | None:
    """Return the header at ``offset`` of ``buffer``, or None if there is no valid one.

    Args:
        buffer: the bytes; if it ends before the header does, the result is None.
        offset: where the header starts.
        seed: the file's seed (`file_seed`); None skips the checksum, for a file of an unknown channel.
    """
    if len(buffer) < offset + HEADER_SIZE_BYTES:
        return None
    if buffer[offset + _FLAGS_AT]:
        return _parse_timed(buffer, offset, seed)
    if seed is not None:  # asked first: a file that was used again is full of headers of another seed
        crc = google_crc32c.extend(seed, buffer[offset : offset + _HEADER.size])
        if crc != _CRC.unpack_from(buffer, offset + _HEADER.size)[0]:
            return None
    magic, length, type_, _, schema_id, count, tx, order, time_us, payload_crc = _HEADER.unpack_from(buffer, offset)
    if magic != MAGIC or length > MAX_PAYLOAD_BYTES or type_ not in _TYPES:
        return None
    type_ = _TYPES[type_]
    return new_tuple(FrameHeader, (type_, length, tx, order, count, schema_id, time_us, payload_crc, 0, False))


def header_size(buffer: Payload, offset: int) -> int:
    """Return how many bytes `parse_header` needs from ``offset`` on, as far as the buffer has them."""
    flags_at = offset + _FLAGS_AT
    return MOST_HEADER_BYTES if flags_at < len(buffer) and buffer[flags_at] else HEADER_SIZE_BYTES


def _parse_timed(buffer: Payload, offset: int, seed: int | None) -> FrameHeader | None:
    """Return the header of a PUT whose events have times, or None if it is not one; see `parse_header`."""
    begin, end = offset + HEADER_SIZE_BYTES, offset + MOST_HEADER_BYTES
    if len(buffer) < end:
        return None
    covered = bytes(buffer[offset : offset + _HEADER.size]) + bytes(buffer[begin:end])
    if seed is not None and google_crc32c.extend(seed, covered) != _CRC.unpack_from(buffer, begin - _CRC.size)[0]:
        return None
    magic, length, type_, flags, schema_id, count, tx, order, time_us, payload_crc = _HEADER.unpack_from(buffer, offset)
    is_put = magic == MAGIC and flags <= _EXPIRES | _HAS_DUES and type_ == FrameType.PUT
    expires, has_dues = bool(flags & _EXPIRES), bool(flags & _HAS_DUES)
    (ttl_us,) = _TTL.unpack_from(buffer, begin) if expires else (0,)
    least_bytes = max(TTL_SIZE_BYTES, _times_size(ttl_us, count, has_dues=has_dues))
    if not is_put or (expires and not ttl_us) or not least_bytes <= length <= MAX_PAYLOAD_BYTES:
        return None
    return FrameHeader(FrameType.PUT, length, tx, order, count, schema_id, time_us, payload_crc, ttl_us, has_dues)


def _times_size(ttl_us: int, count: int, *, has_dues: bool) -> int:
    """Return how much of a payload its events' times are, in bytes."""
    return (TTL_SIZE_BYTES if ttl_us else 0) + (_DUE_SIZE_BYTES * count if has_dues else 0)


def payload_matches(header: FrameHeader, payload: Payload) -> bool:
    """Tell whether ``payload`` has the length and the checksum that its header says."""
    return len(payload) == header.length and int(google_crc32c.value(payload)) == header.payload_crc


def message_of(header: FrameHeader, payload: pa.Buffer) -> pa.Buffer:
    """Return the Arrow message in a PUT's payload: what is behind the events' times, if it has any."""
    skipped = _times_size(header.ttl_us, header.count, has_dues=header.has_dues)
    return payload.slice(skipped) if skipped else payload


def dues_of(header: FrameHeader, payload: pa.Buffer) -> bytes:
    """Return what a PUT's payload says of when each of its events is due; empty where it says nothing."""
    if not header.has_dues:
        return b""
    start = TTL_SIZE_BYTES if header.ttl_us else 0
    return bytes(payload.slice(start, _DUE_SIZE_BYTES * header.count))


def total_size(frames: Iterable[Frame]) -> int:
    """Return the size of frames in a file, with headers and padding, in bytes."""
    size = 0
    for frame in frames:
        size += HEADER_SIZE_BYTES + (len(frame.payload) + 7 & ~7)  # `frame_size`, inlined: every put comes here
    return size
