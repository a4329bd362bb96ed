"""The words for an address that is not a channel's: of a backup, a channel one level up or down, or slots of one.

It costs requests, so only people are told, and whoever creates a channel or a backup. Nothing that fails here is an
error: the address is wrong whatever is near it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from spillable_stream.errors import NotAChannelError, OptionError, SpillableError
from spillable_stream.format.file_names import BACKUPS, COPIES
from spillable_stream.log.identity_file import of_a_backup
from spillable_stream.objects.checkpoints import CHECKPOINTS
from spillable_stream.objects.identity import IDENTITY, QUERIES, WORKERS, no_channel, read_identity
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.salvage import QUARANTINE
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.staged_object import SEGMENTS
from spillable_stream.objects.store import Store
from spillable_stream.shown_value import command

__all__ = ["no_channel_but", "refuse_leftovers", "require_outside_in_store"]

_FOLDERS = {LOG, CHECKPOINTS, SEGMENTS, QUERIES, WORKERS, QUARANTINE}
_FOLDERS_OF_BACKUPS = {BACKUPS, *COPIES}
_MOST_LOOKS = 10
_MOST_LISTED = 1000  # one request; whoever gives a wrong address may have millions of objects there


def no_channel_but(store: Store) -> NotAChannelError:
    """Return the refusal of a root that holds no channel, with what is there, or near it."""
    with suppress(SpillableError):
        if backup := _backup_in(store):
            return no_channel(store, backup)
    with suppress(SpillableError):
        if (outer := _channel_around(Location.parse(store.root))) is not None:
            return no_channel(store, f", and is inside of a channel: give {outer}")
    with suppress(SpillableError):
        if (inner := _channel_below(store, Location.parse(store.root))) is not None:
            return no_channel(store, f", but is above a channel: give {inner}, or another one there")
    return no_channel(store)


def require_outside_in_store(location: Location) -> None:
    """Refuse a new channel or backup in a folder of another one, whose listings would find it.

    Raises:
        OptionError: it would be there.
    """
    if (outer := _channel_around(location)) is not None:
        raise OptionError(f"{location} is inside of {outer}, a channel: give a place outside of it")
    if (outer := _owner_around(location, _FOLDERS_OF_BACKUPS, _is_backup)) is not None:
        raise OptionError(f"{location} is inside of {outer}, a backup: give a place outside of it")


def refuse_leftovers(store: Store, location: Location) -> None:
    """Refuse a place with a backup, or slots of a channel that is no more, to which a new one would come and stop.

    Slot 0 alone is a channel whose creation did not end; with others behind it, one that has lost its identity only.

    Raises:
        NotAChannelError: it is such a place.
        OptionError: a channel is in the folder of slots.
        StoreError: the store refused or failed.
    """
    first, is_begun = "", False
    for info in store.list(LOG):
        if info.key == f"{LOG}{IDENTITY}":
            raise OptionError(
                f"{location} holds {location}/{LOG.rstrip('/')}, another channel: give that, or a place beside it"
            )
        first = min(first or info.key, info.key)
        is_begun = is_begun or info.key == slot_key(0)
    if first and not is_begun:
        raise NotAChannelError(
            f"{location} has no {IDENTITY}, but slots of a channel that was removed, such as {first}: close the "
            f"handles that may still write to it, and remove what is under {store.root}; or choose another place. "
            f"'{command('repair', location)}' finds out whether only {IDENTITY} is missing"
        )
    if backup := _backup_in(store):
        raise NotAChannelError(f"{location} is not a channel{backup}; choose another place")


def _channel_around(location: Location) -> Location | None:
    """Return the channel that has an address in one of its folders."""
    return _owner_around(location, _FOLDERS, _is_channel)


def _owner_around(location: Location, folders: set[str], owns: Callable[[Location], bool]) -> Location | None:
    """Return the nearest root that has an address in one of its folders."""
    path = PurePosixPath(location.prefix)
    found = (folder for folder in (path, *path.parents) if f"{folder.name}/" in folders and len(folder.parts) > 1)
    return next(filter(owns, (replace(location, prefix=str(folder.parent)) for folder in found)), None)


def _channel_below(store: Store, location: Location) -> Location | None:
    """Return a channel right below an address, if the first objects of a listing lead to one."""
    names = {info.key.partition("/")[0] for info in islice(store.list(""), _MOST_LISTED) if "/" in info.key}
    below = (replace(location, prefix=f"{location.prefix}/{name}") for name in sorted(names)[:_MOST_LOOKS])
    return next(filter(_is_channel, below), None)


def _backup_in(store: Store) -> str:
    """Return what `of_a_backup` does of a root, if a listing's first objects show it; raises what the store raises."""
    return of_a_backup(store.root, (info.key for info in islice(store.list(BACKUPS), _MOST_LISTED)))


def _is_backup(location: Location) -> bool:
    with suppress(SpillableError):
        return bool(_backup_in(open_store(location)))
    return False


def _is_channel(location: Location) -> bool:
    with suppress(SpillableError):
        return read_identity(open_store(location)) is not None
    return False
