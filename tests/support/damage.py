"""What happens to a channel's files: reboots, cuts, flipped bits."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import google_crc32c

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.log.frames import FrameScanner, LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem

_HEAD_BYTES = 512


def reboot(path: Path) -> None:
    """Lose what does not survive a reboot: the head. Every handle must be closed."""
    (path / "head").unlink(missing_ok=True)


def age_head(path: Path, published: tuple[int, int] | None = None) -> None:
    """Make the head one of another boot; with ``published``, one that says this file number and end."""
    head = bytearray((path / "head").read_bytes())
    for slot in (0, 128):
        head[slot + 8 : slot + 24] = bytes(16)
        if published is not None:
            head[slot + 24 : slot + 40] = struct.pack("<QQ", *published)
        head[slot + 84 : slot + 88] = struct.pack("<I", google_crc32c.value(bytes(head[slot : slot + 84])))
    (path / "head").write_bytes(head)


def keep_head(path: Path, kept: Path) -> None:
    """Keep what the head says now, for `rewind_head`; nothing if there is none."""
    head = path / "head"
    if head.exists() and head.stat().st_size >= _HEAD_BYTES:
        with kept.open("ab") as file:
            file.write(head.read_bytes()[:_HEAD_BYTES])


def rewind_head(path: Path, kept: Path) -> None:
    """Make the head what it was at a moment that was kept, of the same boot. Every handle must be closed or killed.

    So a disk that is mounted again has it: the kernel writes the head when it likes.
    """
    heads = kept.read_bytes() if kept.exists() else b""
    if heads and (path / "head").exists():
        chosen = zlib.crc32((path / "head").read_bytes()) % (len(heads) // _HEAD_BYTES) * _HEAD_BYTES
        (path / "head").write_bytes(heads[chosen : chosen + _HEAD_BYTES])


def kill(channel: Channel) -> None:
    """Let go of a handle as the kernel does for a killed process: nothing is written."""
    for consumer in channel._open.owned.consumers.values():
        consumer.close()
    channel._open.owned.consumers.clear()
    channel.engine().close()


def memory_of(path: Path) -> Path:
    """Return the directory of a channel's memory tier."""
    return Path(os.readlink(path / "memory"))


def lose_memory(path: Path) -> None:
    """Take the memory tier away. Every handle must be closed or killed."""
    shutil.rmtree(memory_of(path))


def remove_memory_under(directory: Path) -> None:
    """Remove the memory tiers of the channels in a directory, of those that were killed and never closed."""
    for place, directories, files in os.walk(directory):  # each test does this: pathlib's way takes five times as long
        link = os.path.join(place, "memory")
        if ("memory" in directories or "memory" in files) and os.path.islink(link):
            shutil.rmtree(os.readlink(link), ignore_errors=True)


def log_file(path: Path, file_id: int = 1) -> Path:
    """Return the path of a data file."""
    return path / "data" / f"log-{file_id:06d}"


def frames(path: Path, file_id: int = 1) -> list[LocatedFrame]:
    """Return the frames of a data file."""
    fs = FileSystem()
    seed = file_seed(read_identity(fs, path).channel, log_file(path, file_id).name)
    file = fs.open(log_file(path, file_id), readonly=True)
    try:
        return list(FrameScanner(file, seed, 0))
    finally:
        file.close()


def offsets(path: Path, type_: FrameType, file_id: int = 1) -> list[int]:
    """Return where the frames of a type begin."""
    return [f.offset for f in frames(path, file_id) if f.header.type == type_]


def trim(path: Path, file_id: int = 1) -> int:
    """Cut the preallocated rest of a data file and return its size."""
    end = frames(path, file_id)[-1].end
    with log_file(path, file_id).open("r+b") as file:
        file.truncate(end)
    return end


def flip(file: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit."""
    with file.open("r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1 << bit]))
