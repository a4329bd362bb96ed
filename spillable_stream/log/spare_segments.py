"""Spare segments: segments whose events were taken, kept to be staged in again.

They save what spare data files save (`spillable_stream.log.spares`), and share their limit. Two things differ. A writer
stages without the commit lock, so whoever renames a spare first has it. And no name comes twice, so a copy of a channel
in use can't mistake the events of one segment for those of another.

A segment stays locked until its name as a spare is durable, and no locked spare is used. So a power cut never brings
back the name of a segment with the bytes of a later one.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier, in_memory
from spillable_stream.log.layout import Layout
from spillable_stream.log.spares import is_ours_alone
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["LeavingSegments", "use_spare_segment"]


def use_spare_segment(fs: FileSystem, layout: Layout, path: Path) -> None:
    """Give a spare of the same directory the name of a new segment, if there is one; its writer then locks it."""
    for spare in layout.spare_segment_files(path.parent):
        with contextlib.suppress(StorageError):  # somebody was faster
            if is_ours_alone(fs, spare):
                fs.rename(spare, path)
                return


class LeavingSegments:
    """Segments that nobody needs, on their way out: some become spares, the others go. The commit lock is held.

    At the end of the ``with`` statement all of it is durable.

    Args:
        fs: the file system.
        layout: the channel's files.
        most_spare_bytes: how many bytes all spare files of the channel may have.
    """

    def __init__(self, fs: FileSystem, layout: Layout, most_spare_bytes: int) -> None:
        self._fs = fs
        self._free_names: list[Path] = []
        self._left_bytes = 0
        if most_spare_bytes:
            used = layout.spare_segments(fs)  # nobody else makes one meanwhile
            names = [name for directory in set(layout.data_dirs) for name in layout.spare_segment_files(directory)]
            self._free_names = [name for name in names if name not in used]
            self._left_bytes = most_spare_bytes - sum(map(fs.size_bytes, used + layout.spares(fs, Tier.DISK)))
        self._made: list[Path] = []
        self._directories: set[Path] = set()
        self._held = contextlib.ExitStack()

    def add(self, path: Path) -> None:
        """Let a segment go, though its writer may still be there: it is too late.

        Raises:
            FileNotFoundError: it is gone.
        """
        if self._spare_for(path) is None:
            self._remove(path)
            return
        try:
            self._leave(path, even_if_locked=True)
        except StorageError:  # it can't be opened, and need not be
            self._remove(path)

    def add_unless_locked(self, path: Path) -> None:
        """Let a segment go whose writer is gone. It is locked meanwhile, so that a writer that only begins notices.

        Raises:
            FileNotFoundError: it is gone.
        """
        self._leave(path, even_if_locked=False)

    def _leave(self, path: Path, *, even_if_locked: bool) -> None:
        with contextlib.ExitStack() as opened:
            lock = FileLock(self._fs.open(path, readonly=True))
            opened.callback(lock.close)
            is_alone = lock.try_acquire()
            spare = self._spare_for(path) if is_alone and lock.file.link_count() == 1 else None
            if spare is not None:
                self._held.push(opened.pop_all())  # until its name is durable
                self._left_bytes -= lock.file.size()
                self._free_names.remove(spare)
                self._made.append(spare)
                self._directories.add(path.parent)
                self._fs.rename(path, spare)
            elif is_alone or even_if_locked or lock.try_acquire(shared=True):  # readers need no name
                self._remove(path)

    def _spare_for(self, path: Path) -> Path | None:
        """Return the name under which a segment may be kept; None if it may not."""
        if in_memory(path.name) or not 0 < self._fs.size_bytes(path) <= self._left_bytes:
            return None
        return next((name for name in self._free_names if name.parent == path.parent), None)

    def _remove(self, path: Path) -> None:
        self._fs.remove(path)
        self._directories.add(path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held, contextlib.ExitStack() as syncs:
            for directory in self._directories:
                syncs.callback(self._sync, directory)  # each of them, though another fails

    def _sync(self, directory: Path) -> None:
        try:
            self._fs.sync_directory(directory)
        except BaseException:
            for spare in self._made:  # its name is not durable: nobody may write over it
                with contextlib.suppress(StorageError):
                    self._fs.remove(spare)
            raise
