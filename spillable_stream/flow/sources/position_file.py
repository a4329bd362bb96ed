"""Where a tailing source keeps its positions: Flume's position file, and one of its own beside it.

Flume's is a JSON array of ``{inode, pos, file}``; it has no place for more. The one beside it, with the suffix
``.marks``, has what tells a file from another one, and the number of the last batch that is in it. Both are replaced
as a whole: a new file is written and synced, and renamed. In between, positions that have changed are added to the
second one, with one sync::

    {"number": 7, "files": [all positions], …}
    CRC-32 {"number": 9, "files": [those that have changed]}
    CRC-32 {"number": 20, "files": [those that have changed]}

A crash may tear the last line: then the lines before it count. Flume's file gets these positions when it is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from zlib import crc32

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.flow.descriptor import Descriptor
from spillable_stream.flow.durable_file import read_file, replace_file
from spillable_stream.flow.slot_file import write_over
from spillable_stream.flow.sources.tailed_file import Mark
from spillable_stream.format.packing import NONSENSE
from spillable_stream.system_errors import storage_error

__all__ = ["FilePosition", "PositionFile", "SavedPositions"]

_MOST_ADDED_BYTES = 64 << 10  # before the file is replaced, unless it is larger itself
_FIELDS = tuple(field.name for field in fields(Mark))


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A file and how far it was read.

    Args:
        path: where it was.
        mark: how far it was read.
    """

    path: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class SavedPositions:
    """All positions of a source.

    Args:
        files: each file's, by inode.
        number: the number of the last batch whose end they are; 0 where no batch was numbered.
        only_flume: whether they are of Flume's own file, which knows no bytes: a file counts if inode and path match.
    """

    files: Mapping[int, FilePosition]
    number: int = 0
    only_flume: bool = False


class PositionFile:
    """Reads and replaces the position file of a source, and of no other one.

    Args:
        path: Flume's file.

    Attributes:
        source: the source's name; "" for none.
        has_added: whether the file beside Flume's has positions that Flume's does not have.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source: str = ""
        self.has_added: bool = False
        self.path: Path = Path(path).expanduser()
        self.marks: Path = self.path.with_name(self.path.name + ".marks")
        self._descriptor: Descriptor | None = None  # of the file that was written last, while it can be added to
        self._end = self._most_bytes = 0

    def read(self) -> SavedPositions:
        """Return the positions; none if there is no file.

        Where Flume's file is not one that was written here, Flume has run since: then it counts.

        Raises:
            CorruptionError: a file is damaged.
            StorageError: it can't be read, or is another source's.
        """
        own, flume = read_file(self.marks), read_file(self.path)
        if own is not None:
            self._require_own(own)
            positions, written = _own(own, self.marks)
            if flume is None or crc32(flume) in written:
                return positions
        return SavedPositions({}) if flume is None else _flume(flume, self.path)

    def write(self, positions: SavedPositions) -> None:
        """Replace both files, durably.

        Raises:
            StorageError: the disk refused, or the file is another source's; the old files are there.
        """
        self.close()
        if (last := read_file(self.marks)) is not None:
            self._require_own(last)
        flume, before = _as_flume(positions), read_file(self.path)
        # A crash between the two leaves Flume's old file, so ours knows both.
        written = [crc32(flume), *([] if before is None else [crc32(before)])]
        files = [_entry(at) for at in positions.files.values()]
        own: dict[str, object] = {"version": 1, "number": positions.number, "flume": written, "files": files}
        if self.source:
            own["source"] = self.source
        data = json.dumps(own).encode() + b"\n"
        replace_file(self.marks, data)
        self._end, self._most_bytes = len(data), len(data) + max(len(data), _MOST_ADDED_BYTES)
        try:
            self._descriptor = Descriptor(self.marks, os.O_WRONLY)
        except OSError as e:
            raise storage_error(f"can't open {self.marks}", e, "let this user write to it") from e
        replace_file(self.path, flume)
        self.has_added = False

    def add(self, changed: Iterable[FilePosition], number: int) -> bool:
        """Add positions that have changed since the last `write` or `add`, durably, with one sync.

        Args:
            changed: the positions.
            number: the number of the last batch whose end they are.

        Returns:
            Whether they were added. If not, `write` must come first: the file has grown too much, or is another one.

        Raises:
            StorageError: the disk refused; which of the positions a restart finds is not known.
        """
        text = json.dumps({"number": number, "files": [_entry(at) for at in changed]}).encode()
        line = b"%08x %b\n" % (crc32(text), text)
        descriptor = self._descriptor
        if descriptor is None or self._end + len(line) > self._most_bytes:
            return False
        try:
            if not descriptor.is_at(self.marks):
                return False
            write_over(descriptor.number, line, self._end)
        except BaseException as e:
            self.close()  # an interrupt, too, leaves nobody knows what at the end
            if not isinstance(e, OSError):
                raise
            raise storage_error(f"can't write {self.marks}", e, "check the disk") from e
        self._end += len(line)
        self.has_added = True
        return True

    def close(self) -> None:
        """Close the file; all that was written is durable already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                descriptor.close()

    def _require_own(self, data: bytes) -> None:
        """Refuse the file of another source: each would read again, after a restart, what the other one forgot."""
        try:
            found = json.loads(data.partition(b"\n")[0]).get("source", self.source)
        except NONSENSE as e:
            raise _damaged(self.marks, e) from e
        if found != self.source:
            raise StorageError(
                f"{self.path} is the position file of {found}: give {self.source} a positionFile of its own. "
                f'If it is the same source under a new name, replace the name in the entry "source" of {self.marks}'
            )


