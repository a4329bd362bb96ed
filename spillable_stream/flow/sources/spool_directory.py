"""A spooling directory: which file is next, and what becomes of one that was read."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spillable_stream.durable_names import is_there
from spillable_stream.errors import NotAChannelError, OptionError, SpillableError, StorageError
from spillable_stream.flow.durable_file import make_directory, sync_directory
from spillable_stream.flow.patterns.regex import JavaPattern
from spillable_stream.system_errors import storage_error

__all__ = ["ASIDE", "NameTooLongError", "SpoolDirectory", "spool_directory"]

ASIDE = ".ASIDE"
"""The suffix of a file that could not be read to its end."""

_MOST_NAME_BYTES = 255


class NameTooLongError(SpillableError):
    """The name that a file would get is longer than a name can be."""


@dataclass(frozen=True, slots=True)
class SpoolDirectory:
    """Finds the files to read, and marks those that were read.

    Args:
        path: the directory.
        suffix: what a file's name gets when it was read.
        deletes: whether it is removed instead.
        tracker: the directory where empty files stand for those that were read, so that these stay as they are; None to
            rename them.
        include: which names are read, as a whole.
        ignore: which of them are not.
        order: ``oldest``, ``youngest`` or ``random``.
        recursive: whether directories below are read, too.

    Attributes:
        unlisted: which directories below could not be listed or entered, in words.
    """

    path: Path
    suffix: str
    deletes: bool
    tracker: Path | None
    include: JavaPattern
    ignore: JavaPattern
    order: str
    recursive: bool
    unlisted: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _unsynced: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    def check(self) -> None:
        """Check that the directory can be used.

        Raises:
            NotAChannelError: it is not a directory.
            StorageError: files in it can't be renamed.
        """
        if not self.path.is_dir():
            raise NotAChannelError(
                f"the spool directory {self.path} is not a directory; create it, or correct spoolDir"
            )
        if not os.access(self.path, os.R_OK | os.X_OK | (0 if self.tracker else os.W_OK)):
            raise StorageError(f"the spool directory {self.path} can't be read and written; give this user the right")
        if self.tracker is not None:
            make_directory(self.tracker)

    def choose(self) -> str | None:
        """Return the file to read next, or None. All that was read before it is durably marked.

        Only the file of the newest batch is known from the channels. A power cut that brought back an earlier one would
        have it read again.

        Raises:
            StorageError: the disk refused.
        """
        while self._unsynced:
            marked_in = next(iter(self._unsynced))
            try:
                sync_directory(marked_in)
            except StorageError as e:
                if not isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
                    raise
            self._unsynced.discard(marked_in)
        found = list(self._files(self.path))
        if not found:
            return None
        if self.order == "random":
            return random.choice(found)[1]
        if self.order == "youngest":
            return min(found, key=lambda f: (-f[0], f[1]))[1]
        return min(found)[1]

    def count(self) -> int:
        """Return how many files are yet to be read."""
        return sum(1 for _ in self._files(self.path))

    def _files(self, directory: Path) -> Iterator[tuple[int, str]]:
        """Yield the time and the path of each file that is yet to be read."""
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:
            return
        except OSError as e:
            why = f"can't list {directory} ({e.strerror}); let this user read it"
            if directory == self.path:
                raise StorageError(why) from e
            self.unlisted.add(why)
            return
        for entry in entries:
            try:
                if entry.is_dir():
                    if self.recursive and not entry.name.startswith(".") and entry.path != str(self.tracker):
                        yield from self._files(Path(entry.path))
                elif entry.is_file() and self._is_to_be_read(entry):
                    yield entry.stat().st_mtime_ns, entry.path
            except FileNotFoundError:
                continue  # it has gone meanwhile
            except OSError as e:
                if e.errno == errno.ENAMETOOLONG:
                    self.unlisted.add(f"can't note in {self.tracker} that {entry.path} was read; shorten its name")
                    continue
                self.unlisted.add(f"can't look at all that is in {directory} ({e.strerror}); let this user enter it")

    def has_name(self, path: str) -> bool:
        """Whether a file of this name would be read."""
        name = os.path.basename(path)
        return (
            not name.startswith(".")
            and not name.endswith((self.suffix, ASIDE))
            and self.include.fits_whole(name)
            and not self.ignore.fits_whole(name)
        )

    def _is_to_be_read(self, entry: os.DirEntry[str]) -> bool:
        return self.has_name(entry.name) and not (
            self.tracker is not None and is_there(self._mark(entry.path, self.suffix))
        )

    def _mark(self, path: str, suffix: str) -> Path:
        assert self.tracker is not None
        return self.tracker / (os.path.relpath(path, self.path) + suffix)

    def was_begun(self, path: str) -> None:
        """Note that a file was read, and may have its mark already; see `choose`."""
        self._unsynced.add(Path(path).parent)
        if self.tracker is not None:
            self._unsynced.add(self._mark(path, self.suffix).parent)

    def complete(self, path: str) -> None:
        """Mark a file as read, or remove it.

        Raises:
            FileExistsError: the name that it would get is taken.
            NameTooLongError: that is longer than a name can be.
            StorageError: the file system refused.
        """
        self.was_begun(path)
        if self.deletes:
            self._do("remove", path, lambda: os.remove(path))
        else:
            self._mark_as(path, path + self.suffix)

    def set_aside(self, path: str) -> str:
        """Mark a file as one that could not be read, and return its name: the beginning of a long one, and a suffix.

        Raises:
            StorageError: the file system refused.
        """
        self.was_begun(path)
        directory, name = os.path.split(path)
        for n in range(1_000_000):
            suffix = ASIDE if n == 0 else f".{n}{ASIDE}"
            try:
                return self._mark_as(path, os.path.join(directory, _cut(name, _MOST_NAME_BYTES - len(suffix)) + suffix))
            except FileExistsError:
                continue
        raise StorageError(f"there are a million files aside beside {path}; remove them")

    def _mark_as(self, path: str, target: str) -> str:
        if self.tracker is not None:
            mark = self._mark(path, self.suffix)
            make_directory(mark.parent)
            self._do("create", str(mark), mark.touch)
            return path
        # A link would fail where a file is, and not replace it. But it may be made of a file of another user's only if
        # this one could write that, and not on every file system.
        try:
            os.lstat(target)
        except FileNotFoundError:
            pass
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                raise NameTooLongError(f"{target} is longer than a name can be") from e
            raise storage_error(f"can't look at {target}", e, "check the disk") from e
        else:
            raise FileExistsError(target)
        self._do("rename", path, lambda: os.rename(path, target))
        return target

    @staticmethod
    def _do(what: str, path: str, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as e:
            raise storage_error(f"can't {what} {path}", e, "give this user the right") from e


def _cut(name: str, most_bytes: int) -> str:
    """Return a name, or the beginning of one that is longer."""
    whole = os.fsencode(name)
    return name if len(whole) <= most_bytes else whole[:most_bytes].decode(errors="ignore")


def spool_directory(
    path: str | os.PathLike[str],
    *,
    suffix: str,
    delete_policy: str,
    tracker_dir: str,
    tracking_policy: str,
    include: str,
    ignore: str,
    order: str,
    recursive: bool,
) -> SpoolDirectory:
    """Return the directory that a source's options describe.

    Raises:
        OptionError: a pattern is not valid.
    """
    directory = Path(path).expanduser().absolute()
    patterns = []
    for pattern in (include, ignore):
        try:
            patterns.append(JavaPattern(pattern))
        except OptionError as e:
            raise OptionError(f"the source for {directory}: {e}") from e
    tracker = directory / tracker_dir if tracking_policy == "tracker_dir" else None
    return SpoolDirectory(
        directory, suffix, delete_policy == "immediate", tracker, patterns[0], patterns[1], order, recursive
    )
