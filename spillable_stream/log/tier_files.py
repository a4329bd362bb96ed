"""How the files of a tier are made durable, or not: all that tells the disk tier's log from the memory tier's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spillable_stream.format.file_names import Tier
from spillable_stream.log.disk_space import with_room
from spillable_stream.log.layout import Layout
from spillable_stream.log.preallocation import Preallocation
from spillable_stream.log.spares import Spares
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["DiskFiles", "MemoryFiles", "TierFiles"]

_ZEROS_BYTES = 1 << 20
_IMAGES_PER_FILE = 4


class TierFiles(Protocol):
    """How the log files of a tier are written and synced.

    Attributes:
        preallocation: what is reserved of the file that is written.
        is_synced: whether what is written has to be synced to be durable.
        reserve: reserves space for an append to a file, between two offsets; the file has at most so many bytes.
    """

    preallocation: Preallocation
    is_synced: bool
    reserve: Callable[[File, int, int, int], None]

    def sync_new(self, file: File) -> None:
        """Make a new file and its name durable."""

    def next_numbers(self, first: int) -> list[int]:
        """Return the numbers that the next file may get, the best one first: each has it made in another directory.

        Args:
            first: the lowest one.
        """

    def spare_for(self, path: Path) -> Path | None:
        """Return the spare file that a new file can be made of, or None."""

    def create(self, path: Path, spare: Path | None = None) -> File:
        """Return a new file, made of a spare one if it is given: what is left in that can't pass for frames."""

    def remove(self, path: Path) -> None:
        """Remove a file for good."""

    def discard_behind(self, file: File, end: int) -> None:
        """Make sure that nothing behind an offset can pass for a frame."""

    def trim(self, open_file: Callable[[], File], end: int) -> bool:
        """Give back what is reserved behind the end of a file that is full, and tell whether there was any."""

    def most_bytes(self, max_file_size_bytes: int, image_bytes: int) -> int:
        """Return how large a file may get that begins with an image of the state of a size."""


class DiskFiles:
    """Data files: synced at every commit, preallocated, and used again."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self.preallocation: Preallocation = Preallocation(fs)
        self.is_synced: bool = True
        self.reserve: Callable[[File, int, int, int], None] = self.preallocation.reserve
        self.spares: Spares = Spares(fs, layout)
        self._fs = fs
        self._layout = layout

    def sync_new(self, file: File) -> None:
        file.sync()
        self._fs.sync_directory(file.path.parent)

    def next_numbers(self, first: int) -> list[int]:
        directories = with_room(self._fs, self._layout, self.preallocation.minimum_required_space)
        numbers = range(first, first + len(self._layout.data_dirs))
        return sorted(numbers, key=lambda number: self._layout.log_file(number).parent not in directories)

    def spare_for(self, path: Path) -> Path | None:
        return self.spares.last(path.parent)

    def create(self, path: Path, spare: Path | None = None) -> File:
        if spare is not None:
            return self.spares.use(spare, path)
        return self._fs.open(path, create=True, exclusive=True)

    def remove(self, path: Path) -> None:
        self._fs.remove(path)
        self._fs.sync_directory(path.parent)  # after a power cut it must not come back and end the file before it

    def discard_behind(self, file: File, end: int) -> None:
        file.truncate(end)

    def trim(self, open_file: Callable[[], File], end: int) -> bool:
        file = open_file()
        size = file.size()
        file.truncate(end)
        return size > end

    def most_bytes(self, max_file_size_bytes: int, image_bytes: int) -> int:
        return max_file_size_bytes


class MemoryFiles:
    """Files of the memory tier: never synced, and used again, since new pages cost more than a copy into old ones."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self.preallocation: Preallocation = Preallocation(fs)
        self.is_synced: bool = False
        # Nothing is: how many pages there are is counted elsewhere.
        self.reserve: Callable[[File, int, int, int], None] = lambda *_: None
        self._fs = fs
        self._layout = layout

    def sync_new(self, file: File) -> None:
        """Do nothing."""

    def next_numbers(self, first: int) -> list[int]:
        return [first]

    def spare_for(self, path: Path) -> Path | None:
        spares = self._layout.spares(self._fs, Tier.MEMORY)
        return spares[-1] if spares else None  # the one that was used last

    def create(self, path: Path, spare: Path | None = None) -> File:
        if spare is not None:
            self._fs.rename(spare, path)
            return self._fs.open(path)
        return self._fs.open(path, create=True, exclusive=True)

    def remove(self, path: Path) -> None:
        self._fs.remove(path)

    def discard_behind(self, file: File, end: int) -> None:
        for offset in range(end, file.size(), _ZEROS_BYTES):  # a cut would give the pages back
            file.write(offset, [bytes(min(_ZEROS_BYTES, file.size() - offset))])

    def trim(self, open_file: Callable[[], File], end: int) -> bool:
        """Do nothing: the file's pages are used again."""
        return False

    def most_bytes(self, max_file_size_bytes: int, image_bytes: int) -> int:
        """Return more where the image of a long backlog is large: many appends share it."""
        return max(max_file_size_bytes, _IMAGES_PER_FILE * image_bytes)
