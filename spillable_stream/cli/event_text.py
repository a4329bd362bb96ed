"""Events as lines of text: bodies, and rows and whole events as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN, Event
from spillable_stream.channel.taken_events import rows_from_table
from spillable_stream.cli.map_text import rows_with_plain_maps
from spillable_stream.cli.text_values import BASE64

__all__ = ["delayed_lines", "event_line", "json_row", "lines_of", "plain_value", "rows_of"]


def json_row(row: Mapping[str, Any] | list[Any]) -> bytes:
    """Return a row, or a list, as one line of JSON.

    Times are in ISO 8601, durations in seconds, decimals and all that JSON has no type for are strings. Bytes are text
    where they are UTF-8, else an object ``{"base64": …}``. JSON has no numbers NaN and Infinity: they are written
    bare, as Python and Arrow do and `spillable put` reads.
    """
    return _ENCODER.encode(row).encode("utf-8", "surrogateescape")


def plain_value(value: object) -> object:
    """Return a value that JSON has no type for as one that it has; see `json_row`."""
    if isinstance(value, bytes):
        return _bytes_value(value)
    if isinstance(value, datetime) and (offset := value.utcoffset()) is not None and offset.seconds % 60:
        value = value.astimezone(UTC)  # no text says the seconds that zones were off UTC by, before there were zones
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _seconds(value)
    return str(value)


def _bytes_value(value: bytes) -> object:
    try:
        if not value.startswith(BASE64):
            return value.decode()
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(value).decode()}


def _seconds(value: timedelta) -> float | str:
    """Return a duration in seconds; as text where no number of JSON says it exactly."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    exact = Decimal(micros * 1000 + getattr(value, "nanoseconds", 0)).scaleb(-9)
    seconds = float(exact)
    return seconds if Decimal(repr(seconds)) == exact else str(exact)


_ENCODER = json.JSONEncoder(default=plain_value, ensure_ascii=False)


def event_line(event: Event | Mapping[str, Any], *, as_json: bool) -> bytes:
    """Return an event that was taken as a line, without its end.

    Args:
        event: an event, or the row of a typed channel.
        as_json: whether to return all of an event as JSON, rather than its body.
    """
    if not isinstance(event, Event):
        return json_row(event)
    if not as_json:
        return event.body
    put_at = datetime.fromtimestamp(event.timestamp, UTC)
    return json_row({"id": event.write_order_id, "time": put_at, "headers": dict(event.headers), "body": event.body})


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch for `json_row`, with maps as `spillable_stream.cli.map_text` has them."""
    return rows_with_plain_maps(batch.to_pylist(), batch.schema)


def lines_of(batch: pa.RecordBatch, *, typed: bool, as_json: bool) -> Iterator[bytes]:
    """Yield the events of a batch that was read, as lines without their ends.

    Args:
        batch: what `Channel.read` returned.
        typed: whether it is of a typed channel.
        as_json: whether to yield whole events with their IDs as JSON, rather than bodies or rows.

    Raises:
        SchemaError: Python has no object for a value, such as a time after the year 9999.
    """
    if not typed and not as_json:
        yield from batch.column("body").to_pylist()
        return
    for row in rows_with_plain_maps(rows_from_table(batch), batch.schema):
        event_id = row.pop(ID_COLUMN)
        name = ID_COLUMN if typed else "id"  # a row may have a column of this name
        yield json_row({name: event_id, **row} if as_json else row)


def delayed_lines(dues: Sequence[int], batch: pa.RecordBatch, *, typed: bool, as_json: bool) -> Iterator[bytes]:
    """Yield delayed events as lines without their ends.

    Args:
        dues: when each is due, in milliseconds since 1970.
        batch: the events.
        typed: whether they are rows of a typed channel.
        as_json: whether to yield whole events with their due times as JSON, rather than bodies or rows. A row, whose
            columns may have any name, is apart.
    """
    if not typed and not as_json:
        yield from batch.column("body").to_pylist()
        return
    for due_ms, row in zip(dues, rows_of(batch), strict=True):
        event = {"row": row} if typed else row
        yield json_row({"deliver_at": datetime.fromtimestamp(due_ms / 1000, UTC), **event} if as_json else row)
