"""The machine's own limits for the same bytes: plain writes with a sync, reads, and copies in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import spillable_stream as ss
from benchmarks.events import Shape, event_batch
from benchmarks.rounds import Contestant, Figures, rate

__all__ = ["APPEND", "COPY", "PREALLOCATED", "Disk", "append", "copies", "grouped", "log_bytes", "preallocated"]

APPEND = "write and fdatasync, appending"
PREALLOCATED = "write and fdatasync, preallocated"
COPY = "memory copy, in and out"
TAKE_RECORD_BYTES = 150  # what the commit of a take writes
_MOST_BYTES = 1 << 30
_MOST_WRITES = 50_000


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
    """A file to write to, one transaction after the other, and to read from.

    Args:
        directory: where the file is.
        write_bytes: the size of each write.
        preallocate: whether the blocks are allocated at once, for ``most`` writes.
    """

    def __init__(self, directory: Path, write_bytes: int, preallocate: bool) -> None:
        self._data = os.urandom(write_bytes)
        self.most = max(3, min(_MOST_WRITES, _MOST_BYTES // write_bytes))
        self._written = self._read = 0
        self._fd = _new_file(directory / "floor", self.most * write_bytes if preallocate else 0)
        self._record = bytes(TAKE_RECORD_BYTES)
        self._records = _new_file(directory / "takes", self.most * TAKE_RECORD_BYTES)

    def write(self) -> bool:
        """Write and sync once, and tell whether there was room."""
        if self._written == self.most:
            return False
        os.pwrite(self._fd, self._data, self._written * len(self._data))
        os.fdatasync(self._fd)
        self._written += 1
        return True

    def read(self) -> bool:
        """Read once what was written, write and sync a take's record, and tell whether there was anything left."""
        if self._read == self._written:
            return False
        os.pread(self._fd, len(self._data), self._read * len(self._data))
        os.pwrite(self._records, self._record, self._read * TAKE_RECORD_BYTES)
        os.fdatasync(self._records)
        self._read += 1
        return True

    def close(self) -> None:
        """Close the files."""
        os.close(self._fd)
        os.close(self._records)


def _new_file(path: Path, allocate_bytes: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    if allocate_bytes:
        os.posix_fallocate(fd, 0, allocate_bytes)
    os.fsync(fd)
    return fd


def _disk(shape: Shape, seconds: float, *, preallocate: bool, group: int = 1) -> Contestant:
    def run(directory: Path) -> Figures:
        disk = Disk(directory, group * log_bytes(shape, directory), preallocate)
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
    return _disk(shape, seconds, preallocate=False)


def preallocated(shape: Shape, seconds: float) -> Contestant:
    """Return who does the same in a file whose blocks are allocated."""
    return _disk(shape, seconds, preallocate=True)


def grouped(shape: Shape, seconds: float, group: int) -> Contestant:
    """Return who writes so many transactions' bytes at once, preallocated, with one sync for all of them."""
    return _disk(shape, seconds, preallocate=True, group=group)


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
