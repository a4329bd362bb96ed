"""A private copy-on-write view of a file system: reads show the files below, writes stay in memory.

A read-only handle recovers a channel in such a view, with the same code as any other handle. It cuts a torn tail,
creates and acquires locks, and records a loss, and nobody else sees any of it. No file below is ever opened for
writing, or locked.
"""

from __future__ import annotations

import builtins
import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.storage.file import File
from spillable_stream.storage.file_identity import FileIdentity
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["OverlayFileSystem"]


class _Layer:
    """The writes over a file below, or the whole content of a file that exists only in memory.

    Args:
        source: the file below, whose bytes show wherever nothing was written; None for a file only in memory.
    """

    def __init__(self, source: Path | None) -> None:
        self.source = source
        self.shown_bytes = sys.maxsize if source else 0  # how many bytes of the file below still show
        self.size_bytes: int | None = None if source else 0  # None: the size of the file below
        self.pieces: list[tuple[int, bytes]] = []  # (offset, bytes), sorted, without overlaps

    def write(self, offset: int, data: bytes) -> None:
        """Record a write, which hides the older bytes in its range."""
        end, kept = offset + len(data), [(offset, data)]
        for begin, piece in self.pieces:
            if begin < offset:
                kept.append((begin, piece[: offset - begin]))
            if begin + len(piece) > end:
                kept.append((max(begin, end), piece[max(0, end - begin) :]))
        self.pieces = sorted((begin, piece) for begin, piece in kept if piece)

    def cut(self, size_bytes: int) -> None:
        """Hide everything from ``size_bytes`` on."""
        self.pieces = [(begin, piece[: size_bytes - begin]) for begin, piece in self.pieces if begin < size_bytes]
        self.shown_bytes = min(self.shown_bytes, size_bytes)

    def lay_over(self, data: bytearray, offset: int) -> None:
        """Apply the writes to bytes that were read from the file below at an offset."""
        for begin, piece in self.pieces:
            low, high = max(begin, offset), min(begin + len(piece), offset + len(data))
            if low < high:
                data[low - offset : high - offset] = piece[low - begin : high - begin]


