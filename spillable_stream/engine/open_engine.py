"""Where a channel is, what makes it, and which engine opens it: by the path that a user gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spillable_stream.engine.creation import create_channel
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.local_engine import LocalEngine
from spillable_stream.engine.local_port import LocalPort
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import NotAChannelError
from spillable_stream.log.identity_file import has_identity, read_identity
from spillable_stream.objects.location import Location
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["NewChannel", "channel_path", "ensure_channel", "open_engine", "port_of", "uuid_at"]


class NewChannel(NamedTuple):
    """What a channel is made with.

    Args:
        options: its options.
        fixed: what can't be changed later.
        schemas: the schema of its events, as an Arrow IPC message.
    """

    options: ChannelOptions
    fixed: CreationOptions
    schemas: list[bytes]


def channel_path(path: str | os.PathLike[str]) -> ChannelPath:
    """Return where the channel is that a user's path names, whatever the working directory will be."""
    return Path(path).absolute()


def ensure_channel(fs: FileSystem, path: ChannelPath, new: Callable[[], NewChannel] | None) -> None:
    """Make a channel unless there is one.

    Args:
        fs: the file system, for a channel on this host.
        path: where it is.
        new: returns what to make it with, or raises; None: do not make it.

    Raises:
        NotAChannelError: there is none, and ``new`` is None; or something else is there.
        StorageError: the storage refused.

    It raises what `create_channel` raises, too.
    """
    directory = _directory(path)
    if has_identity(fs, directory):
        return
    if new is None:
        read_identity(fs, directory)  # which knows more of what is missing
        raise NotAChannelError(f"{path} is not a channel")
    create_channel(fs, directory, *new())


def open_engine(fs: FileSystem, path: ChannelPath, lock_timeout_seconds: float, *, readonly: bool) -> Engine:
    """Open a channel.

    Args:
        fs: the file system, for a channel on this host.
        path: where it is.
        lock_timeout_seconds: how long to wait for other processes.
        readonly: whether the channel is only looked at.

    Raises:
        NotAChannelError: there is none.
        CorruptionError: it is damaged.
        ChannelBusyError: another host has it open, or it is being recovered or repaired.
        StorageError: the storage refused.
    """
    layout = read_identity(fs, _directory(path))
    layout.grant(fs)
    return LocalEngine(fs, layout, lock_timeout_seconds, readonly=readonly)


def port_of(engine: Engine) -> ChannelPort:
    """Return the port of an engine that `open_engine` returned."""
    assert isinstance(engine, LocalEngine)
    return LocalPort(engine)


def uuid_at(path: ChannelPath) -> str:
    """Return the UUID of the channel at a path, without opening it.

    Raises:
        NotAChannelError: there is none.
        StorageError: the storage refused.
    """
    return read_identity(FileSystem(), _directory(path)).channel


def _directory(path: ChannelPath) -> Path:
    """Return the directory of a channel on this host.

    Raises:
        NotAChannelError: the path is not that of a directory.
    """
    if isinstance(path, Location):
        raise NotAChannelError(f"{path} is not a directory: this release keeps channels in directories only")
    return path
