"""How much a memory tier may hold, and how large its files are. Warns of a tier smaller than was asked for."""

from __future__ import annotations

import warnings
from pathlib import Path

from spillable_stream.errors import MemoryTierWarning, StorageError
from spillable_stream.option_names import named
from spillable_stream.option_types import ChannelOptions
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "byte_capacity",
    "choose_byte_capacity",
    "file_size_bytes",
    "machine_free_bytes",
    "parent_of",
    "warn_if_less",
    "warn_of",
]

_SHARED_MEMORY = Path("/dev/shm")
_SMALLEST_BYTES = 1 << 20
_LARGEST_DEFAULT_BYTES = 1 << 30
_FILES = 16  # memory of taken events is freed by whole files, so the tier is split into this many
_SMALLEST_FILE_BYTES = 1 << 20  # except in tiers of less than 16 MiB
_LARGEST_FILE_BYTES = 8 << 20  # small enough to be reused while the file is in the processor's cache


def parent_of(options: ChannelOptions) -> Path:
    """Return the directory in which a memory tier created now has its own."""
    return Path(options.memory_dir or _SHARED_MEMORY)


def machine_free_bytes() -> int:
    """Return how much memory the machine has available, in bytes (``MemAvailable`` of Linux)."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _LARGEST_DEFAULT_BYTES  # not Linux: only the file system's free space limits the tier


def file_size_bytes(byte_capacity: int, options: ChannelOptions) -> int:
    """Return the largest size of a file of the memory tier, in bytes.

    Args:
        byte_capacity: the tier's capacity in bytes.
        options: the channel's options; ``avgEventSize`` estimates an event's size.
    """
    expected: int = min(byte_capacity, options.memory_capacity * options.avg_event_size)
    return max(min(_SMALLEST_FILE_BYTES, byte_capacity // _FILES), min(expected // _FILES, _LARGEST_FILE_BYTES))


def byte_capacity(fs: FileSystem, options: ChannelOptions) -> int:
    """Return the capacity in bytes of a memory tier created now; 0 if the file system has no room for one.

    Without ``byteCapacity`` it is the least of half of the free shared memory, a quarter of the machine's
    available memory, and 1 GiB.
    """
    parent = parent_of(options)
    if not fs.exists(parent):
        return 0
    free = fs.free_bytes(parent)
    given: int | None = options.byte_capacity
    found = min(free, given) if given else min(free // 2, machine_free_bytes() // 4, _LARGEST_DEFAULT_BYTES)
    return found if found >= _SMALLEST_BYTES else 0


def choose_byte_capacity(fs: FileSystem, options: ChannelOptions) -> int:
    """Return `byte_capacity`.

    Raises:
        StorageError: the file system has no room for a memory tier.
    """
    parent, found = parent_of(options), byte_capacity(fs, options)
    if not found:
        why = "is missing"
        if fs.exists(parent):
            why = f"has {fs.free_bytes(parent):,} bytes free, but a memory tier takes {_SMALLEST_BYTES:,} or more"
        raise StorageError(f"{parent} {why}; set {named('memoryDir')} to another directory")
    return found


def warn_if_less(chosen_bytes: int, options: ChannelOptions, path: Path) -> None:
    """Warn if a memory tier was created with less than the option ``byteCapacity``, which is then all that was free.

    Args:
        chosen_bytes: what `choose_byte_capacity` returned.
        options: the channel's options.
        path: the channel's directory.
    """
    wanted = options.byte_capacity or 0
    if chosen_bytes < wanted:
        parent = parent_of(options)
        warn_of(
            path, f"{named('byteCapacity')} is {wanted:,}, but {parent} had {chosen_bytes:,} bytes free: it takes those"
        )


def warn_of(path: Path, what: str) -> None:
    """Warn that a memory tier is smaller than configured, or not available.

    Args:
        path: the channel's directory.
        what: the rest of the message.
    """
    warnings.warn(MemoryTierWarning(f"the memory tier of {path}: {what}"), stacklevel=2)
