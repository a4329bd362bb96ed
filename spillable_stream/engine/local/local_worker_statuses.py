"""What workers of a channel on a disk say of themselves: a small file for each group.

A worker writes ``groups/NAME.worker`` in place, without a sync, while it owns the group.
"""

from __future__ import annotations

import contextlib
import time

from spillable_stream.engine.worker_statuses import SILENT_SECONDS, StatusPace, status_seed
from spillable_stream.errors import StorageError
from spillable_stream.format.sealed_note import seal, unseal
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["LocalStatusWriter", "LocalWorkerStatuses"]

_PACE = StatusPace(change_seconds=1.0, alive_seconds=6.0, silent_seconds=SILENT_SECONDS)
_TICK_SECONDS = 2.0  # for which the time of a directory may not show a change


class LocalStatusWriter:
    """The file of a group's worker. It implements `StatusWriter`.

    Args:
        file: the file, which it closes.
        seed: the checksum's.

    Attributes:
        pace: how often to write.
    """

    pace: StatusPace = _PACE

    def __init__(self, file: File, seed: int) -> None:
        self._file = file
        self._seed = seed

    def write(self, value: bytes) -> None:
        """Write over what the file says."""
        with contextlib.suppress(StorageError):
            self._file.write(0, [seal(value, self._seed)])

    def close(self, last: bytes | None) -> None:
        """Write the last thing, and close the file, which stays."""
        if last is not None:
            self.write(last)
        self._file.close()


class LocalWorkerStatuses:
    """The files of a channel's workers. It implements `WorkerStatuses`."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._groups: list[str] = []
        self._listed_at = float("-inf")  # when the groups were looked up, in seconds since 1970,
        self._listed_change = float("-inf")  # and when they had changed then

    def open(self, group: str) -> LocalStatusWriter | None:
        """Return the file of a group that is owned; None if the disk refuses."""
        try:
            return LocalStatusWriter(
                self._fs.open(self._layout.group_worker(group), create=True), status_seed(self._layout.channel, group)
            )
        except StorageError:
            return None

    def read(self) -> dict[str, bytes]:
        """Return the statuses, by group, without those that are not whole, since they are being written."""
        found: dict[str, bytes] = {}
        for group in self._with_statuses():
            with contextlib.suppress(FileNotFoundError, StorageError):
                data = self._fs.read_file(self._layout.group_worker(group))
                if (value := unseal(data, status_seed(self._layout.channel, group))) is not None:
                    found[group] = value
        return found

    def forget(self, group: str) -> None:
        """Remove a group's files: a worker's, and that of the Spark query that read as it."""
        for of_group in (self._layout.group_worker, self._layout.group_query):
            with contextlib.suppress(StorageError):
                self._fs.remove(of_group(group))

    def _with_statuses(self) -> list[str]:
        """Return the groups that have a file; of thousands of groups, they are listed only after a change."""
        directory = self._layout.groups
        try:
            changed_at = self._fs.modified_seconds(directory)
        except (FileNotFoundError, StorageError):
            return []
        if changed_at != self._listed_change or changed_at > self._listed_at - _TICK_SECONDS:
            self._listed_at, self._listed_change = time.time(), changed_at
            names = self._fs.list_files(directory)
            self._groups = [group for name in names if (group := self._layout.group_of(name, "worker")) is not None]
        return self._groups
