"""Closes what a source or a sink that did not end in time may hang in, without hanging with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from spillable_stream.channel.channel import Channel
from spillable_stream.error_text import text_of
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.runner import Runner
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.log_records import fields, log_of

__all__ = ["channels_of", "close_at_once", "closes"]

_log = log_of("spillable_stream.flow")


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

    Args:
        closings: what closes each of them, by its name.
        seconds: how long they may take.

    Returns:
        The names of those that were not closed in time; their threads continue.
    """
    end = time.monotonic() + seconds
    threads = {
        name: threading.Thread(target=closes, args=(name, close), name=f"{name}-close", daemon=True)
        for name, close in closings.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    return [name for name, thread in threads.items() if thread.is_alive()]


def closes(name: str, close: Callable[[], object]) -> bool:
    """Close something, and tell whether it is closed; says what kept it from that.

    Args:
        name: its name.
        close: what closes it.
    """
    try:
        close()
    except Exception as e:
        _log.error("%s could not be closed: %s", name, text_of(e), extra=fields(component=name))
        return False
    return True
