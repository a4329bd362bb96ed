"""Spare files: data files whose events were taken, kept to be used again for new ones.

A sync of bytes that replace others is faster than one of new bytes: the file system has no block to find, none to mark
as written, no size to change, and the pages are there. PostgreSQL does the same (``wal_recycle``).

What an earlier log left in a file never counts in the next one: every header's checksum starts from the file's name.
One danger is left, another name that leads to the same bytes. This order keeps it away:

1. A file becomes a spare under its lock, unless somebody reads it (a shared lock) or it has another hard link
   (a backup). Those are removed, and live on for whoever holds them.
2. A spare is renamed to a data file, and *that is synced before the first byte is written*. Otherwise a power cut could
   bring the earlier name back, with the later bytes.
3. A reader without a lock that is overtaken finds a checksum that does not fit, and then that the name is gone.
4. A recovery uses none that it finds: in a copy of a channel in use, they may hold frames of files that are to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from spillable_stream.format.file_names import Tier, spare_name
from spillable_stream.log.layout import Layout
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Spares", "is_ours_alone", "last_used"]

_MOST_FILES = 8  # of a channel with small files


def last_used(fs: FileSystem, paths: Sequence[Path], most_bytes: int) -> set[Path]:
    """Return the last of some files that have no more than so many bytes together.

    Args:
        fs: the file system.
        paths: the files, the one that was used last at the end.
        most_bytes: how many bytes they may have.
    """
    kept: set[Path] = set()
    for path in reversed(paths):
        most_bytes -= fs.size_bytes(path)
        if most_bytes >= 0:
            kept.add(path)
    return kept


def is_ours_alone(fs: FileSystem, path: Path) -> bool:
    """Tell whether a file is there, nobody reads it or has it locked, and no other name leads to it."""
    try:
        lock = FileLock(fs.open(path, readonly=True))
    except FileNotFoundError:
        return False
    try:
        return lock.file.link_count() == 1 and lock.try_acquire()
    finally:
        lock.close()


class Spares:
    """The spare data files of a channel. Callers hold the commit lock."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout

    def last(self, directory: Path) -> Path | None:
        """Return the spare of a directory that was used last, whose pages are still in memory; None if it has none."""
        spares = (path for path in reversed(self._all()) if path.parent == directory and is_ours_alone(self._fs, path))
        return next(spares, None)

    def use(self, spare: Path, path: Path) -> File:
        """Return a spare under another name, which is durable.

        Args:
            spare: the spare.
            path: a new data file's, in the same directory.

        Raises:
            StorageError: the file system refused; the file may have either name.
        """
        self._fs.rename(spare, path)
        self._fs.sync_directory(path.parent)
        return self._fs.open(path)

    def retire(self, paths: Iterable[Path], most_bytes: int, others: Iterable[Path] = ()) -> None:
        """Make spares of data files that nobody needs, durably, and remove what is not kept.

        Args:
            paths: the files.
            most_bytes: how many bytes all spares may have.
            others: more such files, which are not to be used again.

        Raises:
            StorageError: the file system refused; the rest of the files is left for the next time.
        """
        paths = list(paths)
        kept = {path for path in self._worth_keeping(paths, most_bytes) if is_ours_alone(self._fs, path)}
        paths = [*others, *paths]
        for path in paths:
            if path in kept:
                self._fs.rename(path, path.with_name(spare_name(path.name)))
            else:
                self._fs.remove(path)
        self._sync_directories(paths)
        self.keep(most_bytes)

    def are_any(self) -> bool:
        """Tell whether there are spare data files or segments."""
        return bool(self._all() or self._layout.spare_segments(self._fs))

    def keep(self, most_bytes: int) -> None:
        """Remove all spares but those used last, of so many bytes together.

        Spare segments, in any order, get what the data files leave.
        """
        spares = self._all()
        kept = self._worth_keeping(spares, most_bytes)
        segments = self._layout.spare_segments(self._fs)
        kept |= last_used(self._fs, segments, most_bytes - sum(map(self._fs.size_bytes, kept)))
        extra = [path for path in spares + segments if path not in kept]
        for path in extra:
            self._fs.remove(path)
        self._sync_directories(extra)

    def _all(self) -> list[Path]:
        return self._layout.spares(self._fs, Tier.DISK)

    def _worth_keeping(self, paths: list[Path], most_bytes: int) -> set[Path]:
        return last_used(self._fs, paths[-_MOST_FILES:], most_bytes)

    def _sync_directories(self, paths: Iterable[Path]) -> None:
        for directory in {path.parent for path in paths}:
            self._fs.sync_directory(directory)
