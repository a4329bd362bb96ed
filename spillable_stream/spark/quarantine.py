"""``onCorruption = quarantine``: a read continues without the events that can't be read.

::

    DIR/quarantine/events-FIRST-LAST/report.json       file, offset, size in bytes and IDs
    DIR/quarantine/events-FIRST-LAST/NAME-OFFSET       the damaged bytes, 16 MiB of them at most
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from spillable_stream.errors import NotAChannelError, SpillableError
from spillable_stream.log.layout import Layout
from spillable_stream.log.salvage import Unreadable
from spillable_stream.spark.channel_pool import visit
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["not_quarantined", "quarantine"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"events-(\d+)-(\d+)\Z")
_MOST_BYTES = 16 << 20


def quarantine(fs: FileSystem, layout: Layout, damage: Unreadable) -> None:
    """Keep the damaged bytes, and report the events as lost, to every group and to `Channel.stats`.

    A failure, for example on a host other than the channel's, is only logged.

    Args:
        fs: the file system.
        layout: the channel's paths.
        damage: the events that can't be read, and the location of their bytes.
    """
    directory = layout.path / "quarantine" / f"events-{damage.first_id}-{damage.last_id}"
    report = {
        "path": str(damage.path),
        "offset": damage.offset,
        "size": damage.size,
        "events": [damage.first_id, damage.last_id],
    }
    try:
        fs.make_directory(directory)
        file = fs.open(damage.path, readonly=True)
        try:
            data = file.read(damage.offset, min(damage.size, _MOST_BYTES))
        finally:
            file.close()
        fs.write_atomically(directory / f"{damage.path.name}-{damage.offset}", data)
        fs.write_atomically(directory / "report.json", json.dumps(report, indent=1).encode() + b"\n")
        with visit(str(layout.path), create=False) as channel:
            if channel.uuid != layout.channel:
                raise NotAChannelError(f"there is another channel at {layout.path} by now")
            channel.port().report_lost(damage.first_id, damage.last_id)
    except (SpillableError, FileNotFoundError) as e:
        _log.warning("%s: the events %d to %d are not put into quarantine: %s", layout.path, *damage[:2], e)


def not_quarantined(fs: FileSystem, path: Path, lost: list[Range]) -> list[Range]:
    """Return ranges of lost events, without those that a read put into quarantine.

    Args:
        fs: the file system.
        path: the channel's directory.
        lost: the ranges.
    """
    if not lost:
        return []
    names = (_NAME.match(name) for name in fs.list(path / "quarantine"))
    known = RangeSet((int(m[1]), int(m[2])) for m in names if m)
    return [r for first, last in lost for r in known.gaps(first, last)]
