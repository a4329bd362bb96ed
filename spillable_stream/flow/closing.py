"""Closes what a source or a sink that did not end in time may hang in, without hanging with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from spillable_stream.channel.channel import Channel
from spillable_stream.error_text import may_be_of_a_signal, text_of
from spillable_stream.flow.failures import FAILURES
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.runner import Runner
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["channels_of", "close_at_once", "closes"]

_log = log_of("spillable_stream.flow")

_NO_THREAD_SECONDS = 0.05  # between two tries to start a thread


def channels_of(runners: Iterable[Runner]) -> list[Channel]:
    """Return the channels that sources put into, and that sinks take from."""
    found: list[Channel] = []
    for runner in runners:
        if isinstance(runner, SinkRunner):
            found += runner.channels
        elif isinstance(runner, (PolledRunner, EventRunner)) and isinstance(runner.processor, ChannelProcessor):
            found += runner.processor.channels.values()
    return found


def close_at_once(closings: Mapping[str, Callable[[], object]], seconds: float) -> list[str]:
    """Close several things at once, each in a thread of its own, which ends with the process.

    Where the process can have no more threads, it tries again: the first that is closed frees one.

    Args:
        closings: what closes each of them, by its name.
        seconds: how long they may take.

    Returns:
        The names of those that were not closed in time; their threads continue, where they have any.
    """
    end = time.monotonic() + seconds
    threads: dict[str, threading.Thread] = {}
    while trouble := _begin(closings, threads):
        if time.monotonic() >= end:
            for name in closings.keys() - threads.keys():
                _log.error("%s could not be closed: %s", name, trouble, extra=fields(component=name))
            break
        time.sleep(_NO_THREAD_SECONDS)
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    return [name for name in closings if name not in threads or threads[name].is_alive()]


def _begin(closings: Mapping[str, Callable[[], object]], threads: dict[str, threading.Thread]) -> str:
    """Start the threads that are not there yet, and return why one can't be started; "" if all are there."""
    for name, close in closings.items():
        if name not in threads:
            thread = threading.Thread(target=closes, args=(name, close), name=f"{name}-close", daemon=True)
            try:
                start_thread(thread)
            except NoThreadError as e:
                return str(e)
            threads[name] = thread
    return ""


def closes(name: str, close: Callable[[], object]) -> bool:
    """Close something, and tell whether it is closed; says what kept it from that.

    Args:
        name: its name.
        close: what closes it.
    """
    try:
        close()
    except FAILURES as e:
        if may_be_of_a_signal(e):
            raise
        _log.error("%s could not be closed: %s", name, text_of(e), extra=fields(component=name))
        return False
    return True
