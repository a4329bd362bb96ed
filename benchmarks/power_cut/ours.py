"""This project's channel, and a plain file, as the power cuts use them."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.store import Store

__all__ = ["PlainFile", "Spillable"]


class Spillable(Store):
    """This project's channel.

    The file system is smaller than what the channel wants to be free, 500 MB, so that this is switched off.
    """

    def __init__(self, directory: Path, memory: Path, **options: Any) -> None:
        import spillable_stream as ss
        import spillable_stream.log.head as head

        boot = os.urandom(16)
        head.boot_id = lambda: boot  # type: ignore[assignment, attr-defined]  # every process is another boot: the writer, the reader
        if options.get("memory_capacity"):
            options["memory_dir"] = memory
        warnings.simplefilter("ignore", ss.MemoryLossWarning)  # `reported` has it too
        self._event = ss.Event
        self._channel = ss.Channel(directory / "channel", minimum_required_space=0, **options)

    def put(self, bodies: list[bytes]) -> int:
        """Commit one transaction."""
        with self._channel.put_transaction() as tx:
            tx.put_many(self._event(body) for body in bodies)
        return tx.committed.first_id

    def take(self, count: int) -> list[bytes]:
        """Commit one transaction."""
        with self._channel.take_transaction() as tx:
            return [event.body for event in tx.take_many(count)]

    def read(self) -> Iterator[bytes]:
        """Take everything."""
        while found := self.take(1_000):
            yield from found

    def reported(self) -> Sequence[tuple[int, int]]:
        """Return the IDs that are lost, and those that may be."""
        stats = self._channel.stats()
        return (*stats.lost, *stats.doubtful)


class PlainFile(Store):
    """Records that are appended to a file: they must be lost if nobody syncs, and kept if somebody does."""

    _RECORD = struct.Struct("<cII")

    def __init__(self, directory: Path, _: Path, synced: bool) -> None:
        path = directory / "file"
        self._fd, self._synced = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), synced
        self._read_to, self._taken = 0, 0
        if synced:
            os.fsync(self._fd)
            parent = os.open(directory, os.O_RDONLY)
            os.fsync(parent)
            os.close(parent)

    def _append(self, kind: bytes, payloads: list[bytes]) -> None:
        os.write(self._fd, b"".join(self._RECORD.pack(kind, len(p), zlib.crc32(p)) + p for p in payloads))
        if self._synced:
            os.fdatasync(self._fd)

    def put(self, bodies: list[bytes]) -> int:
        """Append them with one write."""
        self._append(b"+", bodies)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Append how many have been taken so far."""
        found = list(self.read())[:count]
        self._taken += len(found)
        self._append(b"-", [str(self._taken).encode()])
        return found

    def read(self) -> Iterator[bytes]:
        """Look at everything up to the first record that is not whole."""
        data = memoryview(os.pread(self._fd, os.fstat(self._fd).st_size, 0))
        bodies, taken, offset = [], 0, 0
        while len(data) - offset >= self._RECORD.size:
            kind, size, crc = self._RECORD.unpack_from(data, offset)
            offset += self._RECORD.size
            payload = bytes(data[offset : offset + size])
            if kind not in (b"+", b"-") or len(payload) < size or zlib.crc32(payload) != crc:
                break
            offset += size
            if kind == b"+":
                bodies.append(payload)
            else:
                taken = int(payload)
        yield from bodies[taken:]
