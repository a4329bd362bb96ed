"""The channel of a spool, on this host: opened only where it is nobody else's, and created before the one in the store.

A channel that is somebody's is refused before it gets an option or a column. A store gets no channel whose spool is
refused; where the store refuses in the end, the empty spool stays for the next attempt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from spillable_stream.channel.open_arguments import OpenArguments
from spillable_stream.channel.open_channel import OpenChannel
from spillable_stream.channel.stored_options import store_options
from spillable_stream.channel.stored_schema import has_columns, store_columns
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.options_by_storage import SpoolOptions
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.names import SPOOL_PREFIX
from spillable_stream.objects.location import channel_path
from spillable_stream.option_types import ChannelOptions
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["SpooledChannel", "open_spool_channel", "prepare_spool"]


_REMOVE_IT = "remove it, or use another directory"


class SpooledChannel(NamedTuple):
    """The channel in a store that a spool is in front of.

    Args:
        path: where it is.
        group: the name of its group in the spool; "" for a channel that is yet to be created.
        options: its options.
        schema: its newest schema.
    """

    path: ChannelPath
    group: str
    options: ChannelOptions
    schema: pa.Schema


def prepare_spool(
    fs: FileSystem, front: SpoolOptions, path: ChannelPath, options: ChannelOptions, schema: pa.Schema
) -> None:
    """Create the spool of a channel in a store, or refuse the one that is there, before that channel is created.

    Args:
        fs: the file system.
        front: what spool it is.
        path: where the channel will be.
        options: the channel's options.
        schema: the channel's schema.

    Raises what `open_spool_channel` raises.
    """
    open_spool_channel(fs, front, SpooledChannel(path, "", options, schema)).close()


def open_spool_channel(fs: FileSystem, front: SpoolOptions, spooled: SpooledChannel) -> OpenChannel:
    """Open the channel of a spool, with the options and columns of the store's; it is created if it is missing.

    Args:
        fs: the file system.
        front: what spool it is.
        spooled: the channel that it is in front of.

    Raises:
        OptionError: it is the spool of another channel, or no spool. It stays as it is.
        SchemaError: it has other columns than that channel. It stays as it is.

    It raises what `OpenChannel` raises, too.
    """
    schema = None if spooled.schema.equals(EVENT_SCHEMA) else spooled.schema
    shared = {
        name: getattr(spooled.options, name) for name in ("transaction_capacity", "keep_alive", "overflow_timeout")
    }
    options = {**shared, **front.of_channel}
    try:
        local = _open(fs, front, {}, None, create=False)
    except NotAChannelError as e:
        if not e.is_missing:
            raise
        local = _open(fs, front, options, schema, create=True)
    try:
        _require_own(local, spooled)
        store_options(local.engine(), options)
        store_columns(local.engine(), spooled.schema)
    except BaseException:
        local.close(checkpoint=False, flush=False)
        raise
    return local


def _open(
    fs: FileSystem, front: SpoolOptions, options: dict[str, Any], schema: pa.Schema | None, *, create: bool
) -> OpenChannel:
    given = OpenArguments.of(channel_path(front.path), options, schema, readonly=False)
    return OpenChannel(given, fs, create=create, readonly=False, progress=None)


def _require_own(local: OpenChannel, spooled: SpooledChannel) -> None:
    """Refuse what is not the spool of a channel: its events would come to the wrong place."""
    path, engine = local.path, local.engine()
    with engine.snapshot() as state:
        groups, is_new = set(state.groups), not state.last_id
    if any(name.startswith(SPOOL_PREFIX) for name in groups - {spooled.group}):
        raise OptionError(
            f"{path} is the spool of another channel, not of {spooled.path}; give each channel a spool of its own"
        )
    if spooled.group not in groups and (groups or not is_new):
        raise OptionError(
            f"{path} is a channel with its own events or groups, not a spool; give the spool its own directory"
        )
    is_empty = spooled.group not in groups
    if engine.is_typed() == spooled.schema.equals(EVENT_SCHEMA):
        what_to_do = f"the spool holds no events: {_REMOVE_IT}" if is_empty else "use another directory"
        raise SchemaError(f"only one of the spool {path} and {spooled.path} is a typed channel; {what_to_do}")
    beyond = set(engine.schemas()[-1].names) - set(spooled.schema.names)
    if is_empty and beyond:  # one of its own may know of more columns than its channel is known to have
        raise SchemaError(
            f"the spool {path} has the column {min(beyond)!r}, which {spooled.path} lacks: its events could not be "
            f"shipped. It holds none: {_REMOVE_IT}"
        )
    has_columns(engine, spooled.schema)
