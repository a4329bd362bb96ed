"""The machine's own limits for the same bytes: plain writes with a sync, reads, and copies in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

import spillable_stream as ss
from benchmarks.events import Shape, event_batch
from benchmarks.rounds import Contestant, Figures, rate

__all__ = [
    "APPEND",
    "COPY",
    "PREALLOCATED",
    "WRITTEN",
    "Blocks",
    "Disk",
    "append",
    "copies",
    "grouped",
    "log_bytes",
    "preallocated",
    "written",
]

APPEND = "write and fdatasync, appending"
PREALLOCATED = "write and fdatasync, preallocated"
WRITTEN = "write and fdatasync, blocks that were written before"
COPY = "memory copy, in and out"
TAKE_RECORD_BYTES = 150  # what the commit of a take writes
_FILE_BYTES = 64 << 20
_FILES = 3
_ZEROS_BYTES = 1 << 20


class Blocks(Enum):
    """What a write finds in its file: nothing, blocks that are only allocated, or blocks that were written before."""

    NEW = auto()
    ALLOCATED = auto()
    WRITTEN = auto()


def log_bytes(shape: Shape, directory: Path) -> int:
    """Return what one transaction takes in the log, as measured on a channel."""
    with ss.Channel(directory / "measure", minimum_required_space=0, checkpoint_on_close=False) as channel:
        batch = event_batch(channel.schema, shape)
        ends = []
        for _ in range(2):
            with channel.put_transaction() as tx:
                tx.put_batch(batch)
            ends.append(channel.engine().positions.disk.offset)
    return max(ends[1] - ends[0], shape.payload_bytes)  # a large one is in a file of its own


class Disk:
    """Files to write to, one transaction after the other, and to read from.

    Files have 64 MiB, as the channel's have. Without ``grow`` there are no more than three: the oldest is removed, or
    its blocks are written over.

    Args:
        directory: where the files are.
        write_bytes: the size of each write.
        blocks: what a write finds.
        grow: whether every file stays; then no blocks were written before.
    """

    def __init__(self, directory: Path, write_bytes: int, blocks: Blocks, *, grow: bool = False) -> None:
        self._directory = directory
        self._data = os.urandom(write_bytes)
        self._blocks = blocks
        self._grow = grow
        self._slots = max(1, _FILE_BYTES // write_bytes)  # of a file
        self._fds: dict[int, int] = {}
        self._written = self._read = 0
        self._record = bytes(TAKE_RECORD_BYTES)
        self._records = self._new_file("takes")
        if blocks is Blocks.WRITTEN:
            for number in range(_FILES):
                self._fds[number] = self._new_file(f"floor-{number}")

    def write(self) -> bool:
        """Write and sync once."""
        number, slot = divmod(self._written, self._slots)
        fd = self._file(number)
        os.pwrite(fd, self._data, slot * len(self._data))
        os.fdatasync(fd)
        self._written += 1
        return True

    def read(self) -> bool:
        """Read once what was written, write and sync a take's record, and tell whether there was anything left."""
        if self._read == self._written:
            return False
        number, slot = divmod(self._read, self._slots)
        os.pread(self._file(number), len(self._data), slot * len(self._data))
        at = self._read % (_FILE_BYTES // TAKE_RECORD_BYTES)
        os.pwrite(self._records, self._record, at * TAKE_RECORD_BYTES)
        os.fdatasync(self._records)
        self._read += 1
        return True

    def _file(self, number: int) -> int:
        if self._blocks is Blocks.WRITTEN:
            return self._fds[number % _FILES]
        if number not in self._fds:
            self._fds[number] = self._new_file(f"floor-{number}")
            if not self._grow and number >= _FILES:
                os.close(self._fds.pop(number - _FILES))
                (self._directory / f"floor-{number - _FILES}").unlink()
        return self._fds[number]

    def _new_file(self, name: str) -> int:
        fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT)
        if self._blocks is Blocks.ALLOCATED:
            os.posix_fallocate(fd, 0, _FILE_BYTES)
        elif self._blocks is Blocks.WRITTEN:
            for offset in range(0, _FILE_BYTES, _ZEROS_BYTES):
                os.pwrite(fd, bytes(_ZEROS_BYTES), offset)
        os.fsync(fd)
        return fd

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            os.close(fd)
        os.close(self._records)


def _disk(shape: Shape, seconds: float, blocks: Blocks, group: int = 1) -> Contestant:
    def run(directory: Path) -> Figures:
        disk = Disk(directory, group * log_bytes(shape, directory), blocks, grow=True)
        events = group * shape.events
        try:
            put = rate(lambda: events * disk.write(), seconds)
            if group > 1:
                return {"put": put}
            return {"put": put, "take": rate(lambda: events * disk.read(), seconds)}
        finally:
            disk.close()

    return run


def append(shape: Shape, seconds: float) -> Contestant:
    """Return who writes as many bytes as a transaction takes to the end of a file, and syncs each time.

    Its takes read them, and write and sync a small record each time.
    """
    return _disk(shape, seconds, Blocks.NEW)


def preallocated(shape: Shape, seconds: float) -> Contestant:
    """Return who does the same in a file whose blocks are allocated."""
    return _disk(shape, seconds, Blocks.ALLOCATED)


def written(shape: Shape, seconds: float) -> Contestant:
    """Return who does the same over what was written there before."""
    return _disk(shape, seconds, Blocks.WRITTEN)


def grouped(shape: Shape, seconds: float, group: int) -> Contestant:
    """Return who writes so many transactions' bytes at once, over others, with one sync for all of them."""
    return _disk(shape, seconds, Blocks.WRITTEN, group)


def copies(shape: Shape, seconds: float, figures: tuple[str, ...]) -> Contestant:
    """Return who copies a transaction's bodies into a large buffer and out of it again."""

    def run(_: Path) -> Figures:
        reached = rate(_copier(shape), seconds)
        return dict.fromkeys(figures, reached)

    return run


def _copier(shape: Shape) -> Callable[[], int]:
    data = os.urandom(shape.payload_bytes)
    slots = max(2, min(64, (256 << 20) // len(data)))
    buffer = bytearray(slots * len(data))
    view, at = memoryview(buffer), 0
    buffer[:] = bytes(len(buffer))  # so that its pages are there

    def step() -> int:
        nonlocal at
        view[at : at + len(data)] = data
        bytes(view[at : at + len(data)])
        at = (at + len(data)) % len(buffer)
        return shape.events

    return step
