"""Removes what a creation has left that failed or was cut short, so that nothing is in the way of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spillable_stream.errors import SpillableError
from spillable_stream.format.file_names import CLAIM_LOCK
from spillable_stream.log.directory_ownership import is_original_elsewhere
from spillable_stream.log.identity_file import has_identity, layout_of
from spillable_stream.log.layout import IDENTITY, Layout
from spillable_stream.log.owner_file import HOME, OWNER_FILE, read_owner
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
        self._earlier: Layout | None = None
        self._may_be_away = False  # of the earlier one's directories one at least: its disk may not be mounted
        self._fs = fs
        self._is_new, self._has_lock = not fs.exists(planned.path), fs.exists(planned.open_lock)
        self._absent = [d for d in _with_parents([planned.groups, *_others(planned)]) if not fs.exists(d)]

    def continue_as(self, layout: Layout) -> None:
        """Continue one that was cut short, if there is one: it is proven to hold no events.

        What it has created goes from directories that this one doesn't name, as far as they can be written.

        Args:
            layout: the layout, under the identity of that one.
        """
        self.layout, owner = layout, read_owner(self._fs, layout.path)
        if owner is None or owner.role != HOME or owner.layout is None:
            return
        self._earlier = earlier = layout_of(layout.path, owner.layout)
        within = [d for d in _with_parents(_others(earlier)) if layout.path in d.parents]  # so they are nobody else's
        self._absent += within
        outside = [d for d in _others(earlier) if layout.path not in d.parents]
        self._may_be_away = not all(map(self._is_owned, outside))
        for directory in set(_others(earlier)) - set(_others(layout)):
            self._let_go(earlier, directory)
        self._remove_directories(set(within) - set(_with_parents(_others(layout))))

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
                self._remove_directories(self._absent)
                if not self._has_lock:
                    self._remove(self.layout.open_lock)
            raise

    def _remove_files(self) -> None:
        """Remove the files; what says that the channel's own directory is its own goes last, and if no other one is.

        So the next one continues where this one was killed, or met a directory that can't be written or seen.
        """
        layouts = [self.layout, *filter(None, [self._earlier])]
        gone = [self._let_go(layout, directory) for layout in layouts for directory in _others(layout)]
        if all(gone) and not self._may_be_away:
            self._let_go(self.layout, self.layout.path)
        self._remove(self.layout.path / f"{OWNER_FILE}.tmp")  # of an interrupt

    def _is_owned(self, directory: Path) -> bool:
        with suppress(SpillableError):
            return read_owner(self._fs, directory) is not None
        return False

    def _let_go(self, layout: Layout, directory: Path) -> bool:
        """Remove the files in a directory of a layout, and tell whether it is not the channel's, or no longer."""
        with suppress(SpillableError):
            owner, files = read_owner(self._fs, directory), list[Path]()
            if layout.path in directory.parents and (owner is None or owner.channel == layout.channel):
                files = [directory / CLAIM_LOCK, directory / f"{OWNER_FILE}.tmp"]  # of a kill; nobody else claims it
            if owner and owner.channel == layout.channel and not is_original_elsewhere(self._fs, owner, layout):
                files += _files_in(layout, directory)
            for path in files:
                self._fs.remove(path)
            return True
        return False

    def _remove(self, *paths: Path) -> None:
        for path in paths:
            with suppress(SpillableError):
                self._fs.remove(path)

    def _remove_directories(self, directories: Iterable[Path]) -> None:
        """Remove those that are empty, inner ones first."""
        for directory in sorted(directories, key=lambda directory: -len(directory.parts)):
            with suppress(SpillableError):
                self._fs.remove_directory(directory)


def _others(layout: Layout) -> list[Path]:
    return [*layout.directories().values(), *filter(None, [layout.backup_checkpoint_dir])]


def _with_parents(directories: Iterable[Path]) -> list[Path]:
    return [p for directory in directories for p in (directory, *directory.parents)]


def _files_in(layout: Layout, directory: Path) -> list[Path]:
    found = [layout.log_file(1)] if layout.log_file(1).parent == directory else []
    if directory == layout.path:
        found += [directory / f"{IDENTITY}.tmp", layout.head, layout.lock, layout.checkpoint_lock]
    return [*found, directory / f"{OWNER_FILE}.tmp", directory / OWNER_FILE]
