"""Decoders fed with what nobody wrote: mutations of real bytes, with wrong checksums and with right ones."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import google_crc32c
import pyarrow as pa

from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.errors import CorruptionError, NotAChannelError, SpillableError, UnsupportedFormatError
from spillable_stream.format.batch import decode_batch, decode_schema
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed, parse_header
from spillable_stream.format.head_page import parse_head, parse_host
from spillable_stream.format.packing import unpack
from spillable_stream.format.record import FileHeader
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.log.append_check import AppendChecker
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.frames import FrameScanner, find_frame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState, restored
from spillable_stream.state.image import image_of
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.damage_image import Image
from tests.lab.damage_lab import Damage

__all__ = ["Decoder", "decoders", "forged", "mutated", "resealed", "surprises"]

_REFUSALS = (CorruptionError, NotAChannelError, UnsupportedFormatError)
_LARGEST_READ_BYTES = (1 << 20) + HEADER_SIZE_BYTES
_INTERESTING = [0, 1, 0x7F, 0x80, 0xC1, 0xDC, 0xDD, 0xDE, 0xDF, 0xFE, 0xFF]


class Decoder(NamedTuple):
    """Something that turns bytes from disk into values.

    Args:
        name: what it is.
        samples: what it was made for.
        decode: calls it.
    """

    name: str
    samples: list[bytes]
    decode: Callable[[bytes], object]


class _MemoryFile(File):
    """A file in memory, which no reader may ask for much more than it has."""

    def __init__(self, data: bytes) -> None:
        super().__init__(Path("in memory"), os.open(os.devnull, os.O_RDONLY))
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        assert 0 <= size <= max(len(self._data), _LARGEST_READ_BYTES), f"a read of {size:,} bytes"
        return pa.py_buffer(self._data[offset : offset + size])

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        return [(start, len(self._data))] if start < len(self._data) else []

    def drop_read_ahead(self, start: int) -> None:
        pass


class _OneFile(FileSystem):
    """A file system whose only file holds some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_file(self, path: Path) -> bytes:
        return self._data

    def exists(self, path: Path) -> bool:
        return True


def decoders(image: Image, seed: int) -> list[Decoder]:
    """Return every decoder of the package, with samples from a channel; all frames have one CRC seed."""
    frames: list[bytes] = []
    payloads: dict[FrameType, list[bytes]] = {}
    for name in image.names("log-", "segment.", "checkpoint-", "memory-"):
        for found in image.frames(name):
            data = image.files[name][found.offset : found.end]
            frames.append(resealed(data, seed))
            payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + found.header.length]
            payloads.setdefault(found.header.type, []).append(payload)
    logs = [b"".join(frames[i : i + 6]) for i in range(0, len(frames), 3)]
    headers = [FileHeader.parse(p) for p in payloads[FrameType.FILE_HEADER]]
    schemas = [bytes(s) for s in image_of(headers[-1].state)["schemas"]]
    schema = decode_schema(schemas[0])
    layout = image.layout
    positions = [struct.pack("<II", 5, 0) + bytes(9)] + [image.files[n] for n in image.names("consumers.position")]

    def scan(data: bytes) -> None:
        file = _MemoryFile(data)
        appends = AppendChecker(0)
        for found in FrameScanner(file, seed, 0, verify_from=len(data) // 2):
            appends.fault(found)
        list(find_frame(file, seed, 0, FrameType.COMMIT))

    def state(payload: bytes) -> None:
        restored(FileHeader.parse(payload).state)

    def checkpoint(data: bytes) -> None:
        with mock.patch("spillable_stream.log.checkpoints.file_seed", lambda *_: seed):
            restored(Checkpoints(_OneFile(data), layout).read(Path("checkpoint")).image, "checkpoint")

    def position(data: bytes) -> None:
        first, ahead = read_position_hint(_OneFile(data), layout, "consumers")
        ChannelState(ChannelOptions(), []).next_id = first + len(ahead)

    checkpoints = [resealed(image.files[n], seed) for n in image.names("checkpoint-")]
    return [
        Decoder("a frame's header", frames, lambda data: parse_header(data, 0, seed)),
        Decoder("a log", logs, scan),
        Decoder("msgpack", payloads[FrameType.COMMIT] + payloads[FrameType.TAKE], unpack),
        Decoder("COMMIT", payloads[FrameType.COMMIT], CommitRecord.parse),
        Decoder("TAKE", payloads[FrameType.TAKE], TakeRecord.parse),
        Decoder("FILE_HEADER", payloads[FrameType.FILE_HEADER], state),
        Decoder("a checkpoint", checkpoints, checkpoint),
        Decoder("a schema", schemas, decode_schema),
        Decoder("a batch", payloads[FrameType.PUT], lambda data: decode_batch(pa.py_buffer(data), schema)),
        Decoder("a position", positions, position),
        Decoder("the head", [image.files["channel/head"]], lambda data: (parse_head(data), parse_host(data))),
        Decoder(
            "the identity",
            [image.files["channel/channel.json"]],
            lambda data: file_seed(read_identity(_OneFile(data), image.path).channel, "log-000001"),
        ),
    ]


def resealed(data: bytes, seed: int) -> bytes:
    """Return bytes that begin with a frame, with the checksums that it should have."""
    if len(data) < HEADER_SIZE_BYTES:
        return data
    payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + int.from_bytes(data[4:8], "little")]
    head = data[:40] + struct.pack("<I", google_crc32c.value(payload))
    return head + struct.pack("<I", google_crc32c.extend(seed, head)) + data[HEADER_SIZE_BYTES:]


