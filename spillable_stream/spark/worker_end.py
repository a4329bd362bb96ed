"""The end of the worker in which Spark keeps a stream's source: its channel is closed, so that memory moves to disk.

Spark calls no ``stop``: it ends the worker by SIGTERM, and by SIGHUP, twice, when the session stops. A worker that gets
SIGKILL leaves the move to the next close.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["at_end", "not_at_end"]

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_closers: dict[int, Callable[[], None]] = {}
_numbers = itertools.count()
_ending = threading.Event()


def at_end(close: Callable[[], None]) -> int:
    """Call something, in a thread of its own, when a signal ends this process.

    Signals are caught in Spark's workers only, and only where nobody else catches them: a program that uses this
    package decides itself (`spillable_stream.termination`).

    Args:
        close: what to call. It may wait for calls that are under way.

    Returns:
        What `not_at_end` takes.
    """
    if _is_spark_worker() and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)
    key = next(_numbers)
    _closers[key] = close
    return key


def not_at_end(key: int) -> None:
    """Do not call it any more."""
    _closers.pop(key, None)


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _end(number: int, _: FrameType | None) -> None:
    """Close everything in a thread: what the main thread is at goes on, and a close waits for it."""
    if not _ending.is_set():
        _ending.set()
        threading.Thread(target=_close_and_die, args=(number,), name="spillable end").start()


def _close_and_die(number: int) -> None:
    try:
        for key in list(_closers):
            try:
                if (close := _closers.pop(key, None)) is not None:
                    close()
            except Exception as e:
                _log.warning("a channel was not closed cleanly at the end of a worker: %s", e)
    finally:
        os._exit(128 + number)


os.register_at_fork(after_in_child=_closers.clear)  # what the parent has open is the parent's to close
