"""Reads what a group has claimed, wherever it is by now."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import expired_events
from spillable_stream.errors import DataLossError
from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.state.ranges import Range, events_in

__all__ = ["GroupReader"]


class GroupReader:
    """Reads events by their IDs, with the reader that the engine keeps for the group while the group is in use.

    Args:
        engine: the channel.
        group: the group's name.
        mutex: one thread reads at a time, and none while the group is moved.
    """

    def __init__(self, engine: Engine, group: str, mutex: RLock) -> None:
        self._engine = engine
        self._group = group
        self._mutex = mutex
        self._known = engine.follower.as_known

    def read(self, ranges: Iterable[Range]) -> list[ReadBatch]:
        """Return events, in order.

        Raises:
            ChannelClosedError: the engine was closed.
            CorruptionError: an event can't be read.
            DataLossError: events have left the channel.
        """
        found: list[ReadBatch] = []
        self._engine.require_not_closed()
        with self._mutex:
            for first, last in ranges:
                while first <= last:
                    first = self._read(first, last, found)
        return found

    def expired(self, ranges: Iterable[Range], by_us: int) -> list[Range]:
        """Return those of some events that have expired by a time (`expired_events`); the mutex is held."""
        reader = self._engine.readers.get(self._group, self._engine.reader)
        return expired_events(self._engine, reader, ranges, by_us)

    def forget(self) -> None:
        """Close the reader; another one is opened with the next event."""
        self._engine.readers.forget(self._group)

    def _read(self, first: int, last: int, found: list[ReadBatch]) -> int:
        """Read events from ``first`` on into a list, and return the ID after the last one.

        Fewer than all, or none, where they are moved meanwhile: read again.
        """
        began = first
        with self._known as state:  # they were claimed in it; where it is behind, the reader misses a file
            extents = state.blocks.extents(first, last)
        reader = self._engine.readers.get(self._group, self._engine.reader)
        if len(extents) > 1:
            reader.expect(extents)
        for extent in extents:
            if extent.first_id != first:
                break
            try:
                for read in reader.read(extent):
                    found.append(read)
                    first = read.last_id + 1
            except DataLossError:
                if first == began and not self._has_moved(extent):
                    raise
                return first
        if first <= last:
            raise DataLossError(f"{events_in([(first, last)], 'have')} left the channel", str(self._engine.path))
        return first

    def _has_moved(self, extent: Extent) -> bool:
        """Tell whether events are elsewhere by now: a flush, for one, moves them from memory to disk."""
        with self._engine.snapshot() as state:
            now = state.blocks.extents(extent.first_id, extent.first_id)
        return bool(now) and now[0].file != extent.file
