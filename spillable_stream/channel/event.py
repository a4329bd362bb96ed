"""Events, and the way between Python objects and Arrow batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import error as StructError
from struct import pack
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA, fit_batch
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.format.value_leaf import shown
from spillable_stream.log.event_reader import ReadBatch

__all__ = [
    "ID_COLUMN",
    "ID_FIELD",
    "Event",
    "EventColumns",
    "batch_from_columns",
    "batch_from_events",
    "events_from_batch",
    "id_column",
    "read_body",
    "read_event",
    "read_headers",
    "rows_from_batch",
    "table_from_batches",
]

ID_COLUMN = "write_order_id"

_SHOWN_BYTES = 1024
_SHOWN_LETTERS = 4096
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

    def __repr__(self) -> str:
        if isinstance(self.body, bytes) and len(self.body) > _SHOWN_BYTES:
            body = f"{self.body[:_SHOWN_BYTES]!r}… ({len(self.body):,} bytes)"
        else:
            body = repr(self.body)
        headers = repr(self.headers)
        if len(headers) > _SHOWN_LETTERS:
            headers = f"{headers[:_SHOWN_LETTERS]}… ({len(self.headers):,} headers)"
        return (
            f"{type(self).__qualname__}(body={body}, headers={headers}, write_order_id={self.write_order_id!r}, "
            f"transaction_id={self.transaction_id!r}, timestamp={self.timestamp!r})"
        )


def read_event(event: Any) -> tuple[bytes, dict[str, str] | None]:
    """Return the body of an event and a copy of its headers, None if it has none: nobody else can change these.

    Raises:
        SchemaError: it is not an `Event`, its body is not bytes, or a header is not a string of valid Unicode.
    """
    if not issubclass(type(event), Event):
        raise SchemaError(f"an event channel takes spillable_stream.Event, not {type(event).__name__}")
    try:
        return read_body(event.body), read_headers(event.headers)
    except SchemaError:
        raise
    except Exception as e:  # of a class of somebody's own
        raise SchemaError(f"an event can't be read: {type(e).__name__} in a {type(event).__name__}") from e


def read_body(body: Any) -> bytes:
    """Return a body as plain bytes; raises SchemaError if it is none."""
    if type(body) is bytes:
        return body
    if issubclass(type(body), bytes):
        return bytes.__bytes__(body)
    raise SchemaError(f"an event's body must be bytes, not {type(body).__name__}")


def read_headers(headers: Any) -> dict[str, str] | None:
    """Return a copy of headers, None if there are none.

    Raises:
        SchemaError: they are not a mapping of strings of valid Unicode to such strings or None.
    """
    if type(headers) is not dict:
        if not isinstance(headers, Mapping):
            raise SchemaError(f"an event's headers must be a mapping, not {type(headers).__name__}")
        try:
            headers = dict(headers.items())
        except Exception as e:  # anybody's code
            raise SchemaError(f"an event's headers can't be read: {type(e).__name__}") from e
    if not headers:
        return None
    own: dict[str, str] = headers.copy()  # at once: another thread may change it
    for name, value in own.items():
        if type(name) is not str or not (value is None or type(value) is str):
            return _plain_headers(own)
        if not (name.isascii() and (value is None or value.isascii())):
            _check_unicode(name + (value or ""))
    return own


def _plain_headers(headers: dict[Any, Any]) -> dict[str, str]:
    """Return headers with plain strings for those of classes of somebody's own."""
    own: dict[str, Any] = {}
    for name, value in headers.items():
        if not issubclass(type(name), str) or not (value is None or issubclass(type(value), str)):
            raise SchemaError(f"an event's headers must be strings, not {shown(name)}: {shown(value)}")
        own[str.__str__(name)] = value if value is None else str.__str__(value)
    if len(own) < len(headers):
        raise SchemaError("an event's headers have one name twice: names are compared as plain strings")
    for name, value in own.items():
        _check_unicode(name + (value or ""))
    return own


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SchemaError(f"an event's headers must be valid Unicode: {e}") from e


