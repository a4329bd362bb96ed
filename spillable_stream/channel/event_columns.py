"""Events as columns, and as Arrow batches made of these."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import error as StructError
from struct import pack
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event import Event, read_event
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.event_message import event_message

__all__ = ["EventColumns", "batch_from_columns", "batch_from_events"]

_PIECE_BYTES = 64 << 10
_FEW_HEADERS = 256  # from some more on, Arrow is faster


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

    def small_message(self) -> bytes | None:
        """Return the encapsulated Arrow message of `batch`; None if Arrow should make it, since they have much."""
        if self.size_bytes > _PIECE_BYTES or len(self._keys) > _FEW_HEADERS:
            return None
        keys = [key.encode() for key in self._keys]
        values = [b"" if value is None else value.encode() for value in self._values]
        if self.size_bytes + sum(map(len, keys)) + sum(map(len, values)) > _PIECE_BYTES:
            return None
        return event_message(self._offsets, keys, values, self.bodies)


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
        headers = _header_array(offsets, keys, values) if keys else _no_headers(len(bodies))
        columns = [headers, _array(pa.binary(), bodies)]
    except OverflowError as e:
        raise SchemaError("the bodies or headers of one batch are larger than 2 GiB; put fewer events at once") from e
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


def _header_array(offsets: Sequence[int], keys: list[str], values: list[str]) -> pa.MapArray:
    return pa.MapArray.from_arrays(_int32_array(offsets), _text_array(keys), _text_array(values))


@lru_cache(maxsize=8)
def _no_headers(count: int) -> pa.MapArray:
    """Return the headers of some events that have none; nobody changes them."""
    return _header_array(_equal_ends(0, count), [], [])


# Built from buffers: for a list, `pyarrow.array` imports pandas where it is installed, which takes longer
# than a thousand transactions.


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
