"""A channel for the length of one of Spark's calls.

Spark plans every micro-batch in Python processes that it uses again and again, and each call there
needs the channel. A handle is parked between two calls: for everybody else it is closed, so that it
holds back neither a flush nor a repair, but the next call has only to follow what was committed
since. Spark kills these processes when they have been idle for a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spillable_stream.channel.channel import Channel

__all__ = ["visit"]

_MOST_PARKED = 8

_parked: dict[str, Channel] = {}  # by path, the last one used last


@contextmanager
def visit(path: str, *, create: bool = True, schema: Any = None, **options: Any) -> Iterator[Channel]:
    """Open a channel and leave it without a checkpoint and without a flush.

    Takes and raises what `Channel` does.
    """
    key = os.path.abspath(path)
    channel = _resumed(key, schema, options) or Channel(path, create=create, schema=schema, **options)
    try:
        yield channel
        channel.park()
    except BaseException:
        _close(channel)
        raise
    _keep(key, channel)


def _resumed(key: str, schema: Any, options: dict[str, Any]) -> Channel | None:
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


def _keep(key: str, channel: Channel) -> None:
    displaced = _parked.pop(key, None)  # of another thread
    _parked[key] = channel
    if displaced is None and len(_parked) > _MOST_PARKED:
        displaced = _parked.pop(next(iter(_parked)))
    if displaced is not None:
        _close(displaced)


def _close(channel: Channel) -> None:
    channel.close(checkpoint=False, flush=False)
