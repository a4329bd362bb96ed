"""The end of one of Spark's Python workers, at which its channels are closed, so that memory moves to disk.

Spark calls no ``stop``. It ends workers by SIGTERM, by two SIGHUPs in a row, or by closing their socket, after which
``pyspark.daemon`` leaves by ``os._exit``, without ``atexit``. So signals are caught in such a worker, and ``os._exit``
is. Whoever gets SIGKILL leaves it to the next close.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from spillable_stream.errors import SpillableError

__all__ = ["at_end", "not_at_end"]

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_closers: dict[int, Callable[[], None]] = {}
_numbers = itertools.count()
_caught = threading.Event()  # whether the end of this process is noticed,
_ending = threading.Event()  # and whether it has begun
_closing = threading.Lock()


def at_end(close: Callable[[], None]) -> int:
    """Call something once when this process ends, in a thread of its own if a signal ends it.

    Signals are caught in Spark's workers only, and only where nobody else catches them: a program that uses this
    package decides itself (`spillable_stream.termination`).

    Args:
        close: what to call. It may wait for calls that are under way.

    Returns:
        What `not_at_end` takes.
    """
    if not _caught.is_set():
        _caught.set()
        atexit.register(_close_all)
        if _is_spark_worker():
            _catch()
    key = next(_numbers)
    _closers[key] = close
    return key


def not_at_end(key: int) -> None:
    """Do not call it any more."""
    _closers.pop(key, None)


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _catch() -> None:
    leave = os._exit

    def close_and_leave(status: int) -> NoReturn:
        _ending.set()
        _close_all()
        leave(status)

    os._exit = close_and_leave
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    """Close everything in a thread: what the main thread is at goes on, and a close waits for it."""
    if _ending.is_set():
        return
    _ending.set()
    threading.Thread(target=_close_and_die, args=(number,), name="spillable end").start()


def _close_and_die(number: int) -> None:
    _close_all()
    os._exit(128 + number)


def _close_all() -> None:
    with _closing:  # who leaves by itself is often sent a signal too
        while _closers:
            _, close = _closers.popitem()
            try:
                close()
            except (SpillableError, OSError) as e:
                _log.warning("a channel was not closed cleanly at the end of a worker: %s", e)


def _forget_after_fork() -> None:
    """In a forked child: what the parent has open is the parent's to close."""
    global _closing
    _closing = threading.Lock()
    _closers.clear()
    _caught.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
