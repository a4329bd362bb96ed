"""What a channel leaves free of its disks (``minimumRequiredSpace``), and what puts leave takes of its data files."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from spillable_stream.counted import counted
from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.log.layout import Layout
from spillable_stream.option_names import named
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "DiskSpace",
    "kept_bytes",
    "lacking_bytes",
    "require_space",
    "required_bytes",
    "with_room",
]

_LARGEST_DEFAULT_BYTES = 500 << 20
_DEFAULT_PART = 10
_LOOK_SECONDS = 1.0
_NEARLY_FULL_BYTES = 64 << 20
_PART_OF_ROOM = 8  # is written before the next look: others write too, who are not seen
_FEWEST_KEPT_BYTES, _MOST_KEPT_BYTES = 16 << 10, 1 << 20
_PART_KEPT = 16


def kept_bytes(size_bytes: int) -> int:
    """Return how much of the newest data file puts leave to takes.

    A take is some 200 bytes, so events of 3 KiB or more can be taken one by one until their file is empty, and gives
    its space back.

    Args:
        size_bytes: the size of the largest file with events.
    """
    part = size_bytes // _PART_KEPT
    return _FEWEST_KEPT_BYTES if part < _FEWEST_KEPT_BYTES else min(part, _MOST_KEPT_BYTES)


def required_bytes(fs: FileSystem, directory: Path, given: int | None) -> int:
    """Return how much space a channel leaves free on a file system, in bytes.

    Args:
        fs: the file system.
        directory: a directory on it.
        given: ``minimumRequiredSpace``, or None for its default.
    """
    return min(_LARGEST_DEFAULT_BYTES, fs.total_bytes(directory) // _DEFAULT_PART) if given is None else given


def require_space(fs: FileSystem, directory: Path, given: int | None, size_bytes: int, waiting_bytes: int = 0) -> int:
    """Refuse a write that leaves too little space.

    Args:
        fs: the file system.
        directory: where the write goes.
        given: ``minimumRequiredSpace``, or None for its default.
        size_bytes: how much space the write takes.
        waiting_bytes: how much it leaves beside that for delayed events, which are written again when they are due.

    Returns:
        How much more can be written, in bytes.

    Raises:
        DiskSpaceError: it would leave less than is required.
    """
    required, free = required_bytes(fs, directory, given), fs.free_bytes(directory)
    if free - size_bytes < required + waiting_bytes:
        default = " (the default)" if given is None else ""
        refused = f"{counted(size_bytes, 'more byte', 'are')} refused" if size_bytes else "puts are refused"
        waiting = f", and waiting delayed events need {waiting_bytes:,} when they are due" if waiting_bytes else ""
        raise DiskSpaceError(
            f"the file system of {directory} has {free:,} bytes free, but {named('minimumRequiredSpace')} is "
            f"{required:,}{default}{waiting}: {refused}; make room, or take events: takes still work"
        )
    return free - size_bytes - required - waiting_bytes


def lacking_bytes(fs: FileSystem, layout: Layout, given: int | None, waiting_bytes: int) -> int:
    """Return how many bytes more must be free so that puts are not refused, or nearly.

    Args:
        fs: the file system.
        layout: the channel's files.
        given: ``minimumRequiredSpace``, or None for its default.
        waiting_bytes: the size of the delayed events that wait.

    Raises:
        StorageError: the system does not say.
    """
    room = max(_rooms(fs, layout.data_dirs, given).values()) - waiting_bytes
    return max(0, _NEARLY_FULL_BYTES - room)


def with_room(fs: FileSystem, layout: Layout, given: int | None) -> set[Path]:
    """Return the data directories in which files are begun: those whose disks have room, if any has.

    Args:
        fs: the file system.
        layout: the channel's files.
        given: ``minimumRequiredSpace``, or None for its default.
    """
    directories = set(layout.data_dirs)
    if len(directories) == 1:
        return directories
    try:
        rooms = _rooms(fs, layout.data_dirs, given)
    except StorageError:
        return directories
    least = min(_NEARLY_FULL_BYTES, max(0, *rooms.values()) // 2)
    return {directory for directory, room in rooms.items() if room >= least} or directories


def _rooms(fs: FileSystem, directories: Iterable[Path], given: int | None) -> dict[Path, int]:
    """Return how many bytes puts may write to the file system of each directory, as far as the system says.

    Raises:
        StorageError: it says it of none.
    """
    rooms, failure = dict[Path, int](), None
    for directory in directories:
        try:
            rooms[directory] = fs.free_bytes(directory) - required_bytes(fs, directory, given)
        except StorageError as e:
            failure = e
    if failure is not None and not rooms:
        raise failure
    return rooms


class DiskSpace:
    """Refuses puts that leave too little space, with a look at the disk every second, or sooner.

    In between it counts: what all processes appended, which the log's end shows, and delayed, and what this one
    adopted. When that may have used up a part of what was free it looks again, so that no writer is faster than the
    looks.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._looked_for: tuple[int | None, int] = (0, 0)  # of the last look: what was required, and the data file
        self._looked_at = 0.0
        self._waiting_bytes = 0  # at the last look
        self._look_again_end = 0  # where the data file ends when it is time for another look

    def require(
        self,
        given: int | None,
        file_id: int,
        end: int,
        staged_bytes: int = 0,
        delayed_bytes: int = 0,
        waiting_bytes: int = 0,
    ) -> None:
        """Refuse a put that leaves too little space.

        Args:
            given: ``minimumRequiredSpace``, or None for its default.
            file_id: the data file that it is appended to.
            end: where that ends then.
            staged_bytes: how large the segments are that it adopts.
            delayed_bytes: how much it, and what is appended with it, writes to side files.
            waiting_bytes: the size of the delayed events that wait then.

        Raises:
            DiskSpaceError: it would leave less than is required.
        """
        if given == 0 and not waiting_bytes:
            return
        self._look_again_end -= staged_bytes
        more_bytes = waiting_bytes - self._waiting_bytes
        more_bytes = max(more_bytes, 2 * more_bytes)  # written once, and once more; delivered is in `end`
        if (
            end + more_bytes > self._look_again_end
            or self._looked_for != (given, file_id)
            or time.monotonic() - self._looked_at >= _LOOK_SECONDS
        ):
            self._look(given, file_id, end, delayed_bytes, waiting_bytes)

    def _look(self, given: int | None, file_id: int, end: int, delayed_bytes: int, waiting_bytes: int) -> None:
        self._look_again_end = 0  # also when this one fails
        path = self._layout.log_file(file_id)
        size_bytes = max(0, end - self._fs.size_bytes(path)) + delayed_bytes
        room = require_space(self._fs, path.parent, given, size_bytes, waiting_bytes)
        self._looked_for, self._looked_at = (given, file_id), time.monotonic()
        self._waiting_bytes = waiting_bytes
        self._look_again_end = end + room // _PART_OF_ROOM
