"""The quarantine of a read: what a read past damage keeps of the events that it can't read.

::

    DIR/quarantine/events-FIRST-LAST/report.json       file, offset, size in bytes and IDs
    DIR/quarantine/events-FIRST-LAST/NAME-OFFSET       the damaged bytes, 16 MiB of them at most

A repair has its own directories beside these (`spillable_stream.integrity.repair_copies`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from spillable_stream.log.salvage import Unreadable
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["keep_damaged", "not_quarantined"]

_NAME = re.compile(r"events-(\d+)-(\d+)\Z")
_MOST_BYTES = 16 << 20


def keep_damaged(fs: FileSystem, path: Path, damage: Unreadable) -> None:
    """Keep the damaged bytes and a report.

    Args:
        fs: the file system.
        path: the channel's directory.
        damage: the events that can't be read, and the location of their bytes.

    Raises:
        FileNotFoundError: the damaged file is gone.
        StorageError: the file system refused.
    """
    directory = path / "quarantine" / f"events-{damage.first_id}-{damage.last_id}"
    report = {
        "path": str(damage.path),
        "offset": damage.offset,
        "size": damage.size,
        "events": [damage.first_id, damage.last_id],
    }
    fs.make_directory(directory)
    fs.sync_parents(directory)  # another one may have been killed before it did
    file = fs.open(damage.path, readonly=True)
    try:
        data = file.read(damage.offset, min(damage.size, _MOST_BYTES))
    finally:
        file.close()
    fs.write_atomically(directory / f"{damage.path.name}-{damage.offset}", data)
    fs.write_atomically(directory / "report.json", json.dumps(report, indent=1).encode() + b"\n")


def not_quarantined(fs: FileSystem, path: Path, lost: Iterable[Range]) -> list[Range]:
    """Return ranges of lost events, without those that a read put into quarantine."""
    wanted = list(lost)
    if not wanted:
        return []
    names = (_NAME.match(name) for name in fs.list(path / "quarantine"))
    known = RangeSet((int(m[1]), int(m[2])) for m in names if m)
    return [r for first, last in wanted for r in known.gaps(first, last)]
