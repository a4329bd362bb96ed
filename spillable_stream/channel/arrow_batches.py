"""Reads what is in a channel as Arrow batches, without taking it.

Nothing is held for a reader. Meanwhile events may move from memory to disk, where they are found again, and they may
leave the channel, which is an error: a reader never passes over what was there when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import SupportsIndex

import pyarrow as pa

from spillable_stream.arguments import whole_bytes
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.seek_target import SeekTarget, TimeOrAge, chosen_position, event_id, time_of
from spillable_stream.channel.taken_events import id_column, table_from_batches
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import now_us
from spillable_stream.engine.groups import existing_group, have_left
from spillable_stream.engine.log_port import Reader
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import CorruptionError, DataLossError, OptionError
from spillable_stream.format.batch import fit_batch
from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.quantities import Size, span_with_unit
from spillable_stream.shown_value import shown
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet, events_in

__all__ = ["BATCH_BYTES", "ReadEnd", "range_to_read", "read_batches"]

BATCH_BYTES = 1 << 20
"""About how large a batch gets that is joined from small ones."""

ReadEnd = SupportsIndex | TimeOrAge
"""The write-order ID of the last event to read, or a time: the first event put then or later is not read."""

_LOOK_EXTENTS = 16  # some 4 MiB: so many are read after each look at the log


def read_batches(
    engine: Engine,
    start: SeekTarget | None = None,
    end: ReadEnd | None = None,
    group: str | None = None,
    max_bytes: Size = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return an iterator over the events that are in a channel now, but for expired ones; `Channel.read` explains it.

    Args:
        engine: the channel.
        start: the first event.
        end: the last one.
        group: a group that has yet to take them; None for all events.
        max_bytes: up to which size small batches are joined.

    Raises:
        CorruptionError: the log can't be read where a time is looked up.
        DataLossError: ``start`` or ``end`` has left the channel.
        OptionError: ``start`` or ``end`` can't be used, or the channel has no such group.
    """
    max_bytes = whole_bytes("max_bytes", max_bytes)
    choose = _chosen_range(engine, start, end)
    with engine.snapshot() as state:
        first, last = choose(state)
        ranges = [r for wanted in _wanted(engine, state, first, last, group) for r in _there(state, *wanted)]
        schema = engine.schemas()[-1]
    return _Reading(engine, schema, max_bytes).batches(ranges)


def range_to_read(engine: Engine, start: SeekTarget | None, end: ReadEnd | None) -> Range:
    """Return the IDs of the first and the last event that a read would have now; the last is less if it has none.

    The arguments are those of `read_batches`, and so is what it raises.
    """
    choose = _chosen_range(engine, start, end)
    with engine.snapshot() as state:
        return choose(state)


def _chosen_range(engine: Engine, start: SeekTarget | None, end: ReadEnd | None) -> Callable[[ChannelState], Range]:
    """Return what chooses the first and the last event to read."""
    choose_start = chosen_position(engine, "earliest" if start is None else start)
    choose_end = _chosen_end(engine, end)
    times_us = [
        time_of(place) for place in map(span_with_unit, (start, end)) if isinstance(place, datetime | timedelta)
    ]
    if len(times_us) == 2 and times_us[0] > times_us[1]:
        raise OptionError(
            f"a read of {engine.path} can't start at {_in_words(start)} and end earlier, at {_in_words(end)}"
        )

    def choose(state: ChannelState) -> Range:
        first, last = choose_start(state) + 1, choose_end(state)
        if first > last + 1:
            its_end = "before the first event" if last < state.beginning() else f"with the event {last}"
            raise OptionError(f"a read of {engine.path} can't start with the event {first} and end {its_end}")
        return first, last

    return choose


def _in_words(place: object) -> str:
    """Return a time as people say it: "2:00:00 ago" of a timedelta."""
    if isinstance(place, timedelta):
        return f"{place} ago"
    return place.isoformat() if isinstance(place, datetime) else shown(place)


def _chosen_end(engine: Engine, end: ReadEnd | None) -> Callable[[ChannelState], int]:
    """Return what chooses the last event to read."""
    if end is None:
        return lambda state: state.last_id
    path = engine.path
    if isinstance(moment := span_with_unit(end), datetime | timedelta):
        following = first_id_since(engine, time_of(moment))
        return lambda state: min(following, state.next_id) - 1
    if (wanted := event_id(end)) is None or wanted < 1:
        raise OptionError(
            f"a read of {path} can't end with {shown(end)}: give a write-order ID, a datetime with a zone, or a "
            "time back from now, as '15m' or a timedelta"
        )

    def choose(state: ChannelState) -> int:
        if wanted > state.last_id:
            raise OptionError(f"{path} has no event {wanted} yet; its last one is {state.last_id}")
        if wanted < state.beginning():
            raise have_left(wanted, state, path)
        return wanted

    return choose


