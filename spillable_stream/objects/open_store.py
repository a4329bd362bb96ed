"""Opens the store that a location is in."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.errors import OptionError
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.location import DIRECTORY, Location
from spillable_stream.objects.store import Store
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["open_store"]


def open_store(location: Location, *, has_answered: bool = False) -> Store:
    """Return the store at a location. No request is sent yet.

    Args:
        location: the root.
        has_answered: whether it is known to have answered before (`CloudStore`).

    Raises:
        ImportError: the location is in a cloud, and obstore is not installed.
        OptionError: no directory can be there.
    """
    if location.scheme != DIRECTORY:
        return CloudStore(location, has_answered=has_answered)
    directory = Path(location.prefix)
    if why := FileSystem().why_impossible(directory / IDENTITY):
        raise OptionError(f"no channel or backup can be at {directory}: {why}; give the path of a directory")
    return DirectoryStore(directory)
