"""The open channels of this process: a handle for the length of one of Spark's calls, kept for the next.

Spark plans every micro-batch in Python processes that it uses again and again, and each call there
needs the channel. A handle is parked between two calls: for everybody else it is closed, so that it
holds back neither a flush nor a repair, but the next call has only to follow what was committed
since. As any close, the park of the last handle moves to disk what is in memory: Spark ends these
processes when it likes, without a word.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import SpillableError, StorageError

__all__ = ["acquire", "visit", "visit_to_read"]

_log = logging.getLogger(__name__)

_MOST_PARKED = 8
_MAY_NOT_WRITE = {errno.EROFS, errno.EACCES, errno.EPERM}

_Key = tuple[str, bool]  # a path, and whether the handle only reads
_parked: dict[_Key, Channel] = {}  # the last one used last


@contextmanager
def visit_to_read(path: str) -> Iterator[Channel]:
    """Visit a channel to look at it: with a read-only handle where its directory can't be written, as on such a mount.

    A handle that may write is better where there can be one: what a killed process wrote last is durable before it is
    given out.

    Raises what `Channel` does.
    """
    with ExitStack() as stack:
        try:
            channel = stack.enter_context(visit(path, create=False))
        except StorageError as e:
            if not isinstance(e.__cause__, OSError) or e.__cause__.errno not in _MAY_NOT_WRITE:
                raise
            channel = stack.enter_context(visit(path, create=False, readonly=True))
        yield channel


@contextmanager
def visit(
    path: str, *, create: bool = True, readonly: bool = False, schema: pa.Schema | None = None, **options: Any
) -> Iterator[Channel]:
    """Open a channel and leave it without a checkpoint.

    Takes and raises what `Channel` does.
    """
    channel = acquire(path, create=create, readonly=readonly, schema=schema, **options)
    try:
        yield channel
    except BaseException:
        _park(channel)
        _close(channel)
        raise
    if _park(channel):
        _keep(_key(path, readonly), channel)
    else:
        _close(channel)


def acquire(
    path: str, *, create: bool = True, readonly: bool = False, schema: pa.Schema | None = None, **options: Any
) -> Channel:
    """Return a handle that was kept, resumed, or else a new one; who asks for it closes it.

    Takes and raises what `Channel` does.
    """
    channel = _resumed(_key(path, readonly), schema, options)
    return channel or Channel(path, create=create, readonly=readonly, schema=schema, **options)


def _key(path: str, readonly: bool) -> _Key:
    return os.path.abspath(path), readonly


def _park(channel: Channel) -> bool:
    """Park a handle, and tell whether it can be used again; a failure is logged: what the call did is done."""
    try:
        channel.park()
        return True
    except SpillableError as e:
        _log.warning("the channel %s was not left cleanly: %s", channel.path, e)
        return False


def _resumed(key: _Key, schema: pa.Schema | None, options: dict[str, Any]) -> Channel | None:
    channel = _parked.pop(key, None)
    if channel is None:
        return None
    try:
        resumed = channel.resume(schema=schema, **options)
    except BaseException:
        _close(channel)
        raise
    if resumed:
        return channel
    _close(channel)
    return None


def _keep(key: _Key, channel: Channel) -> None:
    displaced = _parked.pop(key, None)  # of another thread
    _parked[key] = channel
    if displaced is None and len(_parked) > _MOST_PARKED:
        displaced = _parked.pop(next(iter(_parked)))
    if displaced is not None:
        _close(displaced)


def _close(channel: Channel) -> None:
    channel.close(checkpoint=False, flush=False)
