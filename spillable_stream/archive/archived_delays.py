"""Side files in a backup: what counts of each, byte by byte, as one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import google_crc32c

from spillable_stream.archive.archived_events import read_file, write_file
from spillable_stream.archive.manifest import ArchivedFile, Manifest, damaged_backup
from spillable_stream.log.delayed_frames import SideFiles
from spillable_stream.objects.store import Store
from spillable_stream.state.delays import DelayedFile

__all__ = ["DelayedCopies", "read_delays"]


class DelayedCopies:
    """The side files of a channel that a backup has, and those that the one before had.

    Args:
        store: the backup's store.
        token: ends the names of what this backup writes.
        before: what the backup before has; its name says which side file each is.

    Attributes:
        written: those that this backup wrote.
    """

    def __init__(self, store: Store, token: str, before: Iterable[ArchivedFile]) -> None:
        self._store = store
        self._token = token
        self._before = {(_name(file.key), file.crc): file for file in before}
        self._copies: dict[str, ArchivedFile] = {}
        self.written: list[ArchivedFile] = []

    def copy(self, files: SideFiles, file: DelayedFile) -> None:
        """Copy a side file, unless this backup or the one before has what counts of it.

        Raises:
            DataLossError: it is missing.
            CorruptionError: it is damaged.
            StorageError: the file system or the store refused.
        """
        name = _name_of(file)
        if name in self._copies:
            return
        content = files.content(file)
        # The bytes decide: another continuation of the channel may have other ones in a file of the same name.
        found = self._before.get((name, int(google_crc32c.value(content))))
        if found is None:
            found = write_file(self._store, f"{name}-{self._token}", content)
            self.written.append(found)
        self._copies[name] = found

    def of(self, files: Iterable[DelayedFile]) -> tuple[ArchivedFile, ...]:
        """Return the copies of side files."""
        return tuple([self._copies[_name_of(file)] for file in files])


def read_delays(store: Store, manifest: Manifest, files: Iterable[DelayedFile]) -> Iterator[tuple[DelayedFile, bytes]]:
    """Yield each side file of a backup, and its content.

    Args:
        store: the backup's store.
        manifest: the backup.
        files: the side files, by its state.

    Raises:
        CorruptionError: the backup is damaged.
        StorageError: the store refused.
    """
    found = {_name(file.key): file for file in manifest.delays}
    for file in files:
        name = _name_of(file)
        if name not in found:
            raise damaged_backup(store, name, "the delayed events of the backup are not there")
        yield file, read_file(store, found[name])


def _name_of(file: DelayedFile) -> str:
    return f"delays/{file.number:020}-{file.end:020}"


def _name(key: str) -> str:
    """Return the key without its token."""
    return key.rpartition("-")[0]