ID_FIELD = pa.field(ID_COLUMN, pa.int64())
"""The column's field, as `id_column` has it."""


def id_column(read: ReadBatch) -> pa.Array:
    """Return the write-order IDs of what was read: mostly a slice of IDs that other reads have slices of, too."""
    global _last_ids
    first_id, rows = read.first_id, read.batch.num_rows
    begin, ids = _last_ids
    if not begin <= first_id <= begin + len(ids) - rows:
        import pyarrow.compute as pc  # takes a fifth of this package's import: only for a program that takes

        first = _int64_array([first_id])[0]  # `pyarrow.scalar` imports pandas, see below
        begin = first_id
        if rows > _COUNT:
            return pc.add(_int64_array(range(rows)), first)
        ids = pc.add(_COUNTED, first)
        _last_ids = begin, ids
    return ids.slice(first_id - begin, rows)


class EventColumns:
    """Events in columns, which nobody else can change.

    Attributes:
        bodies: their bodies.
        size_bytes: what these have together.
    """

    __slots__ = ("_keys", "_offsets", "_values", "bodies", "size_bytes")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.size_bytes: int = 0
        self._keys: list[str] = []
        self._values: list[str | None] = []
        self._offsets = [0]

    @classmethod
    def of(cls, events: Sequence[Any]) -> EventColumns:
        """Return events as columns; raises what `read_event` raises."""
        found = cls()
        keys, values, offsets, bodies = found._keys, found._values, found._offsets, found.bodies
        for event in events:
            if type(event) is not Event or type(given := event.headers) is not dict:
                return cls._one_by_one(events)
            bodies.append(event.body)
            if given:
                keys.extend(given)
                values.extend(given.values())
            offsets.append(len(keys))
        if not found._are_plain():
            return cls._one_by_one(events)
        found.size_bytes = sum(map(len, bodies))
        return found

    def _are_plain(self) -> bool:
        """Tell, many at a time, whether everything is what it must be; no if that takes a closer look."""
        keys, values = self._keys, self._values
        if not set(map(type, self.bodies)) <= {bytes} or len(keys) != len(values):
            return False
        if not set(map(type, keys)) <= {str} or not set(map(type, values)) <= {str, type(None)}:
            return False
        return all(map(str.isascii, keys)) and all(v is None or v.isascii() for v in values)

    @classmethod
    def _one_by_one(cls, events: Sequence[Any]) -> EventColumns:
        found = cls()
        for event in events:
            body, headers = read_event(event)
            found.bodies.append(body)
            found.size_bytes += len(body)
            if headers:
                found._keys.extend(headers)
                found._values.extend(headers.values())
            found._offsets.append(len(found._keys))
        return found

    def __len__(self) -> int:
        return len(self.bodies)

    def extend(self, others: EventColumns) -> None:
        """Add other events behind these."""
        first = len(self._keys)
        self.bodies += others.bodies
        self.size_bytes += others.size_bytes
        self._keys += others._keys
        self._values += others._values
        self._offsets += [first + offset for offset in others._offsets[1:]] if first else others._offsets[1:]

    def pieces(self, most_bytes: int) -> list[EventColumns]:
        """Return the events in parts of so many bytes of bodies, or of one event that has more."""
        if self.size_bytes <= most_bytes:
            return [self]
        found = [EventColumns()]
        for i, body in enumerate(self.bodies):
            piece = found[-1]
            if piece.bodies and piece.size_bytes + len(body) > most_bytes:
                piece = EventColumns()
                found.append(piece)
            start, end = self._offsets[i], self._offsets[i + 1]
            piece.bodies.append(body)
            piece.size_bytes += len(body)
            piece._keys += self._keys[start:end]
            piece._values += self._values[start:end]
            piece._offsets.append(len(piece._keys))
        return found

    def batch(self) -> pa.RecordBatch:
        """Return them as a record batch of the event schema.

        Raises:
            SchemaError: the bodies or the headers have more than 2 GiB together.
        """
        return _event_batch(self._offsets, self._keys, ["" if v is None else v for v in self._values], self.bodies)


