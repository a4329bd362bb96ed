"""A channel for the length of one of Spark's calls.

Spark plans every micro-batch in Python processes that it uses again and again, and each call there
needs the channel. A handle is parked between two calls: for everybody else it is closed, so that it
holds back neither a flush nor a repair, but the next call has only to follow what was committed
since. One that waits too long, or whose process ends, is closed as any handle is: if nobody else has the
channel open, what is in memory moves to disk.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import SpillableError
from spillable_stream.spark.worker_end import at_end

__all__ = ["visit"]

_log = logging.getLogger(__name__)

_MOST_PARKED = 8
_PARKED_SECONDS = 20.0  # Spark ends a worker without a word when it has been idle for a minute


@dataclass(slots=True)
class _Parked:
    """A handle that waits for the next call.

    Args:
        channel: the handle.
        until: when it is closed, on the monotonic clock.
    """

    channel: Channel
    until: float


_parked: dict[str, _Parked] = {}  # by path, the last one used last
_mutex = threading.Lock()
_swept = threading.Event()  # whether there is a thread that closes them


@contextmanager
def visit(path: str, *, create: bool = True, schema: Any = None, **options: Any) -> Iterator[Channel]:
    """Open a channel, and leave it without a checkpoint, and without a flush if the next call comes soon.

    Takes and raises what `Channel` does.
    """
    key = os.path.abspath(path)
    channel = _resumed(key, schema, options) or Channel(path, create=create, schema=schema, **options)
    try:
        yield channel
        channel.park()
    except BaseException:
        channel.close(checkpoint=False, flush=False)
        raise
    _keep(key, channel)


def _resumed(key: str, schema: Any, options: dict[str, Any]) -> Channel | None:
    with _mutex:
        parked = _parked.pop(key, None)
    if parked is None:
        return None
    channel = parked.channel
    try:
        resumed = channel.resume(schema=schema, **options)
    except BaseException:
        channel.close(checkpoint=False, flush=False)
        raise
    if resumed:
        return channel
    channel.close(checkpoint=False, flush=False)
    return None


def _keep(key: str, channel: Channel) -> None:
    with _mutex:
        displaced = [parked] if (parked := _parked.pop(key, None)) else []  # of another thread
        _parked[key] = _Parked(channel, time.monotonic() + _PARKED_SECONDS)
        if len(_parked) > _MOST_PARKED:
            displaced.append(_parked.pop(next(iter(_parked))))
        if not _swept.is_set():
            _swept.set()
            at_end(_leave_all)
            threading.Thread(target=_sweep, name="spillable parked", daemon=True).start()
    for parked in displaced:
        _leave(parked.channel)


def _sweep() -> None:
    """Close what has waited too long, for as long as the process lives."""
    while True:
        time.sleep(_PARKED_SECONDS / 4)
        _leave_late()


def _leave_late() -> None:
    now = time.monotonic()
    with _mutex:
        late = [key for key, parked in _parked.items() if parked.until <= now]
        channels = [_parked.pop(key).channel for key in late]
    for channel in channels:
        _leave(channel)


def _leave_all() -> None:
    with _mutex:
        channels = [parked.channel for parked in _parked.values()]
        _parked.clear()
    for channel in channels:
        _leave(channel)


def _leave(channel: Channel) -> None:
    """Close a parked handle as any other is closed, but for the checkpoint."""
    try:
        channel.close(checkpoint=False, flush=None if channel.resume() else False)
    except (SpillableError, OSError) as e:
        _log.warning("the channel %s was not closed cleanly: %s", channel.path, e)


def _forget_after_fork() -> None:
    """In a forked child: its handles are closed, and it has none of the parent's threads."""
    global _mutex
    _mutex = threading.Lock()
    _parked.clear()
    _swept.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
