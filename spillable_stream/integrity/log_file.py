"""A log file of either tier, as an inventory finds it: what its first frame says, and up to where it counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.format.record import FileHeader
from spillable_stream.log.chain import HeaderOf, parsed_header
from spillable_stream.log.frames import LocatedFrame, walk
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["LogFile", "headers_of", "opened", "read_log_file"]


@dataclass(slots=True)
class LogFile:
    """A log file of either tier.

    Args:
        file_id: its number.
        path: its path.
        seed: its CRC seed.
        header: the record in its first frame; None if that is damaged.
        begin: the offset where its first frame ends; 0 if that is damaged.
        end: the offset up to which it counts.
        may_be_cut: whether nothing but its own frames says where it ends, though a later file followed it.
    """

    file_id: int
    path: Path
    seed: int
    header: FileHeader | None
    begin: int
    end: int = 0
    may_be_cut: bool = False

    @property
    def holds_everything(self) -> bool:
        """Whether a repair created it: its header holds the whole state, and no file before it counts."""
        return self.header is not None and self.header.previous is None and "blocks" in self.header.state


@contextmanager
def opened(fs: FileSystem, path: Path) -> Iterator[File]:
    """Open a file for reading only."""
    file = fs.open(path, readonly=True)
    try:
        yield file
    finally:
        file.close()


def read_log_file(fs: FileSystem, layout: Layout, file_id: int) -> LogFile:
    """Return a log file with what its first frame says; it has no end yet.

    Raises:
        FileNotFoundError: it was removed meanwhile.
        StorageError: it can't be read.
    """
    path = layout.log_file(file_id)
    seed = file_seed(layout.channel, log_name(file_id))
    found = LogFile(file_id, path, seed, None, 0)
    with opened(fs, path) as file:
        first = next(walk(file, seed, 0, file.size()), None)
        if isinstance(first, LocatedFrame) and first.header.type == FrameType.FILE_HEADER:
            found.header = parsed_header(first.payload)
            if found.header is not None:
                found.begin = first.end
    return found


def headers_of(files: list[LogFile]) -> HeaderOf:
    """Return a lookup of the headers that were already read."""
    return {f.file_id: f.header for f in files}.__getitem__