def batch_from_events(events: Sequence[Event]) -> pa.RecordBatch:
    """Return events as a record batch of the event schema.

    Raises:
        SchemaError: something is not an event that can be stored, or they have more than 2 GiB together.
    """
    return EventColumns.of(events).batch()


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
    offsets: Sequence[int] = _equal_ends(0, len(bodies))
    if headers:
        offsets = ends = [0]
        for i in range(len(bodies)):
            if found := headers.get(i):
                keys.extend(found)
                values.extend("" if v is None else v for v in found.values())
            ends.append(len(keys))
    return _event_batch(offsets, keys, values, bodies)


def _event_batch(offsets: Sequence[int], keys: list[str], values: list[str], bodies: Sequence[bytes]) -> pa.RecordBatch:
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


_PIECE_BYTES = 64 << 10
_COUNT = 10_000  # transactionCapacity's default
_COUNTED = _int64_array(range(_COUNT))
_last_ids: tuple[int, pa.Array] = (0, _COUNTED)


def _int32_array(values: Sequence[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, _int32_buffer(values)])


def _int32_buffer(values: Sequence[int]) -> pa.Buffer:
    if isinstance(values, array):
        return pa.py_buffer(values)
    try:
        return pa.py_buffer(pack(f"{len(values)}i", *values))  # in half the time of an array
    except StructError as e:
        raise OverflowError from e


def _text_array(texts: Iterable[str]) -> pa.Array:
    return _array(pa.string(), [t.encode() for t in texts])


def _array(type_: pa.DataType, parts: Sequence[bytes]) -> pa.Array:
    lengths = list(map(len, parts))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        ends: Sequence[int] = _equal_ends(lengths[0], len(lengths))
    else:
        ends = list(accumulate(lengths, initial=0))
    return pa.Array.from_buffers(type_, len(parts), [None, _int32_buffer(ends), _joined(parts, ends[-1])])


def _joined(parts: Sequence[bytes], size_bytes: int) -> pa.Buffer:
    """Join parts in memory of Arrow's pool: for large `bytes` the C library asks the kernel for new pages each time."""
    if size_bytes <= _PIECE_BYTES:
        return pa.py_buffer(b"".join(parts))
    step = max(1, len(parts) * _PIECE_BYTES // size_bytes)
    buffer, begin = pa.allocate_buffer(size_bytes), 0
    view = memoryview(buffer).cast("B")
    for i in range(0, len(parts), step):
        piece = b"".join(parts[i : i + step])
        end = begin + len(piece)
        view[begin:end] = piece
        begin = end
    return buffer


@lru_cache(maxsize=8)
def _equal_ends(length: int, count: int) -> array[int]:
    """Return where each of some parts of one length ends, behind a 0; nobody changes it."""
    if not length:
        return array("i", bytes(4 * (count + 1)))
    return array("i", range(0, length * count + 1, length))


def events_from_batch(read: ReadBatch) -> list[Event]:
    """Return what was read from an event channel as events.

    Raises:
        SchemaError: a header is not text: an earlier version took bytes that are not UTF-8.
    """
    try:
        headers, bodies = header_maps(read.batch.column(0)), read.batch.column(1).to_pylist()
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


def header_maps(headers: pa.MapArray) -> list[dict[str, str]]:
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


def table_from_batches(found: Sequence[ReadBatch], schema: pa.Schema) -> pa.Table:
    """Return what was read as one table with the events' IDs in a column ``write_order_id`` at the end.

    Args:
        found: the events; at least one.
        schema: the channel's newest schema.
    """
    ids = pa.chunked_array([id_column(read) for read in found])
    table = pa.Table.from_batches([fit_batch(read.batch, schema) for read in found], schema)
    return table.append_column(ID_FIELD, ids)
