"""The memory tier's directory: in shared memory, one per channel, made at the first put that it takes.

``DIR/memory`` is a link to it. Its name says which channel directory it belongs to, so that a copy
of a channel never takes the original's memory for its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillable_stream.errors import MemoryTierWarning, StorageError
from spillable_stream.log.head import Published
from spillable_stream.log.layout import Layout
from spillable_stream.log.names import is_spare
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["MemoryDirectory", "file_size_bytes", "machine_free_bytes"]

_SHARED_MEMORY = Path("/dev/shm")
_SMALLEST_BYTES = 1 << 20
_LARGEST_DEFAULT_BYTES = 1 << 30
_FILES = 16  # what was taken is freed file by file: so finely
_SMALLEST_FILE_BYTES = 1 << 20  # but for tiers of less than 16 of them
_LARGEST_FILE_BYTES = 8 << 20  # files are used again while they are in the processor's cache


def machine_free_bytes() -> int:
    """Return how much memory the machine can still give, in bytes (``MemAvailable`` of Linux)."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _LARGEST_DEFAULT_BYTES  # not Linux: the file system alone decides


def file_size_bytes(byte_capacity: int, options: Mapping[str, Any]) -> int:
    """Return how large a file of the memory tier may get.

    Args:
        byte_capacity: the most memory that the tier takes.
        options: the channel's options; ``avgEventSize`` is the guess of an event's size.
    """
    expected: int = min(byte_capacity, options["memory_capacity"] * options["avg_event_size"])
    return max(min(_SMALLEST_FILE_BYTES, byte_capacity // _FILES), min(expected // _FILES, _LARGEST_FILE_BYTES))


class MemoryDirectory:
    """Finds room for a memory tier, makes its directory, and removes it.

    Args:
        fs: the file system.
        layout: the channel's files.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout

    def _parent(self, options: Mapping[str, Any]) -> Path:
        return Path(options["memory_dir"] or _SHARED_MEMORY)

    def _name(self) -> str:
        return f"spillable-{self._layout.channel}-{self._fs.identity(self._layout.path)}"

    def byte_capacity(self, options: Mapping[str, Any]) -> int:
        """Return how many bytes a memory tier made now would take, 0 if there is no room for one.

        Without ``byteCapacity`` it is half of what the shared memory has free, a quarter of what the
        machine has, or 1 GiB, whichever is the least.
        """
        parent = self._parent(options)
        if not self._fs.exists(parent):
            return 0
        free = self._fs.free_bytes(parent)
        given: int | None = options["byte_capacity"]
        found = min(free, given) if given else min(free // 2, machine_free_bytes() // 4, _LARGEST_DEFAULT_BYTES)
        return found if found >= _SMALLEST_BYTES else 0

    def choose_byte_capacity(self, options: Mapping[str, Any]) -> int:
        """Return `byte_capacity`, and warn if that is less than ``byteCapacity``.

        Raises:
            StorageError: there is no room for a memory tier.
        """
        parent, found, wanted = self._parent(options), self.byte_capacity(options), options["byte_capacity"] or 0
        if not found:
            why = "is missing"
            if self._fs.exists(parent):
                why = f"has {self._fs.free_bytes(parent):,} bytes free, a memory tier takes {_SMALLEST_BYTES:,} or more"
            raise StorageError(f"{parent} {why}; set memoryDir to another directory")
        if found < wanted:
            self.warn_of(f"byteCapacity is {wanted:,}, but {parent} has {found:,} bytes free: it takes these")
        return found

    def warn_of(self, what: str) -> None:
        """Warn of what there is less than was asked for."""
        warnings.warn(MemoryTierWarning(f"the memory tier of {self._layout.path}: {what}"), stacklevel=2)

    def used_bytes(self) -> int:
        """Return how much memory the tier's files take, but for those that wait to be used again."""
        return sum(
            self._fs.size_bytes(path) for path in self._own_files(self._layout.memory) if not is_spare(path.name)
        )

    def _own_files(self, directory: Path) -> list[Path]:
        """Return the files of the channel in a memory tier's directory."""
        names = self._fs.list_files(directory)
        return [directory / name for name in names if self._layout.is_own(self._layout.memory, name)]

    def _remove_files(self, directory: Path) -> None:
        """Remove the channel's files in a memory tier's directory, and that too if it holds nothing else."""
        for path in self._own_files(directory):
            self._fs.remove(path)
        self._fs.remove_directory(directory)

    def make(self, options: Mapping[str, Any]) -> None:
        """Make the directory and the link to it; what a former tier left there is removed.

        Raises:
            StorageError: the file system refused.
        """
        target = self._parent(options) / self._name()
        self.remove()  # of an earlier tier, wherever it was
        self._remove_files(target)
        self._fs.link(self._layout.memory, target)  # first: whoever finds the link removes both
        self._fs.make_private_directory(target)

    def is_present(self, published: Published) -> bool:
        """Tell whether the memory tier that the head publishes is there, or none is published."""
        if not published.memory.file_id:
            return True
        return self.is_own() and self._fs.exists(self._layout.log_file(published.memory.file_id))

    def is_own(self) -> bool:
        """Tell whether the link leads to a directory that was made for this channel and not for its original."""
        target = self._fs.link_target(self._layout.memory)
        return target is not None and target.name == self._name()

    def is_elsewhere(self) -> bool:
        """Tell whether there was a directory of this channel, and it is not to be seen here."""
        return self.is_own() and not self._fs.exists(self._layout.memory)

    def is_linked(self) -> bool:
        """Tell whether the channel has a link to a memory tier, wherever it leads."""
        return self._fs.link_target(self._layout.memory) is not None

    def remove(self) -> None:
        """Remove the directory, if it is this channel's, and the link."""
        target = self._fs.link_target(self._layout.memory)
        if target is None:  # or what a copy made of it that followed the link
            self._remove_files(self._layout.memory)
            return
        if self.is_own():
            self._remove_files(target)
        self._fs.remove(self._layout.memory)
