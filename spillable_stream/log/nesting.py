"""No channel is inside of another one's directories, or of a backup: what moves or removes that would take it along.

A directory is a channel's if a file in it proves that: a `channel.json` or an `owner.json` with a channel's UUID and a
checksum that fits. A file that is damaged, out of reach or another program's proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from spillable_stream.errors import OptionError, SpillableError, StorageError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log.identity_file import backup_at, proven_channel
from spillable_stream.log.layout import IDENTITY
from spillable_stream.log.owner_file import OWNER_FILE, read_owner
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "ChannelDirectory",
    "PlannedDirectories",
    "channel_around",
    "require_apart",
    "require_each_apart",
    "require_outside",
]


class ChannelDirectory(NamedTuple):
    """A directory that a file in it proves to be a channel's.

    Args:
        path: the directory.
        channel: the channel's UUID.
        home: where the channel was, if only an owner file says whose the directory is; None: the channel is here.
    """

    path: Path
    channel: str
    home: str | None = None

    def advice(self) -> str:
        """Return what to do about what an error says of it, if that may be all that is left of the channel."""
        if self.home is None:
            return ""
        return f". {self.path / OWNER_FILE} says so: remove it if the channel at {self.home} is gone"


class PlannedDirectories(NamedTuple):
    """The directories on this host that a new channel and its spool will have.

    Args:
        home: what tells the channel from others: its directory without links, or its address in a store.
        directories: all of them, its own included.
    """

    home: object
    directories: list[Path]


def require_apart(fs: FileSystem, path: Path, directories: Collection[Path] = ()) -> None:
    """Refuse a new channel if a directory of it is inside of another one's or a backup, or has one right in it.

    A channel that is deeper in a directory is not searched for, and a link to one does not count.

    Args:
        fs: the file system.
        path: the channel's directory.
        directories: its other directories. Whose they are themselves is not looked at; what a creation that was cut
            short has left in them is its own.

    Raises:
        OptionError: it is so; the message names both.
    """
    places = sorted({fs.real_path(directory) for directory in (path, *directories)})
    _require_outside_of_backups(fs, places)
    above = {directory for place in places for directory in place.parents}.difference(places)
    owned = {directory: found for directory in above if (found := _proven(fs, directory)) is not None}
    outer = [(place, owned[directory]) for place in places for directory in place.parents if directory in owned]
    inner = [(place, found) for place in places for found in _held(fs, place) if found.path not in places]
    # Later: a creation under way claims its own directory first.
    own = {found.channel for place in places if (found := _proven(fs, place)) is not None}
    for place, found in outer:
        if found.channel not in own:
            raise _inside(place, found)
    for place, found in inner:
        if found.channel not in own:
            raise OptionError(
                f"{place} holds {found.path}, another channel's directory: give a place beside that, or move it away"
                f"{found.advice()}"
            )


def _require_outside_of_backups(fs: FileSystem, places: Iterable[Path]) -> None:
    for place in places:
        if (backup := next((above for above in place.parents if backup_at(fs, above)), None)) is not None:
            raise OptionError(f"{place} is inside of {backup}, a backup: give a place outside of it")


def require_each_apart(fs: FileSystem, channels: Sequence[PlannedDirectories]) -> None:
    """Refuse new channels if one has a directory that is another's as well, or is inside of another's.

    Args:
        fs: the file system.
        channels: the directories of each. One may be there several times.

    Raises:
        OptionError: it is so; the message names both.
    """
    homes: dict[Path, object] = {}
    for home, directories in channels:
        for directory in directories:
            if (other := homes.setdefault(fs.real_path(directory), home)) != home:
                raise OptionError(
                    f"{directory} would be a directory of two channels, {other} and {home}: give each its own"
                )
    for place, home in homes.items():
        for outer in place.parents:
            if (other := homes.get(outer, home)) != home:
                raise OptionError(
                    f"{place} would be inside of {outer}, a directory of the channel {other}: give one outside of it"
                )


def require_outside(fs: FileSystem, path: Path, shown: object, *, may_be_channel: bool = False) -> None:
    """Refuse to write something else to a directory of a channel, or inside of one or of a backup.

    The next backup to the same place would remove what it does not know there.

    Args:
        fs: the file system.
        path: where it would be.
        shown: what users call that.
        may_be_channel: whether a channel is created there, which somebody else may just have done.

    Raises:
        OptionError: it would be there.
    """
    found = _proven(fs, fs.real_path(path))
    if found is not None and not (may_be_channel and found.home is None):
        raise OptionError(f"{shown} is a channel's directory: give a place outside of it{found.advice()}")
    _require_outside_of_backups(fs, [fs.real_path(path)])
    if (found := channel_around(fs, path)) is not None:
        raise _inside(shown, found)


def channel_around(fs: FileSystem, path: Path) -> ChannelDirectory | None:
    """Return the nearest directory above a path that is a channel's, or None.

    Args:
        fs: the file system.
        path: the path, which need not exist.
    """
    return next(_around(fs, fs.real_path(path)), None)


def _inside(shown: object, outer: ChannelDirectory) -> OptionError:
    return OptionError(
        f"{shown} is inside of {outer.path}, a channel's directory: give a place outside of it{outer.advice()}"
    )


def _around(fs: FileSystem, place: Path) -> Iterator[ChannelDirectory]:
    return (found for directory in place.parents if (found := _proven(fs, directory)) is not None)


def _held(fs: FileSystem, place: Path) -> Iterator[ChannelDirectory]:
    try:
        names = fs.list_directories(place)
    except StorageError:  # whoever uses it says so; a channel does without its backups
        return
    for name in names:
        if (found := _proven(fs, place / name)) is not None:
            yield found


def _proven(fs: FileSystem, directory: Path) -> ChannelDirectory | None:
    """Return whose a directory is, as its files prove, or None."""
    with suppress(FileNotFoundError, SpillableError, *NONSENSE):
        return ChannelDirectory(directory, proven_channel(fs.read_file(directory / IDENTITY)))
    with suppress(SpillableError):
        if (owner := read_owner(fs, directory)) is not None:
            return ChannelDirectory(directory, owner.channel, owner.home)
    return None
