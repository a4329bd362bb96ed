"""What a creation that failed has left is removed, so that nothing is in the way of the next one, wherever that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spillable_stream.errors import SpillableError
from spillable_stream.log.identity_file import has_identity
from spillable_stream.log.layout import IDENTITY, Layout
from spillable_stream.log.owner_file import OWNER_FILE, read_owner
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["FailedCreation"]


class FailedCreation:
    """Removes what one creation of a channel has created. Files and directories that were there before stay.

    Args:
        fs: the file system.
        planned: the layout of the channel; nothing of it has been created yet.

    Attributes:
        layout: the same, under the identity that is created.
    """

    def __init__(self, fs: FileSystem, planned: Layout) -> None:
        self.layout: Layout = planned
        self._fs = fs
        self._is_new, self._has_lock = not fs.exists(planned.path), fs.exists(planned.open_lock)
        self._absent = [d for d in [planned.groups, *_others(planned)] if not fs.exists(d)]

    @contextmanager
    def without_directory(self) -> Iterator[None]:
        """Remove the channel's own directory if the block fails, and it is new and empty."""
        try:
            yield
        except BaseException:
            if self._is_new:
                self._remove_directories([self.layout.path])
            raise

    @contextmanager
    def without_files(self) -> Iterator[None]:
        """Remove the rest if the block fails before there is a channel: the creation's lock, which is held, is last."""
        try:
            yield
        except BaseException:
            if not has_identity(self._fs, self.layout.path):
                self._remove_files()
                self._remove_directories(sorted(self._absent, key=lambda directory: -len(directory.parts)))
                if not self._has_lock:
                    self._remove(self.layout.open_lock)
            raise

    def _remove_files(self) -> None:
        """Remove the files; what says that the channel's own directory is its own goes last: a kill is continued."""
        layout = self.layout
        for directory in [*_others(layout), layout.path]:
            with suppress(SpillableError):
                owner = read_owner(self._fs, directory)
                if owner is not None and owner.channel == layout.channel:
                    self._remove(*_files_in(layout, directory))
        self._remove(layout.path / f"{OWNER_FILE}.tmp")  # of an interrupt

    def _remove(self, *paths: Path) -> None:
        for path in paths:
            with suppress(SpillableError):
                self._fs.remove(path)

    def _remove_directories(self, directories: Iterable[Path]) -> None:
        for directory in directories:
            with suppress(SpillableError):
                self._fs.remove_directory(directory)


def _others(layout: Layout) -> list[Path]:
    return [*layout.directories().values(), *filter(None, [layout.backup_checkpoint_dir])]


def _files_in(layout: Layout, directory: Path) -> list[Path]:
    found = [layout.log_file(1)] if layout.log_file(1).parent == directory else []
    if directory == layout.path:
        found += [directory / f"{IDENTITY}.tmp", layout.head, layout.lock, layout.checkpoint_lock]
    return [*found, directory / f"{OWNER_FILE}.tmp", directory / OWNER_FILE]
