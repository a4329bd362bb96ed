"""Turns events that were read from a channel into Python objects, or into one table, with their IDs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN, Event
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import fit_batch
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.state.ranges import among_events

__all__ = [
    "ID_FIELD",
    "events_from_batch",
    "header_maps",
    "id_column",
    "rows_from_batch",
    "rows_from_table",
    "table_from_batches",
]

ID_FIELD = pa.field(ID_COLUMN, pa.int64())
"""The column's field, as `id_column` has it."""


def _int64_array(values: Iterable[int]) -> pa.Array:
    """Return an array, made of a buffer: for a list, `pyarrow.array` imports pandas where that is installed."""
    buffer = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(buffer), [None, pa.py_buffer(buffer)])


_COUNT = 10_000  # transactionCapacity's default
_COUNTED = _int64_array(range(_COUNT))
_last_ids: tuple[int, pa.Array] = (0, _COUNTED)


def id_column(read: ReadBatch) -> pa.Array:
    """Return the write-order IDs of what was read."""
    return _ids(read.first_id, read.batch.num_rows)


def _ids(first_id: int, rows: int) -> pa.Array:
    """Return IDs without gaps: mostly a slice of those that other reads have slices of, too."""
    global _last_ids
    begin, ids = _last_ids
    if not begin <= first_id <= begin + len(ids) - rows:
        import pyarrow.compute as pc  # takes a fifth of this package's import: only for a program that takes

        first = _int64_array([first_id])[0]  # `pyarrow.scalar` imports pandas, too
        begin = first_id
        if rows > _COUNT:
            return pc.add(_int64_array(range(rows)), first)
        ids = pc.add(_COUNTED, first)
        _last_ids = begin, ids
    return ids.slice(first_id - begin, rows)


def events_from_batch(read: ReadBatch) -> list[Event]:
    """Return what was read from an event channel as events; a null for a body is an empty one.

    Raises:
        SchemaError: a header is not text: an earlier version took bytes that are not UTF-8.
    """
    column = read.batch.column(1)
    if column.null_count:  # Spark wrote some, or an Arrow batch had them
        column = column.fill_null(b"")
    try:
        headers, bodies = header_maps(read.batch.column(0)), column.to_pylist()
    except NOT_ARROW as e:
        raise _not_given(read, e) from e
    seconds = read.time_us / 1e6
    first, transaction_id = read.first_id, read.transaction_id
    return [
        Event(body, header, first + i, transaction_id, seconds)
        for i, (body, header) in enumerate(zip(bodies, headers, strict=True))
    ]


def _not_given(read: ReadBatch, error: Exception) -> SchemaError:
    return SchemaError(
        f"{_no_object(read.first_id, read.last_id, error)}. Nothing of that has left the queue: take it with "
        "take_batch, which gives Arrow"
    )


def _no_object(first_id: int, last_id: int, error: Exception) -> str:
    return f"Python has no object for a value {among_events(first_id, last_id)} ({error})"


def header_maps(headers: pa.MapArray) -> list[dict[str, str]]:
    """Return one mapping for each row; without the per-row objects that ``to_pylist`` makes."""
    offsets = headers.offsets.to_pylist()
    start = offsets[0]
    if start == offsets[-1]:
        return [{} for _ in range(len(headers))]
    keys = headers.keys.slice(start, offsets[-1] - start).to_pylist()
    values = headers.items.slice(start, offsets[-1] - start).to_pylist()
    pairs = list(zip(keys, ("" if v is None else v for v in values), strict=True))
    return [dict(pairs[a - start : b - start]) for a, b in pairwise(offsets)]


def rows_from_batch(read: ReadBatch) -> list[dict[str, Any]]:
    """Return what was read from a typed channel as dictionaries.

    Raises:
        SchemaError: Python has no object for a value, such as a time after the year 9999.
    """
    try:
        rows: list[dict[str, Any]] = read.batch.to_pylist()
    except NOT_ARROW as e:
        raise _not_given(read, e) from e
    return rows


def rows_from_table(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return events that were looked at as dictionaries.

    Args:
        table: the events; an error names them if their IDs are in the column ``write_order_id``.

    Raises:
        SchemaError: Python has no object for a value, such as a time after the year 9999.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except NOT_ARROW as e:
        if ID_COLUMN not in table.schema.names:  # what passes a component of an agent
            raise SchemaError(f"Python has no object for a value ({e})") from e
        first, last = (table.column(ID_COLUMN)[at].as_py() for at in (0, -1))
        raise SchemaError(f"{_no_object(first, last, e)}; Arrow has it: export them to a .arrow file") from e
    return rows


def table_from_batches(found: Sequence[ReadBatch], schema: pa.Schema) -> pa.Table:
    """Return what was read as one table with the events' IDs in a column ``write_order_id`` at the end.

    Args:
        found: the events; at least one.
        schema: the channel's newest schema.
    """
    table = pa.Table.from_batches([fit_batch(read.batch, schema) for read in found], schema)
    runs = _runs(found) if len(found) > 1 else ((found[0].first_id, found[0].batch.num_rows),)
    return table.append_column(ID_FIELD, pa.chunked_array([_ids(first_id, count) for first_id, count in runs]))


def _runs(found: Iterable[ReadBatch]) -> Iterator[tuple[int, int]]:
    """Yield the first ID and the number of events of each run of reads that follow each other without a gap."""
    first_id = following = 0
    for read in found:
        if read.first_id != following:
            if following:
                yield first_id, following - first_id
            first_id = read.first_id
        following = read.first_id + read.batch.num_rows
    yield first_id, following - first_id
