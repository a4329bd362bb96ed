"""A read cache on this host's disk: parts of slots, segments and merged objects, which never change.

So a part is known by its name, and never has to be asked for again. Any number of processes share a directory without a
lock: a file gets its name when it is whole, and its checksum says that it still is. A damaged file is removed, and its
part asked for again. No failure of the cache fails a read.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import random

import google_crc32c
import pyarrow as pa

from spillable_stream.log_records import fields, log_of

__all__ = ["DiskCache"]

_log = log_of(__name__)

_HEADER = struct.Struct("<8sQI")  # magic, length and checksum of what follows
_MAGIC = b"SPILCACH"
_TEMPORARY = ".tmp-"
_LEFT_SECONDS = 3600.0  # a temporary file that is older was left by a crash
_DISK_BLOCK_BYTES = 4096  # what the smallest file takes
_SWEEPS = 16  # while as much is written as fits
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class DiskCache:
    """Parts of objects in a directory, which only the user that created it may read. Thread-safe, and picklable.

    Args:
        directory: where; it is created when something is put.
        most_bytes: about how much it may take; what was used least recently goes first.
    """

    directory: str
    most_bytes: int

    def get(self, channel: str, key: str, offset: int) -> pa.Buffer | None:
        """Return a part of an object, or None.

        Args:
            channel: the channel's UUID, and where it is.
            key: the object's key.
            offset: where the part begins, in bytes.
        """
        path = self._path(channel, key, offset)
        try:
            with open(path, "rb") as f:
                data = f.read()
                os.utime(f.fileno())  # used
        except FileNotFoundError:
            return None
        except OSError as e:
            self._warn(e)
            return None
        if len(data) >= _HEADER.size:
            body = pa.py_buffer(data).slice(_HEADER.size)
            if _HEADER.unpack_from(data) == _header_of(body):
                return body
        _log.warning("a file of the read cache is damaged, and was removed: %s", path, extra=fields(channel, file=path))
        self.forget(channel, key, offset)
        return None

    def put(self, channel: str, key: str, offset: int, data: pa.Buffer) -> None:
        """Keep a part of an object; the arguments are those of `get`."""
        path = self._path(channel, key, offset)
        temporary = os.path.join(os.path.dirname(path), f"{_TEMPORARY}{os.urandom(8).hex()}")
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            try:
                with open(temporary, "xb", opener=_private) as f:
                    f.write(_HEADER.pack(*_header_of(data)))
                    f.write(data)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            if random() * self.most_bytes < _size_on_disk(len(data)) * _SWEEPS:  # also of processes that live short
                self.sweep()
        except OSError as e:
            self._warn(e)

    def forget(self, channel: str, key: str, offset: int) -> None:
        """Remove a part of an object, if it is there; the arguments are those of `get`."""
        with contextlib.suppress(OSError):
            os.unlink(self._path(channel, key, offset))

    def sweep(self) -> None:
        """Remove what was used least recently, if there is too much, and what crashes left."""
        found, size_bytes = list[tuple[float, int, str]](), 0
        for entry in self._files():
            with contextlib.suppress(FileNotFoundError):  # others sweep, too
                stat = entry.stat(follow_symlinks=False)
                if entry.name.startswith(_TEMPORARY):
                    if time.time() - stat.st_mtime > _LEFT_SECONDS:
                        os.unlink(entry.path)
                    continue
                found.append((stat.st_mtime, _size_on_disk(stat.st_size), entry.path))
                size_bytes += found[-1][1]
        for _, size, path in sorted(found):
            if size_bytes <= self.most_bytes:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            size_bytes -= size

    def _files(self) -> Iterator[os.DirEntry[str]]:
        for number in range(256):
            with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(self.directory, f"{number:02x}")) as d:
                yield from d

    def _path(self, channel: str, key: str, offset: int) -> str:
        import hashlib

        name = hashlib.sha256(f"{channel}/{key}/{offset}".encode()).hexdigest()[:40]
        return os.path.join(self.directory, name[:2], name[2:])

    def _warn(self, error: OSError) -> None:
        """Say once that the cache does not work."""
        if self.directory not in _warned:
            _warned.add(self.directory)
            _log.warning(
                "the read cache %s can't be used, so the store is asked every time: %s",
                self.directory,
                error,
                extra=fields(file=self.directory),
            )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _header_of(body: pa.Buffer) -> tuple[bytes, int, int]:
    return _MAGIC, len(body), google_crc32c.value(body)


def _size_on_disk(size_bytes: int) -> int:
    return -(-(size_bytes + _HEADER.size) // _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES
