"""Slots: the data files of a log of objects, one append each.

A slot begins like a data file, and its frames are a data file's. The frame header of its FILE_HEADER says how large the
slot is, where others say a write-order ID::

    ┌─────────────────────────────────────────────────────────────┬─────┬─────┬───┬────────┐
    │ FILE_HEADER {format, channel, file, previous, token, writer}│ PUT │ PUT │ … │ COMMIT │
    └─────────────────────────────────────────────────────────────┴─────┴─────┴───┴────────┘

``token`` names this append, ``previous`` is the token of the slot before it: so a slot says on which
state it was planned. The checksums start from the channel and the slot's number, as in a data file.

Slot 0 holds no append. Its header has a ``state``, with which the channel begins. A *fence* holds no append either: it
takes the place of one whose outcome could not be learned.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import CorruptionError, UnsupportedFormatError
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import (
    FILE_HEADER,
    HEADER_SIZE_BYTES,
    Frame,
    FrameHeader,
    FrameType,
    Payload,
    encode_all,
    file_seed,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.format.packing import NONSENSE, pack, unpack

__all__ = [
    "HEADER_READ_BYTES",
    "NO_TOKEN",
    "OBJECT_FORMAT_VERSION",
    "TOKEN_BYTES",
    "Slot",
    "SlotFrame",
    "SlotHeader",
    "claimed_channel",
    "parse_slot_header",
    "slot_seed",
]

OBJECT_FORMAT_VERSION = 2
"""The format version of channels in object stores."""

TOKEN_BYTES = 16

NO_TOKEN = bytes(TOKEN_BYTES)
"""What slot 0 has as its ``previous``."""

HEADER_READ_BYTES = 512
"""So many bytes of a slot hold its header, slot 0 excepted."""

_MOST_WRITER_BYTES = 128


@functools.lru_cache(maxsize=256)
def slot_seed(channel: str, number: int) -> int:
    """Return the seed of a slot's checksums."""
    return file_seed(channel, log_name(number))


class SlotHeader(NamedTuple):
    """The first frame of a slot.

    Args:
        channel: the channel's UUID.
        number: the slot's number.
        previous: the token of the slot before it.
        token: the append's own, 16 random bytes.
        writer: the host and process that wrote it, for people.
        state: the small state with which the channel begins; slot 0 only.
        format: the format version.
    """

    channel: str
    number: int
    previous: bytes
    token: bytes
    writer: str
    state: dict[str, object] | None = None
    format: int = OBJECT_FORMAT_VERSION

    def frame(self) -> Frame:
        """Return the header as a frame. Its size does not depend on the tokens."""
        value = {
            "format": self.format,
            "channel": self.channel,
            "file": self.number,
            "previous": self.previous,
            "token": self.token,
            "writer": self.writer.encode()[:_MOST_WRITER_BYTES].decode(errors="ignore"),
            **({} if self.state is None else {"state": self.state}),
        }
        return Frame.of(FrameType.FILE_HEADER, pack(value))

    def size_bytes(self) -> int:
        """Return where the append begins behind it, in bytes."""
        return frame_size(len(self.frame().payload))

    def encode(self, append_bytes: int = 0) -> list[Payload]:
        """Return its bytes.

        Args:
            append_bytes: the size of the append behind it. The header says the size of the whole slot, where other
                frames have a write-order ID: so a body that was cut short between two frames is not a slot.
        """
        return encode_all([self.entry(append_bytes)], slot_seed(self.channel, self.number))

    def entry(self, append_bytes: int) -> tuple[FrameHeader, Payload, None]:
        """Return the header of its frame, and its payload, as `encode_all` takes them; see `encode`."""
        frame = self.frame()
        return frame.header(write_order_id=frame_size(len(frame.payload)) + append_bytes), frame.payload, None

    @classmethod
    def parse(cls, payload: bytes) -> SlotHeader:
        """Return the header in a FILE_HEADER payload.

        Raises:
            CorruptionError: the payload is invalid.
            UnsupportedFormatError: a newer version wrote it.
        """
        v = unpack(payload)
        try:
            if int(v["format"]) > OBJECT_FORMAT_VERSION:
                raise UnsupportedFormatError(
                    f"a slot of the log has format version {v['format']}; this package reads up to "
                    f"{OBJECT_FORMAT_VERSION}: upgrade spillable-stream"
                )
            state = v.get("state")
            header = cls(
                str(v["channel"]),
                int(v["file"]),
                bytes(v["previous"]),
                bytes(v["token"]),
                str(v["writer"]),
                None if state is None else dict(state),
                int(v["format"]),
            )
        except NONSENSE as e:
            raise CorruptionError(f"the header of a slot is invalid: {type(e).__name__}: {e}") from e
        if len(header.token) != TOKEN_BYTES or len(header.previous) != TOKEN_BYTES:
            raise CorruptionError("the header of a slot has a token of the wrong size")
        return header


