"""No channel is inside of another one's directories: a backup, a move or a removal of the outer would take it along."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from spillable_stream.errors import CorruptionError, NotAChannelError, OptionError, SpillableError, StorageError
from spillable_stream.log.identity_file import has_identity, read_identity
from spillable_stream.log.owner_file import OWNER_FILE, read_owner
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["channel_around", "require_apart"]


def require_apart(fs: FileSystem, path: Path, directories: Iterable[Path] = ()) -> None:
    """Refuse a new channel if a directory of it is inside of another channel's, or holds another channel's.

    Args:
        fs: the file system.
        path: the channel's directory.
        directories: its other directories. What a creation that was cut short has left there is its own.

    Raises:
        OptionError: it is so; the message names both.
    """
    places = sorted({fs.real_path(directory) for directory in (path, *directories)})
    held = {place / name: _owner(fs, place / name) for place in places for name in _names(fs, place)}
    own = {None, *(_owner(fs, place) for place in places)}  # later: a creation under way claims its own directory first
    for place in places:
        if (outer := channel_around(fs, place, own)) is not None:
            raise OptionError(f"{place} is inside of {outer}, a channel's directory: give a place outside of it")
    for inner, owner in held.items():
        if owner not in own:
            raise OptionError(
                f"{inner.parent} holds {inner}, another channel's directory: give a place beside that, or move it away"
            )


def _names(fs: FileSystem, directory: Path) -> list[str]:
    try:
        return fs.list(directory)
    except StorageError:  # whoever uses it says so; a channel does without its backups
        return []


def channel_around(fs: FileSystem, path: Path, own: Collection[str | None] = ()) -> Path | None:
    """Return the nearest directory above a path that is a channel's, or None.

    Args:
        fs: the file system.
        path: the path, which need not exist.
        own: the UUIDs of channels that do not count.
    """
    return next((d for d in fs.real_path(path).parents if _owner(fs, d) not in {None, *own}), None)


def _owner(fs: FileSystem, directory: Path) -> str | None:
    """Return the UUID of the channel that a directory belongs to, as its files prove, or None."""
    if fs.exists(directory / OWNER_FILE):
        try:
            if (owner := read_owner(fs, directory)) is not None:
                return owner.channel
        except SpillableError:  # another program's, or out of reach
            pass
    if not has_identity(fs, directory):
        return None
    try:
        return read_identity(fs, directory).channel
    except NotAChannelError as e:
        return None if e.is_missing else f"objects in {directory}"
    except CorruptionError:  # another program's
        return None
    except SpillableError:  # of a later version, or out of reach
        return f"something in {directory}"
