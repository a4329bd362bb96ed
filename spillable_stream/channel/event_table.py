"""Some events of a channel, looked at and not taken: what `Channel.head` and `Channel.tail` return."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from typing import Any

import pyarrow as pa

from spillable_stream.arguments import whole_number
from spillable_stream.channel.arrow_batches import read_batches
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.figures import size_text
from spillable_stream.channel.seek_target import SeekTarget
from spillable_stream.channel.taken_events import ID_FIELD, rows_from_table
from spillable_stream.counted import counted
from spillable_stream.engine.engine import Engine
from spillable_stream.errors import SchemaError
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.shown_value import printable

__all__ = ["EventTable", "body_text", "events_from", "last_events", "value_text"]

_MOST_CHARACTERS = 200
_MOST_ROWS = 100  # of HTML
_MOST_LINES = 20
_BATCH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class EventTable:
    """Some events of a channel, in order. A notebook shows it as a table, and a shell as lines.

    Args:
        channel: the channel's path.
        typed: whether it is a typed channel.
        table: the events, with their IDs in the column ``write_order_id``.
    """

    channel: str
    typed: bool
    table: pa.Table

    def __len__(self) -> int:
        """Return how many events there are."""
        return int(self.table.num_rows)

    @property
    def ids(self) -> list[int]:
        """The events' write-order IDs."""
        found: list[int] = self.table.column(ID_COLUMN).to_pylist()
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return the events as dictionaries, of their columns and ``write_order_id``.

        Headers of an event channel are a dictionary, too; of nulls, no headers and an empty body.

        Raises:
            SchemaError: Python has no object for a value, such as a time after the year 9999.
        """
        found = rows_from_table(self.table)
        if not self.typed:
            for row in found:
                row["headers"], row["body"] = dict(row["headers"] or ()), row["body"] or b""
        return found

    def columns(self) -> list[str]:
        """Return the names of the columns as they are shown: the ID is the first one."""
        return [ID_COLUMN, *(name for name in self.table.column_names if name != ID_COLUMN)]

    def texts(self) -> list[list[str]]:
        """Return the events as they are shown, with a text for each of `columns`."""
        columns = self.columns()
        try:
            return [[value_text(row[name]) for name in columns] for row in self.rows()]
        except SchemaError:
            return [[_scalar_text(self.table.column(name)[at]) for name in columns] for at in range(len(self))]

    def first(self, n: int) -> EventTable:
        """Return the first ``n`` of these events, or all if there are fewer."""
        return EventTable(self.channel, self.typed, self.table.slice(0, n))

    def __repr__(self) -> str:
        return _lines(self)

    def _repr_html_(self) -> str:
        return _html(self)


def events_from(engine: Engine, start: SeekTarget, n: int) -> EventTable:
    """Return up to ``n`` events from one on.

    Args:
        engine: the channel.
        start: the first one, said as in `Channel.seek`.
        n: how many at most.

    Raises:
        DataLossError: the event has left the channel.
        OptionError: ``n`` is less than 1, or ``start`` can't be used.
    """
    left, found = min(whole_number("n", n), sys.maxsize), []
    for batch in read_batches(engine, start, max_bytes=_BATCH_BYTES):
        found.append(batch.slice(0, left))
        left -= found[-1].num_rows
        if not left:
            break
    return _table(engine, found)


def last_events(engine: Engine, n: int) -> EventTable:
    """Return the last ``n`` events; the arguments and errors are those of `events_from`."""
    n = min(whole_number("n", n), sys.maxsize)
    with engine.snapshot() as state:
        first, last = state.beginning(), state.last_id
    back = n
    while True:  # IDs may be missing among the last ones
        start = max(first, last - back + 1)
        found = [] if start > last else list(read_batches(engine, start, last, max_bytes=_BATCH_BYTES))
        if start <= first or sum(batch.num_rows for batch in found) >= n:
            table = _table(engine, found)
            return EventTable(table.channel, table.typed, table.table.slice(max(0, len(table) - n)))
        back *= 4


def _table(engine: Engine, batches: list[pa.RecordBatch]) -> EventTable:
    schema = engine.schemas()[-1].append(ID_FIELD)
    table = pa.Table.from_batches([b.cast(schema) for b in batches], schema)
    return EventTable(str(engine.path), engine.is_typed(), table)


def body_text(body: bytes, most: int = _MOST_CHARACTERS) -> str:
    """Return a body as text if it is text, otherwise as hexadecimal digits; of a long one, its beginning.

    Args:
        body: the body.
        most: how many characters at most.
    """
    begin = body[: 4 * most]
    try:
        text = begin.decode() if len(begin) == len(body) else begin.decode(errors="ignore")
        is_text = all(c.isprintable() or c.isspace() for c in text)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        text = body[:most].hex(" ")
    more = len(text) > most or len(begin) < len(body)
    return f"{text[:most]} … ({size_text(len(body))})" if more else text


def value_text(value: object) -> str:
    """Return a value of a row as a table shows it."""
    if isinstance(value, bytes):
        return body_text(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {said}" for name, said in value.items())
    text = "" if value is None else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _scalar_text(scalar: pa.Scalar) -> str:
    try:
        return value_text(scalar.as_py())
    except NOT_ARROW:
        return "(Python has no object for it)"


def _lines(events: EventTable) -> str:
    """Return events as lines of text: the channel, the columns' names, and a line for each of the first."""
    columns = events.columns()
    rows = events.first(_MOST_LINES).texts()
    more = len(events) - _MOST_LINES
    return "\n".join([
        f"{counted(len(events), 'event')} of {events.channel}",
        *(printable(" | ".join(row)) for row in ([columns, *rows] if rows else [])),
        *([f"… and {counted(more, 'more event')}"] if more > 0 else []),
    ])  # fmt: skip


def _html(events: EventTable) -> str:
    """Return events as a table of self-contained HTML."""
    line = "border:0;border-bottom:1px solid rgba(128,128,128,.25);padding:2px 16px 2px 0;text-align:left"
    columns = events.columns()
    head = "".join(f'<th scope="col" style="{line}">{escape(name)}</th>' for name in columns)
    rows = [
        "".join(f'<td style="{line};vertical-align:top">{escape(text)}</td>' for text in row)
        for row in events.first(_MOST_ROWS).texts()
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = len(events) - _MOST_ROWS
    note = f"<div>… and {counted(more, 'more event')}</div>" if more > 0 else ""
    title = f'<b>{counted(len(events), "event")}</b> of <code style="background:none">{escape(events.channel)}</code>'
    table = f'<table style="border-collapse:collapse;margin-top:6px"><tr>{head}</tr>{body}</table>'
    return f'<div style="font-size:13px;line-height:1.5">{title}{table}{note}</div>'
