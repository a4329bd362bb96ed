"""Which files a tailing source reads: a directory and a pattern of names for each group."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spillable_stream.arguments import path_text
from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.regex import JavaPattern
from spillable_stream.shown_value import shown

__all__ = ["FileGroup", "Found", "file_groups"]

_TICK_NS = 20_000_000  # longer than a tick, which is 10 ms at most


class Found(NamedTuple):
    """A file that matches.

    Args:
        path: where it is.
        group: the group's name.
        inode: its inode.
        device: the number of its file system, until that is mounted again.
    """

    path: str
    group: str
    inode: int
    device: int


class FileGroup:
    """The files of a directory whose names match a pattern as a whole.

    Args:
        name: the group's name.
        path: the directory, a slash, and the pattern: a regular expression of Java's.
        cached: whether to list the directory only after it has changed.

    Raises:
        OptionError: there is no directory in ``path``, or the pattern is not valid.

    Attributes:
        unlisted: why the last look could not list the directory, or look at a file; "" if it could, or that is missing.
    """

    def __init__(self, name: str, path: str, *, cached: bool = True) -> None:
        directory, slash, pattern = path.rpartition("/")
        path_text(f"the file group {shown(name)}", path)
        if not slash or not pattern:
            raise OptionError(
                f"the file group {shown(name)} is {shown(path)}; give a directory and a pattern, as /var/log/.*[.]log"
            )
        try:
            self._pattern = JavaPattern(pattern)
        except OptionError as e:
            raise OptionError(f"the file group {shown(name)}: {e}") from e
        self.name = name
        self.unlisted: str = ""
        self.directory: str = os.path.abspath(os.path.expanduser(directory) or "/")
        self._cached = cached
        self._seen: tuple[int, int] | None = None
        self._device: int | None = None  # of the directory when it had files last
        self._found: list[Found] = []

    def has_name(self, name: str) -> bool:
        """Whether a file of this name would be one of the group."""
        return self._pattern.fits_whole(name)

    def files(self, *, again: bool = False) -> list[Found]:
        """Return the files that match.

        Args:
            again: whether to list the directory though it has not changed.
        """
        try:
            stat = os.stat(self.directory)
        except OSError:
            self._seen, self._found, self.unlisted = None, [], ""
            return []
        now = (stat.st_mtime_ns, stat.st_ino)
        if again or not self._cached or now != self._seen:
            began_ns = time.time_ns()
            self.unlisted = ""
            self._found = list(self._list())
            if self._found:
                self._device = stat.st_dev
            # The next change may come in the same tick of the file system's clock, and would not show.
            self._seen = now if began_ns - stat.st_mtime_ns > _TICK_NS else None
        return self._found

    def _list(self) -> Iterator[Found]:
        try:
            with os.scandir(self.directory) as found:
                entries = list(found)
        except FileNotFoundError:
            return
        except OSError as e:
            self.unlisted = (
                f"can't list {self.directory} ({e.strerror}); correct the file group, or let this user read it"
            )
            return
        for entry in entries:
            try:
                if self.has_name(entry.name) and entry.is_file():
                    stat = entry.stat()
                    yield Found(entry.path, self.name, stat.st_ino, stat.st_dev)
            except FileNotFoundError:  # it was renamed, or removed, a moment ago
                continue
            except OSError as e:
                self.unlisted = f"can't look at {entry.path} ({e.strerror}); let this user enter its directory"

    @property
    def is_away(self) -> bool:
        """Whether the directory is missing, or is the mount point of the one that had files last."""
        try:
            device = os.stat(self.directory).st_dev
        except OSError:
            return True
        return self._device not in (None, device)

    def find(self, inode: int) -> str | None:
        """Return the path of a file of the directory by its inode, whatever its name."""
        try:
            with os.scandir(self.directory) as entries:
                return next((e.path for e in entries if e.inode() == inode and e.is_file()), None)
        except OSError:
            return None


def file_groups(groups: Mapping[str, str], *, cached: bool) -> list[FileGroup]:
    """Return the groups of a source.

    Raises:
        OptionError: there are none, or as `FileGroup` raises.
    """
    if not groups:
        raise OptionError("taildir needs a file group; give filegroups = g1 and filegroups.g1 = /var/log/app/.*[.]log")
    return [FileGroup(name, path, cached=cached) for name, path in groups.items()]
