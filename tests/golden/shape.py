"""The files of a channel, frame by frame, without what differs from run to run: times, and names drawn by lot.

python -m tests.golden.shape: writes `SHAPES` anew, when a change of what a plain channel has on disk is meant.
"""

from __future__ import annotations

import json
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, frame_size
from tests.golden.make import CHANNELS

_DRAWN = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
SHAPES = Path(__file__).parent / "plain.json"
"""The shapes of channels that use no retention, as the last version without it wrote them."""

_PLAIN = ("events", "spilled")
_MASKED = {"channel", "time", "token", "boot", "up", "recovery", "recoveries"}


def shape(path: Path) -> dict[str, list[list[Any]]]:
    """Return of each file its frames: type, schema, count, transaction, write-order ID and payload."""
    files = [*(path / "data").iterdir(), *(path / "checkpoint").iterdir()]
    return {_without_lots(f.name): list(_frames(f.read_bytes())) for f in sorted(files) if f.suffix != ".json"}


def shapes(directory: Path) -> dict[str, dict[str, list[list[Any]]]]:
    """Make the plain golden channels again, and return their shapes."""
    found = {}
    for name in _PLAIN:
        CHANNELS[name](directory / name)
        found[name] = shape(directory / name)
    return found


def _frames(data: bytes) -> Iterator[list[Any]]:
    at = 0
    while data[at : at + 4] == b"SPL1":
        length, kind, schema, count, tx, first_id = struct.unpack_from("<IBxHIQQ", data, at + 4)
        payload = data[at + HEADER_SIZE_BYTES : at + HEADER_SIZE_BYTES + length]
        said = _size(payload) if kind == FrameType.PUT or not payload else _plain(_unpacked(payload))
        yield [FrameType(kind).name, schema, count, tx, first_id, said]
        at += frame_size(length)


def _unpacked(payload: bytes) -> Any:
    return msgpack.unpackb(payload, strict_map_key=False)


def _plain(value: Any, key: object = None) -> Any:
    if key in _MASKED:
        return "…"
    match value:
        case dict():
            return {str(k): _plain(v, k) for k, v in value.items()}
        case list() if key == "blocks":
            return [[_plain(v) for v in [*row[:5], 0, *row[6:]]] for row in value]
        case list() if key == "segments":
            return [[_plain(v) for v in row[:6]] for row in value]
        case list() if key == "memory":
            return [_plain(v) for v in [*value[:4], "…", *value[5:]]]
        case list():
            return [_plain(v) for v in value]
        case bytes():
            return _size(value)
        case str():
            return _without_lots(value)
    return value


def _without_lots(text: str) -> str:
    return _DRAWN.sub("…", text)


def _size(data: bytes) -> str:
    return f"{len(data)} bytes"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        SHAPES.write_text(json.dumps(shapes(Path(made)), ensure_ascii=False) + "\n")
