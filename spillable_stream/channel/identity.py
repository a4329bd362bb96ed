"""Which channel is at a path, told without opening it."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.errors import SpillableError
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["uuid_at"]


def uuid_at(path: str) -> str | None:
    """Return the UUID of the channel at a path; None if there is none, or none that can be read.

    Args:
        path: the path with which the channel is opened.
    """
    try:
        return read_identity(FileSystem(), Path(path)).channel
    except (SpillableError, OSError):
        return None
