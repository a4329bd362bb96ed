"""Where a channel is, what creates it, and which engine opens it: by the path that a user gives.

The parts that only channels in object stores need are imported with the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.known_state import known_state
from spillable_stream.engine.local.creation import check_creation, create_channel, planned_directories
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.options_by_storage import refuse_unfit_options
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.log.identity_file import has_identity, read_identity
from spillable_stream.log.nesting import PlannedDirectories
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.location import DIRECTORY, Location
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.options import CREATION, defaults
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import SmallImage
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.engine.store.last_known import LastKnown

__all__ = [
    "NewChannel",
    "check_new",
    "ensure_channel",
    "known_beforehand",
    "last_known",
    "open_engine",
    "port_of",
    "remember",
    "uuid_at",
]


class NewChannel(NamedTuple):
    """What a channel is created with.

    Args:
        options: its options.
        fixed: what can't be changed later.
        schemas: the schema of its events, as an Arrow IPC message.
    """

    options: ChannelOptions
    fixed: CreationOptions
    schemas: list[bytes]


def ensure_channel(
    fs: FileSystem, path: ChannelPath, new: Callable[[], NewChannel] | None, prepare: Callable[[], None] = lambda: None
) -> str | None:
    """Create a channel unless there is one.

    Args:
        fs: the file system, for a channel on this host.
        path: where it is.
        new: returns what to create it with, or raises; None: do not create it.
        prepare: makes what a channel in a store needs on this host, or raises; called last, when all else is known.

    Returns:
        The UUID of a channel in a store, for `open_engine`, which would ask for it; None for one on this host.

    Raises:
        NotAChannelError: there is none, and ``new`` is None; or something else is there.
        StorageError: the storage refused.

    It raises what `create_channel` raises, too.
    """
    if isinstance(path, Location):
        from spillable_stream.engine.store.object_opening import ensure_object_channel

        return ensure_object_channel(path, None if new is None else lambda: _for_a_store(new()), prepare)
    if has_identity(fs, path):
        return None
    if new is None:
        read_identity(fs, path)  # which knows more of what is missing
        raise NotAChannelError(f"{path} is not a channel")
    wanted = new()
    refuse_unfit_options(wanted.options.values(), in_store=False)
    create_channel(fs, path, *wanted)
    return None


def check_new(fs: FileSystem, path: ChannelPath, new: NewChannel) -> PlannedDirectories:
    """Refuse a channel that can be seen to be impossible; nothing is created.

    Args:
        fs: the file system, for a channel on this host.
        path: where it will be; there is none.
        new: what it will be created with.

    Returns:
        The directories on this host that it will have.

    Raises what `ensure_channel` raises.
    """
    if isinstance(path, Location):
        from spillable_stream.engine.store.object_opening import check_object_creation

        _for_a_store(new)
        check_object_creation(path)
        if path.scheme != DIRECTORY:
            return PlannedDirectories(path, [])
        directory = Path(path.prefix)
        return PlannedDirectories(replace(path, prefix=str(fs.real_path(directory))), [directory])
    refuse_unfit_options(new.options.values(), in_store=False)
    return PlannedDirectories(fs.real_path(path), planned_directories(check_creation(fs, path, new.fixed)))


def _for_a_store(wanted: NewChannel) -> SmallImage:
    """Return the state with which a channel in a store begins; raises `OptionError` for what it can't have."""
    fixed = {name: getattr(wanted.fixed, name) for name in defaults(CREATION)}
    refuse_unfit_options({**wanted.options.values(), **fixed}, in_store=True)
    return ChannelState(wanted.options, wanted.schemas).small()


def open_engine(
    fs: FileSystem,
    path: ChannelPath,
    lock_timeout_seconds: float,
    *,
    readonly: bool,
    channel: str | None = None,
    cache: DiskCache | None = None,
    known: LastKnown | None = None,
) -> Engine:
    """Open a channel.

    Args:
        fs: the file system, for a channel on this host.
        path: where it is.
        lock_timeout_seconds: how long to wait for other processes.
        readonly: whether the channel is only looked at.
        channel: the UUID of a channel in a store, if it was just asked for; None: the store is asked.
        cache: where what is read of a channel in a store is kept; None: nowhere.
        known: what a channel in a store is to begin with; None: it is asked.

    Raises:
        NotAChannelError: there is none.
        CorruptionError: it is damaged.
        ChannelBusyError: another host has it open, or it is being recovered or repaired.
        StorageError: the storage refused.
    """
    try:
        if isinstance(path, Location):
            from spillable_stream.engine.store.object_opening import open_object_engine

            return open_object_engine(
                path, lock_timeout_seconds, readonly=readonly, channel=channel, cache=cache, known=known
            )
        layout = read_identity(fs, path)
        layout.grant(fs)
        return LocalEngine(fs, layout, lock_timeout_seconds, readonly=readonly)
    except CorruptionError as e:
        e.advise(path)
        raise


def last_known(fs: FileSystem, directory: Path, path: ChannelPath) -> LastKnown | None:
    """Return what a handle of this host knew last of a channel in a store; None if it is not known, or on a disk.

    Args:
        fs: the file system.
        directory: where `remember` wrote it.
        path: where the channel is.
    """
    from spillable_stream.engine.store.last_known import recall

    return recall(fs, directory, path) if isinstance(path, Location) else None


def known_beforehand(path: ChannelPath) -> LastKnown | None:
    """Return what the handle that is being opened may begin with, of a channel in a store; None: it asks the store."""
    known = known_state(path)
    if known is None:
        return None
    from spillable_stream.engine.store.last_known import accept

    return accept(known)


def remember(fs: FileSystem, directory: Path, engine: Engine) -> None:
    """Write down what a handle knows of a channel in a store, for `last_known`; a failure is logged."""
    from spillable_stream.engine.store.last_known import write_down
    from spillable_stream.engine.store.object_engine import ObjectEngine

    assert isinstance(engine, ObjectEngine)
    write_down(fs, directory, engine)


def port_of(engine: Engine) -> ChannelPort:
    """Return the port of an engine that `open_engine` returned."""
    if isinstance(engine, LocalEngine):
        return LocalPort(engine)
    from spillable_stream.engine.store.object_engine import ObjectEngine
    from spillable_stream.engine.store.object_port import ObjectPort

    assert isinstance(engine, ObjectEngine)
    return ObjectPort(engine)


def uuid_at(path: ChannelPath) -> str:
    """Return the UUID of the channel at a path, without opening it.

    Raises:
        NotAChannelError: there is none.
        StorageError: the storage refused.
    """
    if isinstance(path, Location):
        from spillable_stream.engine.store.object_opening import object_identity

        return object_identity(path)
    return read_identity(FileSystem(), path).channel