@dataclass(frozen=True, slots=True)
class SlotFrame:
    """A frame in a slot.

    Args:
        offset: where it starts, in bytes.
        header: its header.
        payload: its verified payload; None for events, which are verified when they are read.
    """

    offset: int
    header: FrameHeader
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as it was read: whole, and of this channel.

    Args:
        header: its header.
        data: all of its bytes.
        places: the header of each frame of the append, in order, and where that starts, in bytes.
    """

    header: SlotHeader
    data: pa.Buffer
    places: tuple[tuple[int, FrameHeader], ...]

    @property
    def number(self) -> int:
        """Its number."""
        return self.header.number

    @property
    def end(self) -> int:
        """Where it ends, in bytes."""
        return len(self.data)

    @classmethod
    def parse(cls, channel: str, number: int, data: Payload) -> Slot:
        """Return the slot that some bytes are.

        Args:
            channel: the channel's UUID.
            number: the number that its name says.
            data: the bytes.

        Raises:
            CorruptionError: they are not a whole slot of this channel and number.
            UnsupportedFormatError: a newer version wrote it.
        """
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        found = parse_slot_header(channel, number, buffer)
        if found is None:
            raise CorruptionError("the header of a slot is damaged, cut short, or another slot's", offset=0)
        slot = cls(found[0], buffer, tuple(_walk(channel, number, buffer, found[1])))
        header = parse_header(buffer, 0, None)
        if header is None or header.write_order_id != len(buffer):
            raise CorruptionError(
                "a slot is cut short between two frames; its append was committed", offset=len(buffer)
            )
        return slot

    @property
    def begins_anew(self) -> bool:
        """Whether a repair wrote it: the state after it is that of its checkpoint, whatever a reader knows."""
        return any(_is_anew(self.data, at, header) for at, header in self.places if header.type == FrameType.LOST)

    @property
    def first_id(self) -> int:
        """The ID of the first event that its append puts; 0 if it puts none."""
        ids = [h.write_order_id for _, h in self.places if h.type in (FrameType.PUT, FrameType.COMMIT)]
        return min(filter(None, ids), default=0)

    def without_append(self) -> Slot:
        """Return it as readers pass it that found it void: it takes its place, and holds nothing."""
        return replace(self, places=())

    def frames(self) -> list[SlotFrame]:
        """Return the frames of the append, in order."""
        return [
            SlotFrame(at, header, None if header.type == FrameType.PUT else bytes(_payload(self.data, at, header)))
            for at, header in self.places
        ]


def _walk(channel: str, number: int, data: pa.Buffer, begin: int) -> Iterator[tuple[int, FrameHeader]]:
    seed, at, end = slot_seed(channel, number), begin, len(data)
    while at < end:
        header = parse_header(data, at, seed)
        if header is None or at + frame_size(header.length) > end:
            raise CorruptionError("a frame is damaged or cut short; its append was committed", offset=at)
        if header.type != FrameType.PUT and not payload_matches(header, _payload(data, at, header)):
            raise CorruptionError(f"a {header.type.name} is damaged; its append was committed", offset=at)
        yield at, header
        at += frame_size(header.length)


def _is_anew(data: pa.Buffer, at: int, header: FrameHeader) -> bool:
    try:
        return bool(unpack(bytes(_payload(data, at, header))).get("anew"))
    except NONSENSE:
        return False  # whoever applies it says what is wrong with it


def _payload(data: pa.Buffer, at: int, header: FrameHeader) -> pa.Buffer:
    return data.slice(at + HEADER_SIZE_BYTES, header.length)


def claimed_channel(data: Payload) -> str:
    """Return the UUID that a slot's header says, from which its checksums start; "" if it says none."""
    try:
        found = _first_frame(data, None)
        return SlotHeader.parse(found[1]).channel if found else ""
    except CorruptionError:
        return ""


def parse_slot_header(channel: str, number: int, data: Payload) -> tuple[SlotHeader, int] | None:
    """Return a slot's header and where it ends, given the slot's first bytes; None if it is not whole, or another's."""
    found = _first_frame(data, slot_seed(channel, number))
    if found is None:
        return None
    header, end = SlotHeader.parse(found[1]), frame_size(found[0].length)
    return (header, end) if header.channel == channel and header.number == number else None


def _first_frame(data: Payload, seed: int | None) -> tuple[FrameHeader, bytes] | None:
    """Return the frame header of a FILE_HEADER and its payload; None if a slot's bytes do not begin with a whole one.

    Args:
        data: the bytes.
        seed: the slot's seed; None for one of an unknown channel.
    """
    header = parse_header(data, 0, seed)
    if header is None or header.type is not FILE_HEADER or len(data) < frame_size(header.length):
        return None
    payload = bytes(data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length])
    return (header, payload) if payload_matches(header, payload) else None