def _entry(at: FilePosition) -> dict[str, object]:
    """Return a position as our file has it. `asdict` takes as long as all the rest of a write of 1,000 files."""
    return {"file": at.path} | {name: getattr(at.mark, name) for name in _FIELDS}


def _as_flume(positions: SavedPositions) -> bytes:
    entries = [{"inode": p.mark.inode, "pos": p.mark.position, "file": p.path} for p in positions.files.values()]
    return json.dumps(entries).encode()


def _own(data: bytes, path: Path) -> tuple[SavedPositions, list[int]]:
    """Return the positions, and the checksums of Flume's files that were written with them or before."""
    first, *lines = data.split(b"\n")
    texts = [_checked(line) for line in lines]
    whole = texts.index(None) if None in texts else len(texts)
    try:
        if any(texts[whole:]):
            raise ValueError(f"line {whole + 2} is not what was written")
        found = [json.loads(text) for text in (first, *texts[:whole]) if text is not None]
        files = {}
        for entry in (entry for some in found for entry in some["files"]):
            file = entry.pop("file")
            files[entry["inode"]] = FilePosition(file, Mark(**entry))
        return SavedPositions(files, found[-1]["number"]), found[0]["flume"]
    except NONSENSE as e:
        raise _damaged(path, e) from e


def _checked(line: bytes) -> bytes | None:
    """Return what a line adds; None if it is not whole, as the one behind the last line feed."""
    checksum, _, text = line.partition(b" ")
    return text if text and checksum == b"%08x" % crc32(text) else None


def _flume(data: bytes, path: Path) -> SavedPositions:
    try:
        entries = json.loads(data)
        files = {int(e["inode"]): FilePosition(str(e["file"]), Mark(int(e["inode"]), int(e["pos"]))) for e in entries}
    except NONSENSE as e:
        raise _damaged(path, e) from e
    return SavedPositions(files, only_flume=True)


def _damaged(path: Path, e: Exception) -> CorruptionError:
    return CorruptionError(
        f"the position file is damaged ({e!r}). Move it away to read every file from its beginning, or put a copy back",
        str(path),
    )
