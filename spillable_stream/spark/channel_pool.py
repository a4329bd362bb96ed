"""A pool of open channels: a handle serves one of Spark's calls and is kept for the next.

Spark plans every micro-batch in Python processes that it reuses, and each call there needs the
channel. Between two calls a handle is parked. To everybody else a parked handle is closed, so it
blocks neither a flush nor a repair. The next call only has to catch up with later commits. Parking
the last handle moves the memory tier to disk, like a close, because Spark may end these processes
at any time without notice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import KnownState, beginning_with
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.location import is_location
from spillable_stream.spark.local_path import absolute
from spillable_stream.system_errors import may_not_write

__all__ = ["acquire", "visit", "visit_to_read"]

_log = log_of(__name__)

_MOST_PARKED = 72
"""How many handles of directories are kept, each with some seven open files: 64 shards, and a few channels more."""

_MOST_PARKED_OF_STORES = 264
"""And of stores, which keep no files open: all the shards that a sink can have, and a few channels more."""

_Key = tuple[str, bool]  # a path, and whether the handle is read-only
_parked: dict[_Key, Channel] = {}  # least recently used first
_mutex = threading.Lock()  # the commits of several shards are under way at the same time


@contextmanager
def visit_to_read(path: str) -> Iterator[Channel]:
    """Open a channel for reading, and leave it again; read-only if it is in a store, or its directory is not writable.

    Of a directory a writable handle is better where possible: it makes the last writes of a killed process durable
    before anybody reads them. Objects in a store are durable. There a writable handle would only look after the
    channel, for as long as Spark keeps this process, and whether its credentials may write or not.

    Raises what `Channel` raises.
    """
    if is_location(path):
        with visit(path, create=False, readonly=True) as channel:
            yield channel
        return
    with ExitStack() as stack:
        try:
            channel = stack.enter_context(visit(path, create=False))
        except StorageError as e:
            if not may_not_write(e):
                raise
            channel = stack.enter_context(visit(path, create=False, readonly=True))
        yield channel


@contextmanager
def visit(
    path: str,
    *,
    create: bool = True,
    readonly: bool = False,
    schema: pa.Schema | None = None,
    known: KnownState | None = None,
    **options: Any,
) -> Iterator[Channel]:
    """Open a channel, and leave it again without a checkpoint.

    Takes the arguments of `Channel`, and what a new handle of it may begin with, and raises what `Channel` raises.
    """
    with beginning_with(known):
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
    """Return a handle, resumed from the pool or new. The caller must close it.

    Takes the arguments of `Channel`, and raises what it raises.
    """
    channel = _resumed(_key(path, readonly), schema, options)
    return channel or Channel(path, create=create, readonly=readonly, schema=schema, **options)


def _key(path: str, readonly: bool) -> _Key:
    return absolute(path), readonly


def _park(channel: Channel) -> bool:
    """Park a handle, and tell whether it can be reused. A failure is only logged, because the call has succeeded."""
    try:
        channel.park()
        return True
    except SpillableError as e:
        _log.warning("the channel %s was not left cleanly: %s", channel.path, e, extra=fields(channel.path))
        return False


def _resumed(key: _Key, schema: pa.Schema | None, options: dict[str, Any]) -> Channel | None:
    with _mutex:
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
    with _mutex:
        displaced = _parked.pop(key, None)  # another thread's handle
        _parked[key] = channel
        of_kind = [other for other in _parked if is_location(other[0]) == is_location(key[0])]
        if displaced is None and len(of_kind) > (_MOST_PARKED_OF_STORES if is_location(key[0]) else _MOST_PARKED):
            displaced = _parked.pop(of_kind[0])
    if displaced is not None:
        _close(displaced)


def _close(channel: Channel) -> None:
    channel.close(checkpoint=False, flush=False)


def _forget_mutex() -> None:
    global _mutex
    _mutex = threading.Lock()


os.register_at_fork(after_in_child=_forget_mutex)
