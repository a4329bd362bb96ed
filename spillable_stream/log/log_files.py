"""The log files of one tier, read up to ends that were published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.file_names import Tier, log_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.format.record import FileHeader
from spillable_stream.log.append_check import AppendChecker
from spillable_stream.log.frames import FrameScanner, LocatedFrame
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["LogFiles", "Position"]


class Position(NamedTuple):
    """A place in the log of a tier: a file's number and an offset in it."""

    file_id: int
    offset: int


class LogFiles:
    """The log files of one tier of a channel."""

    def __init__(self, fs: FileSystem, layout: Layout, tier: Tier) -> None:
        self._fs = fs
        self._layout = layout
        self._tier = tier
        self._begin = (0, 0)  # a file, and where its first frame ends
        self._seeded = (0, 0)  # a file, and its seed
        self._reading: tuple[int, File] | None = None

    def ids(self) -> list[int]:
        """Return the numbers of the files, ascending."""
        return self._layout.log_files(self._fs, self._tier)

    def path(self, file_id: int) -> Path:
        """Return the path of a file."""
        return self._layout.log_file(file_id)

    def seed(self, file_id: int) -> int:
        """Return the CRC seed of a data file."""
        if self._seeded[0] != file_id:
            self._seeded = (file_id, file_seed(self._layout.channel, log_name(file_id)))
        return self._seeded[1]

    def records(self, start: Position, end: Position) -> Iterator[tuple[int, LocatedFrame]]:
        """Yield (file number, frame) for every frame between two published positions.

        Raises:
            FileNotFoundError: the file at ``start`` was deleted since; begin from a checkpoint.
            CorruptionError: a frame that must be whole is not.
        """
        file_id, offset = start
        while True:
            is_last = file_id >= end.file_id
            following, limit = (file_id, end.offset) if is_last else self._successor(file_id)
            if offset < limit:
                scanner = FrameScanner(self._open_for_reading(file_id), self.seed(file_id), offset, limit)
                appends = AppendChecker(offset)
                for found in scanner:
                    if (fault := appends.fault(found)) is not None:
                        path = str(self._layout.log_file(file_id))
                        raise CorruptionError(f"{fault}; the log is damaged", path, found.offset)
                    yield file_id, found
                if scanner.offset != limit:
                    self._require_present(file_id)
                    raise CorruptionError(
                        f"a frame of {log_name(file_id)} is damaged; its bytes up to {limit} were committed",
                        str(self._layout.log_file(file_id)),
                        scanner.offset,
                    )
            if is_last:
                return
            file_id, offset = following, 0

    def _require_present(self, file_id: int) -> None:
        """Raise FileNotFoundError for a file that was removed, or is used again for another, while it was read."""
        path = self._layout.log_file(file_id)
        if not self._fs.exists(path):
            raise FileNotFoundError(path)

    def _open_for_reading(self, file_id: int) -> File:
        if self._reading and self._reading[0] == file_id:
            return self._reading[1]
        file = self._fs.open(self._layout.log_file(file_id), readonly=True)
        self._close_reading()
        self._reading = (file_id, file)
        return file

    def read_file_header(self, file_id: int) -> FileHeader | None:
        """Return the header of a data file, or None if it is not whole."""
        file = self._fs.open(self._layout.log_file(file_id), readonly=True)
        try:
            for found in FrameScanner(file, self.seed(file_id), 0):
                return FileHeader.parse(found.payload or b"") if found.header.type == FrameType.FILE_HEADER else None
            return None
        except CorruptionError as e:
            raise CorruptionError(e.args[0], str(file.path), 0) from e
        finally:
            file.close()

    def _successor(self, file_id: int) -> tuple[int, int]:
        """Return the file after one that is no longer written, and where that one ends: its successor says.

        Raises:
            FileNotFoundError: the file was removed meanwhile, and so may be those after it: files go in their order.
            CorruptionError: its successor is missing, or the header of that is damaged.
            DataLossError: files are missing between it and those that are there.
        """
        later = [i for i in self.ids() if i > file_id]
        if not later:
            raise CorruptionError(f"the data file after {log_name(file_id)} is missing", str(self._layout.path))
        following = later[0]
        path = str(self._layout.log_file(following))
        header = self.read_file_header(following)
        if header is None:
            raise CorruptionError(f"the header of {log_name(following)} is damaged", path, 0)
        if header.previous is None or header.previous[0] != file_id:
            self._require_present(file_id)
            between = f"data files between {log_name(file_id)} and {log_name(following)}"
            raise DataLossError(f"{between} are missing; {self._layout.restore_them}", path)
        return following, header.previous[1]

    def end_of(self, file_id: int) -> int:
        """Return the trusted end of a file that is no longer written; raises what `_successor` does."""
        return self._successor(file_id)[1]

    def begun(self, file_id: int, end: int) -> None:
        """Learn where the header of a file ends that was just created."""
        self._begin = (file_id, end)

    def first_frame_end(self, file_id: int) -> int:
        """Return where the header of a file ends."""
        if self._begin[0] != file_id:
            self._begin = (file_id, self._scan_first_frame(file_id))
        return self._begin[1]

    def _scan_first_frame(self, file_id: int) -> int:
        file = self._fs.open(self._layout.log_file(file_id), readonly=True)
        with contextlib.closing(file):  # not the one that a thread may be following with
            return next((found.end for found in FrameScanner(file, self.seed(file_id), 0)), 0)

    def leave(self, current: int) -> None:
        """Close the file that was followed, if the log continues in another: an open file keeps its disk space."""
        if self._reading and self._reading[0] < current:
            self._close_reading()

    def _close_reading(self) -> None:
        reading, self._reading = self._reading, None  # first: an interrupt may end the close after the file's own
        if reading:
            reading[1].close()

    def close(self) -> None:
        """Close the file that was followed."""
        self._close_reading()
