"""Which channels the runs of queries use: each stays open as long as one of them does."""

from __future__ import annotations

import contextlib
import threading

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import ChannelClosedError, SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import acquire

__all__ = ["RunChannels"]

_log = log_of(__name__)


class RunChannels:
    """The channels that a listener has open, and for which runs. Thread-safe.

    Opening a channel takes milliseconds, and a quarter of a second where 10,000 transactions have come since the
    last checkpoint; what is open follows at no cost. The last query of a channel closes it as any handle is
    closed: if no other process has it open, what is in memory moves to disk.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._open: dict[str, Channel] = {}
        self._runs: dict[str, set[str]] = {}  # path → the runs that use it
        self._refused: dict[str, set[str]] = {}  # the same, of those that can't

    def get(self, path: str, uuid: str, run: str) -> Channel | None:
        """Return a channel, or None, with one line in the log for each run, if it can't be opened here.

        Args:
            path: its directory.
            uuid: its identity.
            run: the run ID of the query that asks.
        """
        with self._mutex:
            if run in self._refused.get(path, ()):
                return None
            try:
                channel = self._opened(path)
                if channel.uuid == uuid:
                    self._runs.setdefault(path, set()).add(run)
                    return channel
                why = f"there is another channel, {channel.uuid}"
                if not self._runs.get(path):
                    self._close(path)
            except (SpillableError, OSError) as e:
                why = str(e)
            _log.warning(
                "the channel %s of the query run %s can't be opened by the listener, which reports without it and "
                "commits nothing: %s", path, run, why,
                extra=fields(path, query=run),
            )  # fmt: skip
            self._refused.setdefault(path, set()).add(run)
            return None

    def _opened(self, path: str) -> Channel:
        channel = self._open.get(path)
        if channel is not None:
            try:
                channel.port().require_open()
                return channel
            except ChannelClosedError:  # it failed, or was removed; there may be another by now
                with contextlib.suppress(SpillableError):
                    self._close(path)
        return self._open.setdefault(path, acquire(path, create=False))

    def leave(self, run: str) -> None:
        """Note that a run is over.

        Raises:
            StorageError: a channel whose last run it was could not be closed cleanly.
        """
        with self._mutex:
            for runs in self._refused.values():
                runs.discard(run)
            left = [path for path, runs in self._runs.items() if run in runs]
            for path in left:
                self._runs[path].discard(run)
            self._close_all([path for path in left if not self._runs[path]])

    def close(self) -> None:
        """Close every channel.

        Raises:
            StorageError: one could not be closed cleanly; all are closed.
        """
        with self._mutex:
            self._close_all(list(self._open))

    def _close_all(self, paths: list[str]) -> None:
        with contextlib.ExitStack() as stack:  # all of them, whatever one raises
            for path in paths:
                stack.callback(self._close, path)

    def _close(self, path: str) -> None:
        channel = self._open.pop(path, None)
        self._runs.pop(path, None)
        if channel is not None:
            with contextlib.suppress(ChannelClosedError):  # it was removed
                channel.close()