def _resealed_position(data: bytes, layout: Layout) -> bytes:
    """Return a group's position with the checksum that it should have."""
    value = data[8:]
    crc = google_crc32c.extend(file_seed(layout.channel, "group/consumers"), value)
    return struct.pack("<II", len(value), crc) + value


def mutated(rng: random.Random, samples: list[bytes]) -> bytes:
    """Return some sample, changed in one to four places."""
    data = bytearray(rng.choice(samples))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.choice(_INTERESTING)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                del data[at : at + rng.randint(1, 16)]
            case 5:
                data[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 1 << 20, 1 << 30, (1 << 32) - 1]))
            case _:
                other = rng.choice(samples)
                start = rng.randrange(len(other) + 1)
                data[at:] = other[start : start + rng.randint(1, 400)]
    return bytes(data)


def forged(image: Image, count: int, seed: int) -> Iterator[Damage]:
    """Put mutated payloads with right checksums in place of single frames.

    But for PUT: Arrow's own offsets are believed, and what they say when they are forged is Arrow's.
    """
    rng = random.Random(seed)
    names = image.names("log-", "segment.", "memory-", "checkpoint-")
    for i in range(count):
        name = rng.choice(names)
        data, found = image.files[name], rng.choice([f for f in image.frames(name) if f.header.type != FrameType.PUT])
        payload = mutated(rng, [data[found.offset + HEADER_SIZE_BYTES :][: found.header.length]])
        head = bytearray(data[found.offset : found.offset + HEADER_SIZE_BYTES])
        if rng.random() < 0.3:  # the header's numbers too
            head[8 + rng.randrange(32)] = rng.choice(_INTERESTING)
        length = len(payload) if rng.random() < 0.95 else rng.choice([0, len(payload) + 8, 1 << 30])
        head[4:8] = struct.pack("<I", length)
        frame = resealed(bytes(head) + payload + bytes(-len(payload) & 7), image.crc_seed(name))
        text = f"{name}, frame at {found.offset}, forged (input {i} of seed {seed})"
        yield Damage(text, {name: data[: found.offset] + frame + data[found.end :]})


def surprises(image: Image, count: int, seed: int, most: int = 5) -> Iterator[str]:
    """Feed every decoder in turn, and yield what was neither decoded nor refused by a typed error.

    Args:
        image: a channel whose bytes are mutated.
        count: how many inputs.
        seed: which.
        most: stop after so many surprises.
    """
    rng = random.Random(seed)
    crc_seed = rng.randrange(1 << 32)
    every = decoders(image, crc_seed)
    for i in range(count):
        decoder = every[i % len(every)]
        data = mutated(rng, decoder.samples)
        if rng.random() < 0.7:
            if decoder.name in ("a frame's header", "a log", "a checkpoint"):
                data = resealed(data, crc_seed)
            elif decoder.name == "a position":
                data = _resealed_position(data, image.layout)
        try:
            decoder.decode(data)
        except _REFUSALS:
            pass
        except (Exception, RecursionError, MemoryError) as e:
            kind = "another error of ours" if isinstance(e, SpillableError) else "an untyped error"
            yield f"{decoder.name}, input {i} of seed {seed}: {kind}, {type(e).__name__}: {e}; input {data[:400]!r}"
            most -= 1
            if most == 0:
                return