def _wanted(engine: Engine, state: ChannelState, first: int, last: int, group: str | None) -> Iterator[Range]:
    """Yield the ranges to read, whether the events are there or not."""
    if group is None:
        yield first, last
        return
    yield from existing_group(state, group, engine.path).untaken(first, last)


def _there(state: ChannelState, first: int, last: int) -> Iterator[Range]:
    """Yield the ranges of events that are in the channel: not what was lost, nor what memory has freed."""
    return RangeSet(state.blocks.gaps(first, last)).union(state.gone()).gaps(first, last)


class _Reading:
    """One reader's way through a channel.

    Args:
        engine: the channel.
        schema: the schema of every batch; the events may have older ones.
        max_bytes: up to which size small batches are joined.
    """

    def __init__(self, engine: Engine, schema: pa.Schema, max_bytes: int) -> None:
        self._engine = engine
        self._schema = schema
        self._max_bytes = max_bytes
        self._look_in: int | None = None  # so many extents; None before the first: the caller has just looked
        self._by_us = now_us()

    def batches(self, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
        """Yield the events of some ranges, in order."""
        reader = self._engine.reader()
        try:
            small: list[ReadBatch] = []
            size_bytes = 0
            for read in (read for r in ranges for read in self._events(reader, *r)):
                read_bytes = read.batch.get_total_buffer_size()  # `nbytes` takes six times as long
                if small and size_bytes + read_bytes > self._max_bytes:
                    yield from self._joined(small)
                    small, size_bytes = [], 0
                small.append(read)
                size_bytes += read_bytes
            if small:
                yield from self._joined(small)
        finally:
            reader.close()

    def _joined(self, reads: list[ReadBatch]) -> list[pa.RecordBatch]:
        """Return one batch of several reads, or one of each where Arrow can't join columns of such a type."""
        if len(reads) == 1:
            return [fit_batch(reads[0].batch, self._schema).append_column(ID_COLUMN, id_column(reads[0]))]
        table = table_from_batches(reads, self._schema)
        with suppress(pa.ArrowNotImplementedError):
            table = table.combine_chunks()
        batches: list[pa.RecordBatch] = table.to_batches()
        return batches

    def _events(self, reader: Reader, first: int, last: int) -> Iterator[ReadBatch]:
        """Yield the events of a range from where they are by then: one extent at a time."""
        while first <= last:
            extent = self._next_extent(reader, first, last)
            if extent is None:
                return
            first = extent.first_id
            try:
                for read in reader.read(extent):
                    if not 0 < read.expires_us <= self._by_us:
                        yield read
                    first = read.last_id + 1
            except CorruptionError as e:
                if self._is_at(first, extent):
                    e.advise(self._engine.path)
                    raise
                self._look_in = 0

    def _next_extent(self, reader: Reader, first: int, last: int) -> Extent | None:
        """Return where the first event of a range is that was not lost meanwhile; None if all were.

        Not each time by a look at the log: where events were moved since, the reader misses their file.

        Raises:
            ChannelClosedError: the channel was closed.
            DataLossError: events have left the channel.
        """
        with self._engine.log.unasked():  # what looks on, such as a tap, leaves a loss to a call that stores or takes
            self._engine.require_not_closed()
        looks = self._look_in == 0
        with self._engine.snapshot() if looks else self._engine.follower.as_known as state:
            if looks or self._look_in is None:
                self._look_in = _LOOK_EXTENTS
                reader.expect([b.extent(first, last) for b in islice(state.blocks.between(first, last), _LOOK_EXTENTS)])
            self._look_in -= 1
            gone = state.gone()
            for first_there, last_there in gone.gaps(first, last):
                block = next(state.blocks.between(first_there, last_there), None)
                found = last_there + 1 if block is None else max(block.first_id, state.first_kept)
                if block is None or found > first_there:
                    missed = first_there, min(found - 1, last_there)
                    were = "it was" if missed[0] == missed[1] else "they were"
                    raise DataLossError(
                        f"{events_in([missed])} left the channel before {were} read; the first kept event is "
                        f"now {state.first_kept}. Read from there, or take as a group: the channel keeps events until "
                        "every group has taken them",
                        str(self._engine.path),
                    )
                return block.extent(first_there, last_there)
        return None

    def _is_at(self, event: int, extent: Extent) -> bool:
        """Tell whether an event is still where an extent says."""
        with self._engine.snapshot() as state:
            return any(block.file == extent.file for block in state.blocks.between(event, event))