class _OverlayFile(File):
    """A file with a layer of writes over it. Its descriptor is private, and so is a lock on it.

    Args:
        path: the file.
        below: the file below, opened for reading; None for a file only in memory.
        layer: the writes, shared by all handles of the file.
    """

    def __init__(self, path: Path, below: File | None, layer: _Layer) -> None:
        super().__init__(path, _private_descriptor())
        self._below = below
        self._layer = layer

    def size(self) -> int:
        if self._layer.size_bytes is None and self._below is not None:
            return self._below.size()
        self.fileno()
        return self._layer.size_bytes or 0

    def identity(self) -> FileIdentity:
        return self._below.identity() if self._below is not None else super().identity()

    def is_in_place(self) -> bool:
        return self._below is None or self._layer.source != self.path or self._below.is_in_place()

    def is_linked(self) -> bool:
        return not self.is_closed() and (self._below is None or self._below.is_linked())

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        layer = self._layer
        if self._below is not None and layer.size_bytes is None:
            return self._below.read_buffer(offset, size)
        end = min(offset + size, self.size())
        data = bytearray(max(0, end - offset))
        if self._below is not None and offset < min(end, layer.shown_bytes):
            shown = self._below.read(offset, min(end, layer.shown_bytes) - offset)
            data[: len(shown)] = shown
        layer.lay_over(data, offset)
        return pa.py_buffer(bytes(data))

    def load(self, size: int) -> bytes:
        if self._below is not None and self._layer.size_bytes is None:
            return self._below.load(size)
        return self.read(0, size)

    def write(self, offset: int, buffers: Sequence[Payload]) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._layer.size_bytes = max(self.size(), offset + len(data))
        self._layer.write(offset, data)
        return len(data)

    def store(self, offset: int, data: bytes) -> None:
        self.write(offset, [data])

    def preallocate(self, offset: int, size: int) -> None:
        self._layer.size_bytes = max(self.size(), offset + size)

    def truncate(self, size: int) -> None:
        self._layer.cut(size)
        self._layer.size_bytes = size

    def start_sync(self, offset: int, size: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        shown = min(self.size(), self._layer.shown_bytes)
        found = [(a, min(b, shown)) for a, b in self._below.data_ranges(start) if a < shown] if self._below else []
        for offset, piece in self._layer.pieces:
            if offset + len(piece) > start:
                found.append((max(start, offset), offset + len(piece)))
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if merged and begin <= merged[-1][1]:
                begin, end = merged[-1][0], max(merged.pop()[1], end)
            merged.append((begin, end))
        return merged

    def drop_read_ahead(self, start: int) -> None:
        if self._below is not None:
            self._below.drop_read_ahead(start)

    def close(self) -> None:
        super().close()
        if self._below is not None:
            self._below.close()


def _private_descriptor() -> int:
    """Return the descriptor of a new anonymous file, which serves only to be locked."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("spillable", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class OverlayFileSystem(FileSystem):
    """A private copy-on-write view of a file system. Its writes vanish with this object.

    Args:
        below: the file system to show. It is never changed.
    """

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._layers: dict[Path, _Layer] = {}
        self._gone: set[Path] = set()
        self._directories: set[Path] = set()  # those that exist only in this view

    def _place(self, path: Path) -> Path:
        """Return a path with the links in its parent resolved, but not a link in its last part."""
        return self._below.real_path(path.parent) / path.name

    def _is_gone(self, path: Path) -> bool:
        place = self._place(path)
        return (place in self._gone and place not in self._layers) or self._place(path.parent) in self._gone

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        place = self._place(path)
        layer = self._layers.get(place)
        if exclusive and self.exists(path):
            raise StorageError(f"creating {path} failed: {os.strerror(errno.EEXIST)} (errno {errno.EEXIST})")
        if layer is None and not self._is_gone(path):
            try:
                below = self._below.open(path, readonly=True)
            except FileNotFoundError:
                if not create:
                    raise
            else:
                return _OverlayFile(path, below, self._layers.setdefault(place, _Layer(path)))
        if layer is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            layer = self._layers[place] = _Layer(None)
        source = self._below.open(layer.source, readonly=True) if layer.source is not None else None
        return _OverlayFile(path, source, layer)

    def list_files(self, directory: Path) -> list[str]:
        return self._shown(directory, self._below.list_files(directory))

    def list(self, directory: Path) -> list[str]:
        found = self._shown(directory, self._below.list(directory))
        made = {place.name for place in self._directories if place.parent == self._below.real_path(directory)}
        return sorted({*found, *made})

    def _shown(self, directory: Path, below: Sequence[str]) -> builtins.list[str]:
        """Return the visible names in a directory: those below that are not removed, and files only in this view."""
        if self._is_gone(directory):
            return []
        real = self._below.real_path(directory)
        own = {place.name for place, layer in self._layers.items() if place.parent == real and not layer.source}
        return sorted(own | {name for name in below if real / name not in self._gone})

    def exists(self, path: Path) -> bool:
        if self._is_gone(path):
            return False
        place = self._place(path)
        layer = self._layers.get(place)
        return (layer is not None and layer.source is None) or place in self._directories or self._below.exists(path)

    def is_file(self, path: Path) -> bool:
        return self.exists(path) and (self._place(path) in self._layers or self._below.is_file(path))

    def size_bytes(self, path: Path) -> int:
        layer = self._layers.get(self._place(path))
        if layer is not None and layer.size_bytes is not None:
            return layer.size_bytes
        return 0 if self._is_gone(path) else self._below.size_bytes(path)

    def modified_seconds(self, path: Path) -> float:
        return self._below.modified_seconds(path)

    def make_directory(self, path: Path) -> None:
        if not self._below.exists(path):
            self._directories.add(self._place(path))

    def sync_parents(self, path: Path, done: Path | None = None) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass

    def rename(self, source: Path, target: Path) -> None:
        if self._place(source) not in self._layers:
            raise self._refusal("renaming", source)
        self._layers[self._place(target)] = self._layers.pop(self._place(source))
        self._gone.add(self._place(source))

    def remove(self, path: Path) -> None:
        self._layers.pop(self._place(path), None)
        self._gone.add(self._place(path))

    def link(self, path: Path, target: Path) -> None:
        raise self._refusal("linking", path)

    def link_target(self, path: Path) -> Path | None:
        return None if self._is_gone(path) else self._below.link_target(path)

    def identity(self, path: Path) -> FileIdentity:
        while self._place(path) in self._directories:
            path = path.parent
        return self._below.identity(path)

    def real_path(self, path: Path) -> Path:
        return self._below.real_path(path)

    def make_private_directory(self, path: Path, owner_of: Path) -> None:
        raise self._refusal("creating the directory", path)

    def is_private_directory(self, path: Path, owner_of: Path) -> bool:
        return not self._is_gone(path) and self._below.is_private_directory(path, owner_of)

    def is_in_memory(self, path: Path) -> bool:
        return self._below.is_in_memory(path)

    def remove_directory(self, path: Path) -> None:
        self._gone.add(self._place(path))

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def _refusal(self, what: str, path: Path) -> StorageError:
        return StorageError(
            f"{what} {path} failed: this view of the channel is read-only, and that has to be done first: open the "
            "channel once for writing"
        )
