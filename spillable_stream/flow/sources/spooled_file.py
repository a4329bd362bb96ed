"""One file of a spooling directory: its events in order, and whether it is still as it was."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.descriptor import Descriptor
from spillable_stream.flow.sources.lines import SplitLines, cut_long, split_lines

__all__ = ["Decoding", "FilePart", "FileState", "SpooledFile", "UnreadableFileError"]

_PIECE_BYTES = 4 << 20
_SEALED_BYTES = 4096


class UnreadableFileError(SpillableError):
    """A file that can't be read to its end: it was changed, has bytes that are not text, or is not for this user."""


def _opened(path: str) -> Descriptor:
    """Return a descriptor of a file to read.

    Raises:
        FileNotFoundError: it is gone.
        UnreadableFileError: this user may not read it.
        StorageError: the file system refused.
    """
    try:
        return Descriptor(path, os.O_RDONLY)
    except FileNotFoundError:
        raise
    except PermissionError as e:
        raise UnreadableFileError(f"can't open {path} ({e.strerror}); let this user read such files") from e
    except OSError as e:
        raise StorageError(f"can't open {path} ({e.strerror}); check the disk") from e


class FileState(NamedTuple):
    """What must not change while a file is read.

    Args:
        inode: its inode.
        size_bytes: its size.
        modified_ns: when it was written last, in nanoseconds since 1970.
    """

    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: str) -> FileState:
        """Return the state of the file at a path.

        Raises:
            FileNotFoundError: it is gone.
        """
        stat = os.stat(path)
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the bytes of a file become bodies.

    Args:
        charset: the file's character set.
        errors: what happens to bytes that are not in it: FAIL, REPLACE or IGNORE.
        output_charset: the bodies' character set.
        max_line_characters: longer lines are cut into several events.
        blob_bytes: for events that are the whole file, or as much of it; 0 for lines.

    Raises:
        OptionError: there is no such character set.
    """

    charset: str = "UTF-8"
    errors: str = "FAIL"
    output_charset: str = "UTF-8"
    max_line_characters: int = 2048
    blob_bytes: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "charset", charset_name(self.charset))
        object.__setattr__(self, "output_charset", charset_name(self.output_charset))

    @property
    def python_errors(self) -> str:
        """The same policy in Python's words."""
        return {"FAIL": "strict", "REPLACE": "replace", "IGNORE": "ignore"}[self.errors]

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of a file are those of the bodies, so that it need not be decoded as a whole."""
        return self.charset == "utf-8" == self.output_charset and self.errors == "FAIL"


class FilePart(NamedTuple):
    """Some events of a file.

    Args:
        bodies: the bodies.
        start: where the first one starts: an offset in the file, decoded where it is not plain UTF-8.
        end: where the next one starts.
        seal: the checksum of the bytes before ``end``; see `SpooledFile.seal`.
    """

    bodies: pa.Array
    start: int
    end: int
    seal: int


class SpooledFile:
    """Reads the events of a file from an offset on, and checks that nobody changes it.

    Args:
        path: the file.
        decoding: how its bytes become bodies.
        offset: where to begin.
        state: what the file was when it was begun; None for what it is.

    Raises:
        FileNotFoundError: it is gone.
        UnreadableFileError: it is not what ``state`` says, can't be decoded, or this user may not read it.
        StorageError: the file system refused.
    """

    def __init__(self, path: str, decoding: Decoding, offset: int = 0, state: FileState | None = None) -> None:
        self.path = path
        self.state: FileState = state or FileState.of(path)
        self._decoding = decoding
        self._decoded: bytes | None = None
        self._descriptor = _opened(path)
        self._lines = SplitLines(pa.array([], pa.binary()), np.zeros(0, np.int64), 0)
        self._done, self._start = 0, offset
        self._gives_empty = self.state.size_bytes == 0 and offset == 0  # an empty file is one empty event
        try:
            self.check()
            if not decoding.is_plain and not decoding.blob_bytes:
                self._decoded = self._decode(self._read(0, self.state.size_bytes))
        except BaseException:
            self.close()
            raise
        self.size_bytes: int = self.state.size_bytes if self._decoded is None else len(self._decoded)

    def close(self) -> None:
        """Close the file."""
        self._descriptor.close()

    def check(self) -> None:
        """Check that the file is as it was.

        Raises:
            UnreadableFileError: it is not.
        """
        how = "write a file elsewhere, and rename it into the directory when it is whole"
        try:
            now = FileState.of(self.path)
        except FileNotFoundError as e:
            raise UnreadableFileError(f"{self.path} was removed while it was read: {how}") from e
        if now != self.state:
            raise UnreadableFileError(
                f"{self.path} was changed while it was read, from {self.state.size_bytes:,} to {now.size_bytes:,} "
                f"bytes: {how}"
            )

    def seal(self, end: int) -> int:
        """Return a checksum of the last bytes before an offset, 4 KiB at most: it tells this file from another.

        Args:
            end: the offset, as in `FilePart`.
        """
        start = max(0, end - _SEALED_BYTES)
        return int(google_crc32c.value(self._bytes(start, end - start)))

    def next(self, limit: int, before: int | None = None) -> FilePart | None:
        """Return the next events; None at the end. After it raised, they are the next ones still.

        Args:
            limit: how many at most.
            before: the offset before which they begin, as in `FilePart`; by default the end of the file.

        Raises:
            UnreadableFileError: the file was changed, or has bytes that are not in its character set.
            StorageError: the disk refused.
        """
        if self._done == len(self._lines.starts):
            self._fill()
        first, last = self._done, min(self._done + limit, len(self._lines.starts))
        if before is not None:
            last = min(last, int(np.searchsorted(self._lines.starts, before - self._start)))
        if first == last:
            return None
        start = self._start + self._lines.end_of(first)
        end = min(self._start + self._lines.end_of(last), max(self.size_bytes, 1))
        part = FilePart(self._lines.bodies.slice(first, last - first), start, end, self.seal(end))
        self._done = last
        return part

    def go_back(self, part: FilePart) -> None:
        """Let the events that `next` gave last be the next ones again."""
        self._done -= len(part.bodies)

    def _fill(self) -> None:
        """Read and split the next piece of the file."""
        start = self._start + self._lines.size_bytes
        if self._gives_empty:
            lines = SplitLines(pa.array([b""], pa.binary()), np.zeros(1, np.int64), 1)
        else:
            self.check()
            lines = self._blob(start) if self._decoding.blob_bytes else self._split(start)
        self._start, self._lines, self._done, self._gives_empty = start, lines, 0, False

    def _blob(self, start: int) -> SplitLines:
        data = self._bytes(start, self._decoding.blob_bytes)
        found = [data] if data else []
        return SplitLines(pa.array(found, pa.binary()), np.zeros(len(found), np.int64), len(data))

    def _split(self, start: int) -> SplitLines:
        size = _PIECE_BYTES
        while True:
            data = self._bytes(start, size)
            if start + len(data) >= self.size_bytes and data and not data.endswith(b"\n"):
                data += b"\n"  # the last line
            lines = split_lines(data, drop_cr=False)
            if lines.size_bytes or not data:
                break
            size *= 2
        whole = data[: lines.size_bytes]
        if self._decoded is None:
            self._require_text(whole, start)
        return cut_long(lines, self._decoding.max_line_characters, whole)

    def _bytes(self, offset: int, size: int) -> bytes:
        if self._decoded is not None:
            return self._decoded[offset : offset + size]
        return self._read(offset, max(0, min(size, self.size_bytes - offset)))

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor.number, size, offset)
        except OSError as e:
            raise StorageError(f"can't read {self.path} at {offset:,} ({e.strerror}); check the disk") from e

    def _decode(self, data: bytes) -> bytes:
        """Return the whole file in UTF-8, by the policy for bytes of no character."""
        try:
            return data.decode(self._decoding.charset, self._decoding.python_errors).encode()
        except UnicodeError as e:
            raise self._no_text(e, 0) from e

    def _require_text(self, data: bytes, start: int) -> None:
        try:
            data.decode()
        except UnicodeError as e:
            raise self._no_text(e, start) from e

    def _no_text(self, e: UnicodeError, offset: int) -> UnreadableFileError:
        where = offset + getattr(e, "start", 0)
        return UnreadableFileError(
            f"{self.path} is not {self._decoding.charset.upper()} at offset {where:,}: set inputCharset, or "
            "decodeErrorPolicy = REPLACE"
        )
