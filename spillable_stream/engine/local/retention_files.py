"""Begins the data files in which kept events leave: a file goes whole, so there must always be one that can."""

from __future__ import annotations

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.local_log import FILES_OF_A_LIMIT, LocalLog
from spillable_stream.state.image import image_of

__all__ = ["RetentionFiles"]


class RetentionFiles:
    """The newest data file of a channel that keeps events."""

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._began: tuple[int, int | None] = (0, None)  # the newest file, and when its first event was put

    def begin_if_old(self, now_us: int) -> None:
        """Continue the log in a new file if the events of this one span an eighth of ``retentionMs``.

        Args:
            now_us: the time now, in microseconds since 1970.

        Raises:
            StorageError: the disk refused.
        """
        state = self._follower.state
        span_us = state.options.retention_ms * 1000 // FILES_OF_A_LIMIT
        began_us = self._began_us() if span_us else None
        if began_us is None or now_us - state.clock.now_of(began_us) < span_us:
            return
        with self._appender.committing():
            if self._began_us() == began_us:
                self._log.tiers.disk.roll(self._follower.state.small)
                self._follower.catch_up()

    def _began_us(self) -> int | None:
        """Return when the first event in the newest file was put, or moved there from memory; None if it has none."""
        newest = self._follower.positions.disk.file_id
        if self._began[0] != newest or self._began[1] is None:
            with self._follower.snapshot as state:
                newest = self._follower.positions.disk.file_id
                began_us = state.blocks.disk.first_time_in(newest)
            header = None if began_us is None else self._log.tiers.disk.read_file_header(newest)
            if began_us is not None and header is not None:  # what was moved there is older than the file
                began_us = max(began_us, image_of(header.state)["time"])
            self._began = newest, began_us
        return self._began[1]
