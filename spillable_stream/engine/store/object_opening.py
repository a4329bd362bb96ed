"""Creates and opens channels in object stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from spillable_stream.engine.store.last_known import LastKnown
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.errors import SpillableError
from spillable_stream.log.nesting import require_apart, require_outside
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.identity import create_identity, no_channel, read_identity
from spillable_stream.objects.location import DIRECTORY, Location
from spillable_stream.objects.metered_store import MeteredStore
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.self_test import require_sound
from spillable_stream.objects.store import Store
from spillable_stream.objects.wrong_place import no_channel_but, refuse_leftovers, require_outside_in_store
from spillable_stream.state.image import SmallImage
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["check_object_creation", "ensure_object_channel", "object_identity", "open_object_engine", "require_place"]

_CREATION_SECONDS = 30.0


def ensure_object_channel(
    location: Location, new: Callable[[], SmallImage] | None, prepare: Callable[[], None] = lambda: None
) -> str:
    """Create a channel unless there is one; any number of processes may try at once, on any hosts.

    Args:
        location: where.
        new: returns the state with which it begins, or raises; None: do not create it.
        prepare: makes what it needs elsewhere, or raises; called when the store has shown that it lets one be created.

    Returns:
        Its UUID.

    Raises:
        NotAChannelError: there is none, and ``new`` is None; or a channel of a disk is there, or what is left of one.
        StorageError: the store refused or failed.
        UnsafeStoreError: the store does not create objects only if they are absent.
    """
    store = open_store(location)
    if (channel := read_identity(store)) is not None:
        return channel
    if new is None:
        raise no_channel_but(store)
    state = new()
    _require_fit(store, location)
    try:
        prepare()
    except SpillableError:
        if (channel := read_identity(store)) is not None:  # another process has created it meanwhile, and what it needs
            return channel
        raise
    return create_identity(store, state, f"{os.uname().nodename} pid {os.getpid()}", Backoff(_CREATION_SECONDS))


def check_object_creation(location: Location) -> None:
    """Refuse a location at which no channel can be created; nothing is created.

    Raises what `ensure_object_channel` raises.
    """
    _require_fit(open_store(location), location)


def _require_fit(store: Store, location: Location) -> None:
    require_place(location)
    refuse_leftovers(store, location)
    require_sound(store)


def require_place(location: Location) -> None:
    """Refuse a new channel in a directory of another one, inside of one, or around one; in a cloud, in its folders.

    Raises:
        OptionError: it would be there.
    """
    if location.scheme == DIRECTORY:
        fs, path = FileSystem(), Path(location.prefix)
        require_outside(fs, path, location, may_be_channel=True)
        require_apart(fs, path)
    else:
        require_outside_in_store(location)


def open_object_engine(
    location: Location,
    lock_timeout_seconds: float,
    *,
    readonly: bool,
    channel: str | None = None,
    cache: DiskCache | None = None,
    known: LastKnown | None = None,
) -> ObjectEngine:
    """Open a channel.

    Args:
        location: where it is.
        lock_timeout_seconds: how long to wait for other threads.
        readonly: whether the channel is only looked at.
        channel: its UUID, as the store said just now; None: the store is asked.
        cache: where what is read is kept on this host; None: nowhere.
        known: what to begin with, without a request; None: the store is asked.

    Raises:
        NotAChannelError: there is none.
        CorruptionError: it is damaged.
        StorageError: the store refused or failed.
    """
    found = open_store(location)
    if known is not None:
        channel = known.channel
    elif channel is None:
        channel = read_identity(found)
    if channel is None:
        raise no_channel_but(found)
    store = MeteredStore(found, location.scheme)
    log = ObjectLog(
        store,
        location,
        channel,
        lock_timeout_seconds,
        readonly=readonly,
        disk_cache=cache,
        known=None if known is None else known.checkpoint,
    )
    return ObjectEngine(log, store.usage)


def object_identity(location: Location) -> str:
    """Return the UUID of the channel at a location, without opening it.

    Raises:
        NotAChannelError: there is none.
        StorageError: the store refused or failed.
    """
    store = open_store(location)
    if (found := read_identity(store)) is None:
        raise no_channel(store)
    return found
