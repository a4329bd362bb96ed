"""Where a tailing source keeps its positions: Flume's position file, and one of its own beside it.

Flume's is a JSON array of ``{inode, pos, file}``; it has no place for more. The one beside it, with the suffix
``.marks``, has what tells a file from another one, and the number of the last batch that is in it. Both are replaced
as a whole: a new file is written and synced, and renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from zlib import crc32

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.flow.durable_file import read_file, replace_file
from spillable_stream.flow.sources.tailed_file import Mark
from spillable_stream.format.packing import NONSENSE

__all__ = ["Place", "PositionFile", "Positions"]


_FIELDS = tuple(field.name for field in fields(Mark))


@dataclass(frozen=True, slots=True)
class Place:
    """A file and how far it was read.

    Args:
        path: where it was.
        mark: how far it was read.
    """

    path: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Positions:
    """All positions of a source.

    Args:
        places: each file's, by inode.
        number: the number of the last batch whose end they are; 0 where no batch was numbered.
        only_flume: whether they are of Flume's own file, which knows no bytes: a file counts if inode and path match.
    """

    places: Mapping[int, Place]
    number: int = 0
    only_flume: bool = False


class PositionFile:
    """Reads and replaces the position file of a source, and of no other one.

    Args:
        path: Flume's file.

    Attributes:
        source: the source's name; "" for none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source: str = ""
        self.path: Path = Path(path).expanduser()
        self.marks: Path = self.path.with_name(self.path.name + ".marks")

    def read(self) -> Positions:
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
        return Positions({}) if flume is None else _flume(flume, self.path)

    def write(self, positions: Positions) -> None:
        """Replace both files, durably.

        Raises:
            StorageError: the disk refused, or the file is another source's; the old files are there.
        """
        if (last := read_file(self.marks)) is not None:
            self._require_own(last)
        flume, before = _as_flume(positions), read_file(self.path)
        entries = [_entry(place) for place in positions.places.values()]
        # A crash between the two leaves Flume's old file, so ours knows both.
        written = [crc32(flume), *([] if before is None else [crc32(before)])]
        own = {"version": 1, "number": positions.number, "flume": written, "files": entries}
        if self.source:
            own["source"] = self.source
        replace_file(self.marks, json.dumps(own).encode())
        replace_file(self.path, flume)

    def _require_own(self, data: bytes) -> None:
        """Refuse the file of another source: each would read again, after a restart, what the other one forgot."""
        try:
            found = json.loads(data).get("source", self.source)
        except NONSENSE as e:
            raise _damaged(self.marks, e) from e
        if found != self.source:
            raise StorageError(
                f"{self.path} is the position file of {found}: give {self.source} a positionFile of its own. "
                f'If it is the same source under a new name, replace the name in the entry "source" of {self.marks}'
            )


def _entry(place: Place) -> dict[str, object]:
    """Return a place as our file has it. `asdict` takes as long as all the rest of a write of 1,000 files."""
    return {"file": place.path} | {name: getattr(place.mark, name) for name in _FIELDS}


def _as_flume(positions: Positions) -> bytes:
    entries = [{"inode": p.mark.inode, "pos": p.mark.position, "file": p.path} for p in positions.places.values()]
    return json.dumps(entries).encode()


def _own(data: bytes, path: Path) -> tuple[Positions, list[int]]:
    """Return the positions, and the checksums of Flume's files that were written with them or before."""
    try:
        found = json.loads(data)
        places = {}
        for entry in found["files"]:
            file = entry.pop("file")
            places[entry["inode"]] = Place(file, Mark(**entry))
        return Positions(places, found["number"]), found["flume"]
    except NONSENSE as e:
        raise _damaged(path, e) from e


def _flume(data: bytes, path: Path) -> Positions:
    try:
        entries = json.loads(data)
        places = {int(e["inode"]): Place(str(e["file"]), Mark(int(e["inode"]), int(e["pos"]))) for e in entries}
    except NONSENSE as e:
        raise _damaged(path, e) from e
    return Positions(places, only_flume=True)


def _damaged(path: Path, e: Exception) -> CorruptionError:
    return CorruptionError(
        f"the position file is damaged ({e!r}). Move it away to read every file from its beginning, or put a copy back",
        str(path),
    )
