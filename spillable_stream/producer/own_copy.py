"""What a send keeps of an event: a copy that nobody else can change, and how much of the buffer it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spillable_stream.channel.event import Event, read_body, read_event, read_headers
from spillable_stream.errors import SchemaError
from spillable_stream.format.row_values import row_reader
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.event_size import BODY_BYTES, TINY_BODIES, TINY_BODY_BYTES, headers_bytes

__all__ = ["own_event", "own_row", "own_rows"]


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


def own_rows(events: Sequence[object], destination: Destination) -> tuple[list[dict[str, Any]], int]:
    """Return copies of rows, and how much they hold, in bytes; raises SchemaError."""
    reader = row_reader(destination.target.schema)
    rows = [reader.read(event) for event in events]
    return rows, sum(map(reader.size_bytes, rows))
