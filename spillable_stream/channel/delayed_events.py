"""Delayed events of a put transaction, in columns, until it commits."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event import Event
from spillable_stream.channel.event_columns import EventColumns
from spillable_stream.engine.delayed_chunk import DelayedChunk, chunks_of
from spillable_stream.format.dues import stretch_of
from spillable_stream.format.row_values import row_reader
from spillable_stream.format.views import copy_of

__all__ = ["DelayedEvents"]

_BUFFERED_EVENTS = 8192
_BUFFERED_BYTES = 4 << 20


class DelayedEvents:
    """The delayed events of one transaction, in the order in which they were put.

    Args:
        schema: the channel's schema.
        schema_id: its number.
        typed: whether events are mappings of a typed channel rather than `Event`.

    Attributes:
        size_bytes: the size of the events that it holds, in memory, but for the last few thousand.
    """

    def __init__(self, schema: pa.Schema, schema_id: int, *, typed: bool) -> None:
        self._schema = schema
        self._schema_id = schema_id
        self._typed = typed
        self._rows: list[dict[str, Any]] = []
        self._events = EventColumns()
        self._dues_ms = array("q")  # of the rows or events
        self._ttl_us = 0  # of the rows or events
        self._batches: list[tuple[Sequence[int], pa.RecordBatch, int]] = []
        self.size_bytes: int = 0

    def add(self, events: Sequence[Event | Mapping[str, Any]], due_ms: int, ttl_us: int = 0) -> None:
        """Add events that are due at one time; none, if one does not fit the channel.

        Args:
            events: the events.
            due_ms: when they are due, in milliseconds since 1970.
            ttl_us: the ttl of each of them, in microseconds; 0 for none.

        Raises:
            SchemaError: an event does not fit the channel.
        """
        parts = [events[i : i + _BUFFERED_EVENTS] for i in range(0, len(events), _BUFFERED_EVENTS)]
        pieces = [self._read(part) for part in parts]  # all of them, before the first is added
        if ttl_us != self._ttl_us:
            self._flush()
            self._ttl_us = ttl_us
        for piece in pieces:
            self._add(piece, array("q", [due_ms]) * len(piece))

    def _read(self, events: Sequence[Event | Mapping[str, Any]]) -> list[dict[str, Any]] | EventColumns:
        return list(map(row_reader(self._schema).read, events)) if self._typed else EventColumns.of(events)

    def _add(self, piece: list[dict[str, Any]] | EventColumns, dues_ms: array[int]) -> None:
        if isinstance(piece, list):
            self._rows += piece
        else:
            if self._events.size_bytes + piece.size_bytes > _BUFFERED_BYTES:
                self._flush()
            self._events.extend(piece)
        self._dues_ms += dues_ms
        if len(self._dues_ms) >= _BUFFERED_EVENTS:
            self._flush()

    def add_batch(self, batch: pa.RecordBatch, dues_ms: Sequence[int], ttl_us: int = 0) -> None:
        """Add a copy of the rows of a batch in the channel's schema.

        Args:
            batch: the rows.
            dues_ms: when each is due, in milliseconds since 1970.
            ttl_us: the ttl of each of them, in microseconds; 0 for none.
        """
        self._flush()
        if batch.num_rows:
            with suppress(pa.ArrowCapacityError):  # more than one message can have: it is divided later
                batch, _ = copy_of(batch)
            self._batches.append((dues_ms, batch, ttl_us))
            self.size_bytes += batch.nbytes

    def _flush(self) -> None:
        if not self._dues_ms:
            return
        batch = row_reader(self._schema).batch(self._rows) if self._typed else self._events.batch()
        self._batches.append((self._dues_ms, batch, self._ttl_us))
        self.size_bytes += batch.nbytes
        self._rows, self._events, self._dues_ms = [], EventColumns(), array("q")

    def drain(self, now_ms: int, compression: str) -> list[DelayedChunk]:
        """Return all of them as `chunks` does, and hold none any more."""
        found = self.chunks(now_ms, compression)
        self._batches, self.size_bytes = [], 0
        return found

    def chunks(self, now_ms: int, compression: str) -> list[DelayedChunk]:
        """Return all of them, encoded, each part with events that are due within one stretch of time.

        Args:
            now_ms: the time, in milliseconds since 1970.
            compression: as `encode_batch` takes it.
        """
        self._flush()
        stretch = partial(stretch_of, now_ms=now_ms)
        return [
            chunk
            for dues_ms, batch, ttl_us in self._batches
            for chunk in chunks_of(*_in_order(dues_ms, batch), self._schema_id, ttl_us, compression, stretch)
        ]


def _in_order(dues_ms: Sequence[int], batch: pa.RecordBatch) -> tuple[Sequence[int], pa.RecordBatch]:
    """Return events in the order in which they are due; of those that are due at once, in that of their puts."""
    import pyarrow.compute as pc  # which takes long: only for a program that delays events

    values = pa.Array.from_buffers(pa.int64(), len(dues_ms), [None, pa.py_buffer(array("q", dues_ms))])
    order = pc.array_sort_indices(values)  # stable
    in_order = values.take(order)
    if in_order.equals(values):
        return dues_ms, batch
    return array("q", in_order.to_pylist()), batch.take(order)
