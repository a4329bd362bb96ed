"""The files of a tailing source: which there are, which of them are copies, and which have more to read.

A new file may be the copy of another one, which is truncated next. It may be seen before the copy is whole, and before
anything of the other file was read. So a new file that is the beginning of another one waits for a while.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from zlib import crc32

from spillable_stream.errors import StorageError
from spillable_stream.flow.sources.file_groups import FileGroup, Found
from spillable_stream.flow.sources.position_file import FilePosition
from spillable_stream.flow.sources.tailed_file import HEAD_BYTES, Mark, TailedFile
from spillable_stream.log_records import log_of

__all__ = ["TailedFiles"]

_log = log_of("spillable_stream.flow")

_LISTINGS, _RENAME_SECONDS = 3, 0.02
_COPY_SECONDS = 5.0  # a copy that is being created does not rest for so long


class TailedFiles:
    """The files of some groups, through rotations.

    Args:
        groups: the groups.
        idle_seconds: after how many seconds without change a file is closed.
        skip_to_end: whether files without a position are read from their end when the source starts.
        now: the clock, in seconds since 1970.

    Attributes:
        has_unsaved: whether a file is somewhere that a restart would not find again, by the last position file and the
            batches since: a copy that was released, or a new file. The writer of the position file sets it to False.
        unread: what the last look could not read, in words: a directory that can't be listed, or a file that has the
            inode number of another one, on another file system.
        away: the positions of files, by inode, whose directory is away, as where its disk is not mounted.
    """

    def __init__(
        self, groups: Sequence[FileGroup], *, idle_seconds: float, skip_to_end: bool, now: Callable[[], float]
    ) -> None:
        self._groups, self._idle_seconds, self._skip_to_end, self._now = groups, idle_seconds, skip_to_end, now
        self.has_unsaved: bool = False
        self.unread: set[str] = set()
        self.away: dict[int, FilePosition] = {}
        self._name = ""
        self._files: dict[int, TailedFile] = {}
        self._listed: dict[int, Found] = {}
        self._lists: list[list[Found]] | None = None  # of the groups, as they were looked at last
        self._firsts: dict[int, bytes] = {}

    def __iter__(self) -> Iterator[TailedFile]:
        return iter(self._files.values())

    def __contains__(self, inode: int) -> bool:
        return inode in self._files or inode in self.away

    def close(self) -> None:
        """Close the files that are open."""
        for file in self:
            file.close()

    def begin(
        self, name: str, positions: Mapping[int, FilePosition], *, only_flume: bool
    ) -> Mapping[int, FilePosition]:
        """Begin with the files that are there: known ones where they were, others at their beginning or end.

        Args:
            name: the source's name, for messages.
            positions: the positions, by inode.
            only_flume: whether they are Flume's, which tell a file by its path.

        Returns:
            The positions of those that are read from their end, by inode; a restart would skip what comes until then.
        """
        self._name, self._files, self.away = name, {}, {}
        found = self._list_with(positions)
        for inode, at in positions.items():
            where = found.get(inode)
            place = None if where is None else (where.path, where.group)
            if place is None and at.mark.tail_bytes:
                place = self._find(inode)  # renamed, and the new name does not match
            if place is None and self._is_away(at.path):
                self.away[inode] = at
            if place is None or (not at.mark.tail_bytes and only_flume and place[0] != at.path):
                continue
            self._begin_at(*place, at)
        known = list(self._files.values())
        for f in found.values():
            if f.inode not in self._files:
                self._admit(f, at_end=self._skip_to_end and f.inode not in positions)
        skipped = {i: f.mark for i, f in self._files.items() if self._skip_to_end and i not in positions}
        self._listed, self._lists = found, None
        self._judge_new()
        for file in known:
            self._check(file)
        return {
            i: FilePosition(f.path, f.mark)
            for i, f in self._files.items()
            if skipped.get(i) == f.mark and not f.copy_of  # else it is the copy of a known one
        }

    def _begin_at(self, path: str, group: str, at: FilePosition) -> TailedFile:
        """Begin with a file that is known."""
        file = self._files[at.mark.inode] = TailedFile(path, group, at.mark, is_new=at.mark.position == 0)
        file.names.add(at.path)
        return file

    def _list_with(self, positions: Mapping[int, FilePosition]) -> dict[int, Found]:
        """List the files, again if one is missing: a listing may miss one that is renamed meanwhile."""
        found: dict[int, Found] = {}
        for attempt in range(_LISTINGS):
            found = self._by_inode([group.files(again=True) for group in self._groups], positions)
            if positions.keys() <= found.keys():
                break
            if attempt < _LISTINGS - 1:
                time.sleep(_RENAME_SECONDS)
        return found

    def _by_inode(
        self, lists: Sequence[Sequence[Found]], known: Mapping[int, FilePosition | TailedFile]
    ) -> dict[int, Found]:
        """Return what the groups have by inode, and note in `unread` what is not in it."""
        found: dict[int, Found] = {}
        self.unread = {group.unlisted for group in self._groups if group.unlisted}
        for f in chain.from_iterable(lists):
            other = found.setdefault(f.inode, f)
            if other.device == f.device:
                found[f.inode] = f
                continue
            if (at := known.get(f.inode)) is not None and at.path == f.path:
                found[f.inode], other, f = f, f, other
            self.unread.add(
                f"{f.path} is not read: it has the inode number of {other.path}, on another file system; give each "
                "file system a taildir source of its own"
            )
        return found

    def _is_away(self, path: str) -> bool:
        """Whether the directory of a file is away, as where its disk is not mounted, and not the file alone."""
        directory = os.path.dirname(path)
        return any(group.is_away for group in self._groups if group.directory == directory)

    def _find(self, inode: int) -> tuple[str, str] | None:
        """Return the path and the group of a file whose name does not match."""
        for group in self._groups:
            if (path := group.find(inode)) is not None:
                return path, group.name
        return None

    def _check(self, file: TailedFile) -> None:
        """Begin anew with a file that is not what was read: it was truncated, or another one has its inode."""
        try:
            if file.read(1) is None:
                self.truncated(file)
        except (FileNotFoundError, StorageError) as e:
            _log.of(self._name, file=file.path).warning("%s", e)
        file.close()

    def notice(self) -> None:
        """Find new and renamed files before more of another one is read: a new one may be a copy of what is there."""
        self._find_new()
        self._see_new()
        self._judge_new()

    def look(self) -> list[TailedFile]:
        """Find new, renamed and removed files, and return which have something to read, the oldest first."""
        self._find_new()
        self.away = {inode: at for inode, at in self.away.items() if self._is_away(at.path)}
        for file in list(self._files.values()):
            self._see(file)
        self._release_copies()
        self._judge_new()
        ready = [f for f in self._files.values() if not f.copy_of and f.size_bytes != f.mark.position]
        return sorted(ready, key=lambda f: (f.modified, f.path))

    @property
    def are_judged(self) -> bool:
        """Whether every file was read, or waits for good; one that may be a copy in the making does neither."""
        return not any(f.is_new and f.copy_of for f in self._files.values())

    def _find_new(self) -> None:
        lists = [group.files() for group in self._groups]
        if self._lists is not None and all(map(operator.is_, lists, self._lists)):
            return  # it is called for each piece that is read: that must not cost more with each file
        self._lists = lists
        found = self._by_inode(lists, self._files)
        if found.keys() != self._listed.keys() or any(
            self._files[i].path != f.path for i, f in found.items() if i in self._files
        ):
            self._rename(found)

    def _rename(self, found: dict[int, Found]) -> None:
        for inode, f in found.items():
            if (known := self._files.get(inode)) is None:
                self._admit(f, at_end=False)
            else:
                known.renamed(f.path)
        for inode in self._listed.keys() - found.keys():
            gone = self._files.get(inode)
            if gone is not None and not gone.is_open and (place := self._find(inode)) is not None:
                gone.renamed(place[0])
        self._listed = found

    def _admit(self, found: Found, *, at_end: bool) -> None:
        """Begin with a file that is not known: at its beginning or end, if it does not turn out to be a copy.

        One that was away is read on.
        """
        at = self.away.pop(found.inode, None)
        if at is not None and (at.mark.tail_bytes or at.path == found.path):
            self._check(self._begin_at(found.path, found.group, at))
            return
        file = TailedFile(found.path, found.group, Mark(found.inode, 0), is_new=True)
        try:
            stat = os.stat(found.path)
            file.size_bytes, file.modified = stat.st_size, stat.st_mtime
            if at_end:
                file.mark = file.mark_at(file.size_bytes)
        except (FileNotFoundError, StorageError) as e:
            _log.of(self._name, file=found.path).warning("%s", e)
        self._files[found.inode] = file
        if self._skip_to_end:  # after a restart it would be skipped to the end that it has then
            self.has_unsaved = True

    # ── copies ──────────────────────────────────────────────────────────────────────────────

    def _judge_new(self) -> None:
        """Decide for each new file that has bytes whether it is a copy; of two equal ones, the later one is."""
        new = [f for f in self._files.values() if f.is_new and f.size_bytes]
        self._firsts = {}
        for file in sorted(new, key=lambda f: (f.modified, f.path), reverse=True):
            try:
                self._judge(file)
            except (FileNotFoundError, StorageError) as e:
                _log.of(self._name, file=file.path).warning("%s", e)

    def _judge(self, file: TailedFile) -> None:
        before = self._files.get(file.copy_of)
        if before is not None and self._is_being_made(file) and file.is_part_of(before):
            return
        file.copy_of, file.is_new = 0, False
        original = self._original_of(file)
        if original is None and self._is_being_made(file):
            whole = self._whole_of(file)
            # The other file may have been truncated in between: then the copy is complete now.
            original = self._original_of(file) if whole is None else whole
            file.is_new = whole is not None
        if original is None:
            return
        file.copy_of = original.mark.inode
        if before is None:
            _log.of(self._name, file=file.path).info(
                "%s begins with all that was read of %s, or is a part of it, so it is taken for a copy: it waits "
                "until that is truncated or gone",
                file.path,
                original.path,
            )

    def _is_being_made(self, file: TailedFile) -> bool:
        return self._now() - file.modified < _COPY_SECONDS

    def _original_of(self, file: TailedFile) -> TailedFile | None:
        """Return another file, where this one begins with all that was read of it."""
        heads = {f.mark.head_bytes for f in self._files.values() if f.mark.tail_bytes}
        if not heads:
            return None
        first = file.read_at(0, HEAD_BYTES)
        sums = {(size, crc32(first[:size])) for size in heads if size <= len(first)}
        alike = (f for f in self._others(file) if (f.mark.head_bytes, f.mark.head) in sums)
        return next((f for f in alike if file.continues(f.mark)), None)

    def _whole_of(self, file: TailedFile) -> TailedFile | None:
        """Return the file that begins with all that is in a file."""
        first = self._first_of(file)
        for other in self._others(file):
            size = min(len(first), len(begin := self._first_of(other)))
            if size and first[:size] == begin[:size] and file.is_part_of(other):
                return other
        return None

    def _first_of(self, file: TailedFile) -> bytes:
        """Return the first bytes of a file, read once for all new files of a look; none of one that is gone."""
        found = self._firsts.get(file.mark.inode)
        if found is None:
            was_open = file.is_open
            try:
                file.open()
            except (FileNotFoundError, StorageError):
                found = b""
            else:
                found = file.read_at(0, HEAD_BYTES)
            if not was_open:
                file.close()
            self._firsts[file.mark.inode] = found
        return found

    def _others(self, file: TailedFile) -> Iterator[TailedFile]:
        """Yield the files that a file may be a copy of; a rotation that renamed one of them gave its name to this."""
        return (f for f in self._files.values() if f is not file and not f.copy_of and file.path not in f.names)

    def _see_new(self) -> None:
        for file in [f for f in self._files.values() if f.is_new]:
            self._see(file)

    def _see(self, file: TailedFile) -> None:
        """Look at a file's size, and forget one that is gone and read to its end, or was missing twice.

        The first time it may be in the middle of a rename. Then its directory changes, and the next look lists it.
        """
        here = file.mark.inode in self._listed
        try:
            stat = os.stat(file.path) if here else os.fstat(file.open())
        except StorageError:  # it is there, and can't be read now
            return
        except FileNotFoundError:
            if file.is_missing:
                self._forget(file, may_return=True)
            file.is_missing = True
            return
        file.is_missing = False
        if stat.st_ino != file.mark.inode:
            return  # renamed in this moment: the next look finds it
        is_idle = self._now() - stat.st_mtime >= self._idle_seconds
        file.size_bytes, file.modified = stat.st_size, stat.st_mtime
        if file.size_bytes == file.mark.position and (is_idle or stat.st_nlink == 0):
            file.close()
            if not here:
                self._forget(file, may_return=stat.st_nlink > 0)

    def _forget(self, file: TailedFile, *, may_return: bool) -> None:
        file.close()
        if may_return and not file.copy_of and self._is_away(file.path):
            self.away[file.mark.inode] = FilePosition(file.path, file.mark)
        self._files.pop(file.mark.inode, None)
        self._release(file)

    def truncated(self, file: TailedFile) -> None:
        """Read a file from its beginning, and the rest of what it was from its copy, if there is one."""
        self._look_for_copies()
        self._release(file)
        _log.of(self._name, file=file.path).info("%s was truncated; it is read from its beginning", file.path)
        file.mark = Mark(file.mark.inode, 0)
        file.size_bytes = os.fstat(file.open()).st_size

    def _look_for_copies(self) -> None:
        for group in self._groups:
            for f in group.files(again=True):
                if f.inode not in self._files:
                    self._admit(f, at_end=False)
                    self._listed[f.inode] = f
        self._see_new()
        self._judge_new()

    def _release(self, original: TailedFile) -> None:
        """Let the copies of a file be read from where the file was: it is truncated, or gone."""
        for file in self._files.values():
            if file.copy_of == original.mark.inode:
                self._read_on(file, original.mark)
                file.copy_of, file.is_new = 0, False
                self.has_unsaved = True

    def _read_on(self, copy: TailedFile, mark: Mark) -> None:
        """Let a copy be read from where its original was. It may be shorter, if that grew before it was truncated."""
        try:
            size = os.fstat(copy.open()).st_size
            if size >= mark.position:
                if not copy.is_new or copy.continues(mark):
                    copy.mark = replace(mark, inode=copy.mark.inode)
            elif size >= mark.head_bytes and copy.begins_as(mark):
                copy.mark = copy.mark_at(size)
        except (FileNotFoundError, StorageError) as e:
            _log.of(self._name, file=copy.path).warning("%s", e)

    def _release_copies(self) -> None:
        for file in self._files.values():
            if file.copy_of and file.copy_of not in self._files:
                file.copy_of, file.is_new = 0, False
                self.has_unsaved = True
