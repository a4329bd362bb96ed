"""Events, and the way between Python objects and Arrow batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, repeat
from typing import Any

import pyarrow as pa

from spillable_stream.channel.row_values import check_rows
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.log.reader import ReadBatch

__all__ = [
    "ID_COLUMN",
    "Event",
    "batch_from_columns",
    "batch_from_events",
    "batch_from_rows",
    "check_events",
    "events_from_batch",
    "id_column",
    "rows_from_batch",
]

ID_COLUMN = "write_order_id"

_NO_OBJECT = (*NOT_ARROW, ArithmeticError)


@dataclass(frozen=True, slots=True)
class Event:
    """One event: a body and headers (Flume's ``Event``).

    Args:
        body: the payload, in bytes.
        headers: names and values; a value of None reads back as "".
        write_order_id: its place in the channel's order; 0 until it is taken.
        transaction_id: the transaction that put it; 0 until it is taken.
        timestamp: when that was committed, in seconds since 1970; 0 until it is taken.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    write_order_id: int = field(default=0, compare=False)
    transaction_id: int = field(default=0, compare=False)
    timestamp: float = field(default=0.0, compare=False)


def check_events(events: Iterable[Any]) -> None:
    """Refuse what is no event.

    Raises:
        SchemaError: something is no `Event`, its body is not bytes, or a header is no string of valid Unicode.
    """
    for event in events:
        if not isinstance(event, Event):
            raise SchemaError(f"an event channel takes spillable_stream.Event, not {type(event).__name__}")
        if not isinstance(event.body, bytes):
            raise SchemaError(f"an event's body must be bytes, not {type(event.body).__name__}")
        for name, value in event.headers.items():
            if not isinstance(name, str) or not (value is None or isinstance(value, str)):
                raise SchemaError(f"an event's headers must be strings, not {name!r}: {value!r}")
            if not (name.isascii() and (value is None or value.isascii())):
                _check_unicode(name + (value or ""))


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SchemaError(f"an event's headers must be valid Unicode: {e}") from e


def id_column(read: ReadBatch) -> pa.Array:
    """Return the write-order IDs of what was read: mostly a slice of IDs that other reads have slices of, too."""
    global _last_ids
    first_id, rows = read.first_id, read.batch.num_rows
    begin, ids = _last_ids
    if not begin <= first_id <= begin + len(ids) - rows:
        import pyarrow.compute as pc  # takes a fifth of this package's import: for who takes

        first = _int64_array([first_id])[0]  # `pyarrow.scalar` imports pandas, see below
        begin = first_id
        if rows > _COUNT:
            return pc.add(_int64_array(range(rows)), first)
        ids = pc.add(_COUNTED, first)
        _last_ids = begin, ids
    return ids.slice(first_id - begin, rows)


def batch_from_events(events: Sequence[Event]) -> pa.RecordBatch:
    """Return events (see `check_events`) as a record batch of the event schema.

    Raises:
        SchemaError: the bodies or the headers have more than 2 GiB together.
    """
    keys: list[str] = []
    values: list[str] = []
    offsets = [0]
    for event in events:
        if event.headers:
            keys.extend(event.headers)
            values.extend("" if v is None else v for v in event.headers.values())
        offsets.append(len(keys))
    return _event_batch(offsets, keys, values, [e.body for e in events])


def batch_from_columns(bodies: Sequence[bytes], headers: Mapping[int, Mapping[str, str]]) -> pa.RecordBatch:
    """Return events as a record batch of the event schema.

    Args:
        bodies: the payloads.
        headers: the headers of those events that have any, by index.

    Raises:
        SchemaError: the bodies or the headers have more than 2 GiB together.
    """
    keys: list[str] = []
    values: list[str] = []
    offsets: Iterable[int] = repeat(0, len(bodies) + 1)
    if headers:
        ends = [0]
        for i in range(len(bodies)):
            if found := headers.get(i):
                keys.extend(found)
                values.extend("" if v is None else v for v in found.values())
            ends.append(len(keys))
        offsets = ends
    return _event_batch(offsets, keys, values, bodies)


def _event_batch(offsets: Iterable[int], keys: list[str], values: list[str], bodies: Sequence[bytes]) -> pa.RecordBatch:
    try:
        columns = [
            pa.MapArray.from_arrays(_int32_array(offsets), _text_array(keys), _text_array(values)),
            _array(pa.binary(), bodies),
        ]
    except OverflowError as e:
        raise SchemaError("the bodies or headers of one batch are larger than 2 GiB; put fewer events at once") from e
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


# Built from buffers: for a list, `pyarrow.array` imports pandas where it is installed, which takes longer
# than a thousand transactions.


def _int64_array(values: Iterable[int]) -> pa.Array:
    buffer = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(buffer), [None, pa.py_buffer(buffer)])


_COUNT = 10_000  # transactionCapacity's default
_COUNTED = _int64_array(range(_COUNT))
_last_ids: tuple[int, pa.Array] = (0, _COUNTED)


def _int32_array(values: Iterable[int]) -> pa.Array:
    buffer = array("i", values)
    return pa.Array.from_buffers(pa.int32(), len(buffer), [None, pa.py_buffer(buffer)])


def _text_array(texts: Iterable[str]) -> pa.Array:
    return _array(pa.string(), [t.encode() for t in texts])


def _array(type_: pa.DataType, parts: Sequence[bytes]) -> pa.Array:
    offsets = array("i", accumulate(map(len, parts), initial=0))
    return pa.Array.from_buffers(type_, len(parts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))])


def batch_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return mappings as a record batch of a typed channel.

    Raises:
        SchemaError: a row is no mapping, has an unknown column or field, or a value does not fit or would be cut.
    """
    names = set(schema.names)
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaError(f"a typed channel takes mappings of column to value, not {type(row).__name__}")
        if unknown := set(row) - names:
            raise SchemaError(f"the channel has no column {sorted(unknown)[0]!r}; it has {', '.join(schema.names)}")
    try:
        check_rows(rows, schema)
        batch = pa.RecordBatch.from_pylist([dict(r) for r in rows], schema=schema)
    except _NO_OBJECT as e:  # among them what is no valid Unicode
        raise SchemaError(f"a row does not fit the channel's schema: {e}") from e
    for name, column in zip(schema.names, batch.columns, strict=True):
        if column.null_count and not schema.field(name).nullable:
            raise SchemaError(f"the column {name!r} is not nullable")
    return batch


def events_from_batch(read: ReadBatch) -> list[Event]:
    """Return what was read from an event channel as events.

    Raises:
        SchemaError: a header is no text: an earlier version took what is not UTF-8.
    """
    try:
        headers, bodies = _header_maps(read.batch.column(0)), read.batch.column(1).to_pylist()
    except _NO_OBJECT as e:
        raise _not_given(read, e) from e
    seconds = read.time_us / 1e6
    first, transaction_id = read.first_id, read.transaction_id
    return [
        Event(body, header, first + i, transaction_id, seconds)
        for i, (body, header) in enumerate(zip(bodies, headers, strict=True))
    ]


def _not_given(read: ReadBatch, error: Exception) -> SchemaError:
    return SchemaError(
        f"Python has no object for a value among the events {read.first_id} to {read.last_id} ({error}); they are "
        "still in the queue: take them with take_batch, which gives them as Arrow"
    )


def _header_maps(headers: pa.MapArray) -> list[dict[str, str]]:
    """Return one mapping for each row; without the per-row objects that ``to_pylist`` makes."""
    offsets = headers.offsets.to_pylist()
    start = offsets[0]
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
    except _NO_OBJECT as e:
        raise _not_given(read, e) from e
    return rows
