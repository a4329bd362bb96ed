"""Side files: where delayed events wait, outside of the log, whose files are freed in the order of its appends.

A side file is a SEGMENT_HEADER frame, and pairs of frames: a DUES, which says when the events are due, and their PUT.
It is appended to under the commit lock, and synced before the COMMIT is written that registers the new bytes. Bytes
behind the end that the state has do not count, and are never written over: a COMMIT that a crash has cut may be found
whole at the next one. Such a file is read to its end, and what comes next goes to another one. Only the append that
wrote them takes them back, if it failed and its COMMIT is proven to be gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import CorruptionError, DataLossError, StorageError
from spillable_stream.format.file_names import delayed_name
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MOST_HEADER_BYTES,
    Frame,
    FrameHeader,
    FrameType,
    file_seed,
    parse_header,
    payload_matches,
    total_size,
)
from spillable_stream.format.packing import pack
from spillable_stream.format.record import FORMAT_VERSION
from spillable_stream.log.delayed_frames import DelayedFrame, encode_now, frames_for, frames_of
from spillable_stream.log.disk_space import with_room
from spillable_stream.log.layout import Layout
from spillable_stream.state.delays import DelayedFile
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["DelayedFiles", "DelayedWrite"]

_WINDOW_BYTES = 16 << 10


@dataclass(slots=True)
class DelayedWrite:
    """An append to a side file.

    Args:
        number: the file's number.
        start: where; 0 for a new file, whose first frame is its header.
        least_ms: no event may be added that is due before that.
    """

    number: int
    start: int
    least_ms: int = 0
    frames: list[Frame] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.end = self.start

    def add(self, frames: Sequence[Frame]) -> None:
        """Add frames."""
        self.frames.extend(frames)
        self.end += total_size(frames)


class DelayedFiles:
    """The side files of a channel on a disk. It implements `SideFiles`."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout

    def header(self, number: int) -> Frame:
        """Return the first frame of a side file."""
        value = {"format": FORMAT_VERSION, "channel": self._layout.channel, "segment": delayed_name(number)}
        return Frame.of(FrameType.SEGMENT_HEADER, pack(value))

    def exists(self, number: int) -> bool:
        """Tell whether there is a file of this number, whether it counts or not."""
        return self._fs.exists(self._layout.delayed_file(number))

    def has_room(self, number: int) -> bool:
        """Tell whether the disk of the file of this number has room, or that of no other has."""
        return self._layout.delayed_file(number).parent in with_room(self._fs, self._layout, 0)

    def has_staged(self, name: str, end: int) -> bool:
        """Tell whether a staged file is there that has so many bytes."""
        return self._fs.size_bytes(self._layout.segment_file(name)) >= end

    def path(self, of: DelayedFile) -> Path:
        """Return the path of a side file; one that a large put has staged has the name of a segment."""
        return self._layout.segment_file(of.name) if of.name else self._layout.delayed_file(of.number)

    def is_whole(self, file: DelayedFile) -> bool:
        """Tell whether a file ends where the state says, so that it can be appended to."""
        return self._fs.size_bytes(self._layout.delayed_file(file.number)) == file.end

    def write(self, writes: Sequence[DelayedWrite]) -> None:
        """Append to files, and sync them; the commit lock is held, and nothing refers to the new bytes yet.

        Raises:
            StorageError: the file system refused; nothing was appended.
        """
        created: set[Path] = set()
        begun: list[DelayedWrite] = []
        try:
            for write in writes:
                path, is_new = self._layout.delayed_file(write.number), write.start == 0
                file = self._fs.open(path, create=is_new, exclusive=is_new)
                begun.append(write)
                with contextlib.closing(file):
                    self._write(file, write)
                    file.sync()
                if is_new:
                    created.add(path.parent)
            for directory in created:
                self._fs.sync_directory(directory)
        except StorageError:
            self.take_back(begun)
            raise

    def take_back(self, writes: Sequence[DelayedWrite]) -> None:
        """Give back the space of appends that no COMMIT will ever name, also where a disk is full.

        What can't be taken back stays behind the end that the state has, or in a file that it does not have.
        """
        for write in writes:
            with contextlib.suppress(StorageError):
                if write.start:
                    with contextlib.closing(self._fs.open(self._layout.delayed_file(write.number))) as file:
                        file.truncate(write.start)
                else:
                    self._remove(write.number)

    def _write(self, file: File, write: DelayedWrite) -> None:
        file.write(write.start, encode_now(write.frames, self._seed(file.path)))

    def _seed(self, path: str | Path) -> int:
        return file_seed(self._layout.channel, Path(path).name)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _opened(self, of: DelayedFile) -> Iterator[File]:
        path = self.path(of)
        try:
            file = self._fs.open(path, readonly=True)
        except FileNotFoundError as e:
            raise DataLossError(
                f"delayed events are missing: the file was removed; {self._layout.restore_it}",
                str(path),
            ) from e
        with contextlib.closing(file):
            yield file

    def expect(self, files: Sequence[DelayedFile], until_ms: int) -> None:
        """Do nothing: they are near."""

    def frames(self, of: DelayedFile, start: int = 0, *, verify: bool = False) -> Iterator[DelayedFrame]:
        """Yield the PUT frames of a side file that count; see `SideFiles.frames`."""
        with self._opened(of) as file:
            seed = self._seed(file.path)
            yield from frames_of(file, seed, of, start, damaged=partial(self.damaged, of), verify=verify)

    def puts(self, of: DelayedFile, offsets: Sequence[int]) -> Generator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the events of PUT frames; see `SideFiles.puts`."""
        with self._opened(of) as file:
            seed = self._seed(file.path)
            window, base = file.read_buffer(0, 0), 0
            for offset in offsets:
                at = offset - base
                if not 0 <= at <= len(window) - MOST_HEADER_BYTES:
                    window, base, at = file.read_buffer(offset, _WINDOW_BYTES), offset, 0
                header = parse_header(window, at, seed)
                if header is None or header.type is not FrameType.PUT:
                    raise self.damaged(of, offset)
                if at + HEADER_SIZE_BYTES + header.length <= len(window):
                    payload = window.slice(at + HEADER_SIZE_BYTES, header.length)
                else:
                    payload = file.read_buffer(offset + HEADER_SIZE_BYTES, header.length)
                if not payload_matches(header, payload):
                    raise self.damaged(of, offset)
                yield header, payload

    # ── copies ──────────────────────────────────────────────────────────────────────────────────

    def content(self, of: DelayedFile) -> bytes:
        """Return the bytes of a side file that count; see `SideFiles.content`."""
        for _ in self.frames(of, verify=True):
            pass
        with self._opened(of) as file:
            return file.read(0, of.end)

    def create(self, content: bytes, of: DelayedFile, channel: str) -> None:
        """Create a side file, durably but for its directory, of what `SideFiles.content` returned.

        Args:
            content: the bytes.
            of: the side file that they are from, as its state has it; the new one has its number.
            channel: the UUID of the channel that they are from.

        Raises:
            StorageError: the file system refused.
        """
        file = self._fs.open(self._layout.delayed_file(of.number), create=True, exclusive=True)
        with contextlib.closing(file):
            file.write(0, [content])
            before, seed = file_seed(channel, of.seed_name), self._seed(file.path)
            if before != seed:
                for offset, part in frames_for(file, len(content), before, self._layout.channel, seed):
                    file.write(offset, [part])
            file.sync()

    # ── damage ──────────────────────────────────────────────────────────────────────────────────

    def damaged(self, of: DelayedFile, offset: int) -> CorruptionError:
        """Return the error of a file that is damaged."""
        path = str(self.path(of))
        return CorruptionError("a frame of delayed events is damaged; see spillable verify", path, offset)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def remove_unneeded(self, files: Mapping[int, DelayedFile], next_number: int) -> None:
        """Remove the files in which nothing waits any more, and those that no COMMIT ever named.

        Args:
            files: the files in which events wait, by a durable state that is up to date; the commit lock is held.
            next_number: the next number. A file with a lower one that is not among them never will be: files are
                named in the order of their numbers.
        """
        for number in self._layout.delayed_files(self._fs):
            if number < next_number and number not in files:
                self._remove(number)

    def remove(self, of: DelayedFile) -> None:
        """Remove a file in which nothing waits any more."""
        self._fs.remove(self.path(of))

    def _remove(self, number: int) -> None:
        self._fs.remove(self._layout.delayed_file(number))
