"""Closes a stream source's channel when its Spark worker ends, which moves the memory tier to disk.

Spark does not call ``stop``. It ends the worker with SIGTERM, and with SIGHUP, sent twice, when the session stops.
After a SIGKILL, the next close of the channel moves the memory tier.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from spillable_stream.log_records import log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["at_end", "not_at_end"]

_log = log_of(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_closers: dict[int, Callable[[], None]] = {}
_numbers = itertools.count()
_signals = itertools.count()


def at_end(close: Callable[[], None]) -> int:
    """Register a function to call, in a separate thread, when a signal ends this process.

    It installs signal handlers only in Spark's workers, and only for signals that nobody else handles. Other programs
    decide for themselves (`spillable_stream.termination`).

    Args:
        close: the function. It may wait for calls that are under way.

    Returns:
        The key for `not_at_end`.
    """
    if _is_spark_worker() and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)
    key = next(_numbers)
    _closers[key] = close
    return key


def not_at_end(key: int) -> None:
    """Remove a function that `at_end` registered."""
    _closers.pop(key, None)


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _end(number: int, _: FrameType | None) -> None:
    """Close everything in a new thread: the main thread continues its call, and the close waits for that.

    Where the process can have no more threads it ends at once, as by SIGKILL: nothing that is acknowledged is lost. The
    next signal may interrupt this, and would wait forever for a lock that is held here.
    """
    if next(_signals) == 0:
        try:
            start_thread(threading.Thread(target=_close_and_die, args=(number,), name="spillable end"))
        except NoThreadError as e:
            try:
                _log.warning("a worker ends without closing its channels, whose next close moves their memory: %s", e)
            finally:
                os._exit(128 + number)


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


os.register_at_fork(after_in_child=_closers.clear)  # the parent closes its own channels
