"""What a send keeps of an event: a copy that nobody else can change, and how much of the buffer it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN, Event, read_body, read_event, read_headers
from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.format.batch import accept_batch
from spillable_stream.format.row_values import row_reader
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import BODY_BYTES, TINY_BODIES, TINY_BODY_BYTES, copy_of_batch, headers_bytes

__all__ = ["own_batch", "own_event", "own_events", "own_row"]


def own_event(event: object, headers: object) -> tuple[bytes, dict[str, str] | None, int]:
    """Return the body, a copy of the headers, and how much both hold, in bytes; raises SchemaError."""
    if not issubclass(type(event), Event):
        body, own = read_body(event), None if headers is None else read_headers(headers)
    elif headers is None:
        body, own = read_event(event)
    else:
        raise SchemaError("an Event has its own headers; give headers with a body only")
    size_bytes = BODY_BYTES + len(body)
    if len(body) < 2:
        body, size_bytes = TINY_BODIES[body], TINY_BODY_BYTES
    return body, own, size_bytes if own is None else size_bytes + headers_bytes(own)


def own_row(event: object, headers: object, destination: Destination) -> tuple[dict[str, Any], int]:
    """Return a copy of a row, and how much it holds, in bytes; raises SchemaError."""
    if headers is not None:
        raise SchemaError(f"{destination.name} is a typed channel: its events have no headers")
    reader = row_reader(destination.target.schema)
    row = reader.read(event)
    return row, reader.size_bytes(row)


def own_events(events: Sequence[object], destination: Destination) -> tuple[list[Any], dict[int, dict[str, str]], int]:
    """Return copies of bodies, or of rows for a typed channel, the headers by index, and how much all of it holds.

    Raises:
        SchemaError: one of them does not fit.
    """
    headers: dict[int, dict[str, str]] = {}
    if destination.typed:
        reader = row_reader(destination.target.schema)
        rows = [reader.read(event) for event in events]
        return rows, headers, sum(map(reader.size_bytes, rows))
    bodies, size_bytes = [], 0
    for i, event in enumerate(events):
        body, own, event_bytes = own_event(event, None)
        bodies.append(body)
        size_bytes += event_bytes
        if own:
            headers[i] = own
    return bodies, headers, size_bytes


def own_batch(rows: pa.RecordBatch | pa.Table, destination: Destination) -> tuple[pa.RecordBatch, int]:
    """Return a copy of Arrow rows as one batch in the channel's schema, and how much it holds, in bytes.

    Raises:
        OptionError: there are none.
        SchemaError: they do not fit, or can't be joined.
        EventTooLargeError: they are more than Arrow can write at once.
    """
    given, schema = rows.to_batches() if isinstance(rows, pa.Table) else [rows], destination.target.schema
    fitted = [accept_batch(each, schema, ID_COLUMN) for each in given if each.num_rows]
    if not fitted:
        raise OptionError("send_batch needs at least one event")
    return copy_of_batch(_joined(fitted))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch of several, in the channel's schema: Arrow can't join all categories, and some wrongly.

    Raises:
        SchemaError: Arrow can't join columns of their types, or no one column holds so much.
    """
    if len(batches) == 1:
        return batches[0]
    try:
        joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    except pa.ArrowNotImplementedError as e:
        raise SchemaError(f"send_batch can't join the batches of the table ({e}); send each of them") from e
    if len(joined) > 1:  # more than 2 GiB of one column
        raise SchemaError("send_batch can't join the batches of the table: a column is too large; send each of them")
    return joined[0]
