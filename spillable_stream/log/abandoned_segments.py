"""Abandoned segments: what was staged and no transaction will adopt, and what was adopted and nobody will take."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, file_seed, parse_header, payload_matches
from spillable_stream.format.packing import MALFORMED, unpack
from spillable_stream.log.layout import Layout
from spillable_stream.log.spare_segments import LeavingSegments
from spillable_stream.log.staged_file import Age, uptime_seconds
from spillable_stream.names import LOCAL_OWNER
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["remove_abandoned_segments"]


def remove_abandoned_segments(
    fs: FileSystem,
    layout: Layout,
    live: set[str],
    committed: dict[str, int],
    ttl_seconds: float,
    owner: str = "",
    most_spare_bytes: int = 0,
) -> None:
    """Remove the segments that no transaction will ever adopt, nor any group still take; the commit lock is held.

    Args:
        fs: the file system.
        layout: where the channel's files are.
        live: segments with events that are still in the channel.
        committed: each Spark query's last committed batch.
        ttl_seconds: how long a query's staging is kept when nothing says that it is over; no clock that is set
            while the machine is up makes it shorter.
        owner: look only at this owner's; by default at all.
        most_spare_bytes: how many bytes all spare files may have; some of the segments become spares.
    """
    with LeavingSegments(fs, layout, most_spare_bytes) as leaving:
        for name in set(layout.segments(fs)) - live:
            of, batch = seed_name(name).split(".")[1:3]
            if owner and of != owner:
                continue
            path = layout.segment_file(name)
            with contextlib.suppress(FileNotFoundError):  # its writer was faster
                if of in committed and int(batch) <= committed[of]:
                    leaving.add(path)
                elif of == LOCAL_OWNER or _age_seconds(fs, layout, path) > ttl_seconds:
                    leaving.add_unless_locked(path)
        for directory in layout.data_dirs:
            for name in fs.list(directory):
                if name.startswith("segment.") and name.endswith(".tmp"):  # a copy is created under the same lock
                    fs.remove(directory / name)


def _age_seconds(fs: FileSystem, layout: Layout, path: Path) -> float:
    """Return how old a segment is, by a clock that nobody sets if it is of this boot of the machine.

    No query of an earlier boot is alive: what it staged can go by the time of the file, right or wrong.
    """
    made = _made(fs, path, file_seed(layout.channel, seed_name(path.name)))
    if made and made["boot"] == boot_id().hex() and (age_seconds := uptime_seconds() - made["up"]) >= 0:
        return age_seconds
    return time.time() - fs.modified_seconds(path)


def _made(fs: FileSystem, path: Path, seed: int) -> Age | None:
    """Return when a segment was created, None if its header can't be read or, of an earlier version, does not say."""
    try:
        with contextlib.closing(fs.open(path, readonly=True)) as file:
            header = parse_header(file.read(0, HEADER_SIZE_BYTES), 0, seed)
            payload = file.read(HEADER_SIZE_BYTES, min(header.length, file.size())) if header else b""
        if not header or not payload_matches(header, payload):
            return None
        said = unpack(payload)
        return {"boot": said["boot"], "up": float(said["up"])}
    except (StorageError, *MALFORMED):
        return None
