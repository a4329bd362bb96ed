"""Lets other processes see what a worker does."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from spillable_stream.channel.stats import WorkerStats
from spillable_stream.channel.worker_status import encode_status
from spillable_stream.engine.worker_statuses import StatusWriter
from spillable_stream.error_text import type_and_text
from spillable_stream.interruptible import Begun, begun_or_made

__all__ = ["Reporting", "one_line"]

_MOST_CHARACTERS = 200
_LAST_SECONDS = 15.0  # for the write before the last one, which may hang


def one_line(error: BaseException | None) -> str:
    """Return an error's class and its text, in one line that is not long."""
    text = " ".join(type_and_text(error).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


class Reporting:
    """Writes down what a worker does: at the pace of its storage while that changes, and otherwise now and then.

    Until the end another thread writes: no worker waits for storage that hangs, and none ends for want of a thread.

    Args:
        writer: writes the status; None where there is none.
        stats: returns what the worker does.
    """

    def __init__(self, writer: StatusWriter | None, stats: Callable[[], WorkerStats]) -> None:
        self._writer = writer
        self._stats = stats
        self._said: WorkerStats | None = None
        self._said_at = self._looked_at = float("-inf")
        self._writing: Begun[None] | None = None

    def look(self) -> None:
        """Begin to write down what the worker does, if it is time, and what was to be written last has been."""
        now, writer = time.monotonic(), self._writer
        if writer is None or now - self._looked_at < writer.pace.change_seconds or not self._has_written(0.0):
            return
        self._looked_at = now
        found = self._stats()
        if found != self._said or now - self._said_at >= writer.pace.alive_seconds:
            self._said, self._said_at = found, now
            self._writing = begun_or_made(partial(writer.write, encode_status(found, writer.pace.silent_seconds)))

    def _has_written(self, within_seconds: float) -> bool:
        return self._writing is None or self._writing.ends_within(within_seconds)

    def close(self) -> None:
        """Write down how the worker ended, in this thread, unless the last write hangs."""
        writer, self._writer = self._writer, None
        if writer is not None and self._has_written(_LAST_SECONDS):
            writer.close(encode_status(self._stats(), writer.pace.silent_seconds))

    def leave(self) -> None:
        """Write nothing any more: in a forked child, the worker is the parent's."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(None)
