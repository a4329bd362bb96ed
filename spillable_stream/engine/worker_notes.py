"""What workers say of themselves, for whoever looks at a channel from outside: a small file for each group.

A worker writes ``groups/NAME.worker`` in place, without a sync, while it owns the group: nothing depends on it. The
next worker of the group writes over it, so it stays behind after a worker has ended, or died.
"""

from __future__ import annotations

import contextlib
import time

from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import group_of
from spillable_stream.format.frame import file_seed
from spillable_stream.format.sealed_note import seal, unseal
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["WorkerNote", "WorkerNotes"]

_TICK_SECONDS = 2.0  # for which the time of a directory may not show a change


class WorkerNote:
    """The file of a group's worker. The group is owned.

    Args:
        file: the file, which it closes.
        seed: the checksum's.
    """

    def __init__(self, file: File, seed: int) -> None:
        self._file = file
        self._seed = seed

    def write(self, value: bytes) -> None:
        """Say something. Where the disk refuses, the file says what it said, or nothing."""
        with contextlib.suppress(StorageError):
            self._file.write(0, [seal(value, self._seed)])

    def close(self) -> None:
        """Close the file, which stays."""
        self._file.close()


class WorkerNotes:
    """The notes of a channel's workers.

    Args:
        fs: the file system.
        layout: the channel's files.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._groups: list[str] = []
        self._listed_at = float("-inf")  # when the groups were looked up, in seconds since 1970

    def open(self, group: str) -> WorkerNote | None:
        """Return the file of a group that is owned; None if the disk refuses."""
        try:
            return WorkerNote(self._fs.open(self._layout.group_worker(group), create=True), self._seed(group))
        except StorageError:
            return None

    def read(self) -> dict[str, bytes]:
        """Return the notes, by group, without those that are not whole, since they are being written."""
        found: dict[str, bytes] = {}
        for group in self._with_notes():
            with contextlib.suppress(FileNotFoundError, StorageError):
                data = self._fs.read_file(self._layout.group_worker(group))
                if (value := unseal(data, self._seed(group))) is not None:
                    found[group] = value
        return found

    def _with_notes(self) -> list[str]:
        """Return the groups that have a file; of thousands of groups, they are listed only after a change."""
        directory = self._layout.groups
        try:
            changed_at = self._fs.modified_seconds(directory)
        except (FileNotFoundError, StorageError):
            return []
        if changed_at > self._listed_at - _TICK_SECONDS:
            self._listed_at = time.time()
            names = self._fs.list_files(directory)
            self._groups = [group for name in names if (group := group_of(name, "worker")) is not None]
        return self._groups

    def _seed(self, group: str) -> int:
        return file_seed(self._layout.channel, f"worker/{group}")
