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
from spillable_stream.format.file_names import Tier, in_memory, spare_name
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["MOST_SPARE_SEGMENTS", "LeavingSegments", "use_spare_segment"]

MOST_SPARE_SEGMENTS = 16
"""How many a channel has at most."""


def use_spare_segment(fs: FileSystem, layout: Layout, path: Path) -> None:
    """Give a spare of the same directory the name of a new segment, if there is one; its writer then locks it."""
    for spare in reversed(layout.spare_segments(fs)):
        if spare.parent == path.parent:
            with contextlib.suppress(StorageError, FileNotFoundError):  # another writer was faster, or a checkpoint
                if _is_free(fs, spare):
                    fs.rename(spare, path)
                    return


def _is_free(fs: FileSystem, spare: Path) -> bool:
    """Tell whether a spare's name is durable, and nobody reads what was in it."""
    lock = FileLock(fs.open(spare, readonly=True))
    try:
        return lock.try_acquire()
    finally:
        lock.close()


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
        self._left_bytes = self._left_files = 0
        if most_spare_bytes:
            spares = layout.spare_segments(fs)
            self._left_files = MOST_SPARE_SEGMENTS - len(spares)
            self._left_bytes = most_spare_bytes - sum(map(fs.size_bytes, spares + layout.spares(fs, Tier.DISK)))
        self._directories: set[Path] = set()
        self._held = contextlib.ExitStack()

    def add(self, path: Path) -> None:
        """Let a segment go, though its writer may still be there: it is too late.

        Raises:
            FileNotFoundError: it is gone.
        """
        if self._may_be_kept(path):
            self._leave(path, even_if_locked=True)
        else:
            self._remove(path)

    def add_unless_locked(self, path: Path) -> None:
        """Let a segment go whose writer is gone. It is locked meanwhile, so that a writer that only begins notices.

        Raises:
            FileNotFoundError: it is gone.
        """
        self._leave(path, even_if_locked=False)

    def _leave(self, path: Path, *, even_if_locked: bool) -> None:
        with contextlib.ExitStack() as opened:
            lock = FileLock(self._fs.open(path))
            opened.callback(lock.close)
            is_alone = lock.try_acquire()
            if is_alone and self._may_be_kept(path) and lock.file.link_count() == 1:
                self._left_files -= 1
                self._left_bytes -= lock.file.size()
                self._fs.rename(path, path.with_name(spare_name(path.name)))
                self._directories.add(path.parent)
                self._held.push(opened.pop_all())  # until that is durable
            elif is_alone or even_if_locked or lock.try_acquire(shared=True):  # readers need no name
                self._remove(path)

    def _may_be_kept(self, path: Path) -> bool:
        return self._left_files > 0 and not in_memory(path.name) and self._fs.size_bytes(path) <= self._left_bytes

    def _remove(self, path: Path) -> None:
        self._fs.remove(path)
        self._directories.add(path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held:
            for directory in self._directories:
                self._fs.sync_directory(directory)
