"""Dead letters: events that a worker gave up, with the reasons in their headers.

An event keeps its body and headers. A row of a typed channel becomes the body of an event, as an Arrow IPC stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN, Event
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.error_text import text_of
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import accept_batch, fit_batch
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.workers.letter_headers import (
    ATTEMPTS,
    CHANNEL,
    CHANNEL_UUID,
    ERROR_CODE,
    ERROR_MESSAGE,
    FORM,
    GROUP,
    PUT_TIME,
    WRITE_ORDER_ID,
    header_text,
    without_reason,
)

__all__ = [
    "ARROW_STREAM",
    "LetterOrigin",
    "arrow_stream",
    "dead_letters",
    "event_of",
    "form_of",
    "not_for_letters",
    "table_of",
]

ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""The `content_type` of a dead letter that holds rows of a typed channel."""

_CONTENT_TYPE = "content_type"
_EVENT = "event"


class LetterOrigin(NamedTuple):
    """Why events are given up, and where they come from.

    Args:
        channel: what users call the channel.
        uuid: its UUID.
        group: the group.
        attempts: how many calls with each of them failed.
        error: the last error.
    """

    channel: str
    uuid: str
    group: str
    attempts: int
    error: BaseException | None

    def headers(self, write_order_id: int, time_us: int) -> dict[str, str]:
        """Return the headers of an event's dead letter."""
        return {
            CHANNEL: header_text(self.channel),
            CHANNEL_UUID: self.uuid,
            GROUP: self.group,
            WRITE_ORDER_ID: str(write_order_id),
            PUT_TIME: datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(),
            ATTEMPTS: str(self.attempts),
            ERROR_CODE: type(self.error).__name__,
            ERROR_MESSAGE: header_text(text_of(self.error)),
        }


def dead_letters(found: Iterable[ReadBatch], origin: LetterOrigin, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return the dead letters of events, one for each.

    Args:
        found: the events.
        origin: why they are given up.
        schema: of a typed channel the newest schema; None for an event channel.
    """
    bodies: list[bytes] = []
    headers: dict[int, Mapping[str, str]] = {}
    for read in found:
        for i, (body, own) in enumerate(_rows(read, schema)):
            headers[len(bodies)] = {**own, **origin.headers(read.first_id + i, read.time_us)}
            bodies.append(body)
    return batch_from_columns(bodies, headers)


def _rows(read: ReadBatch, schema: pa.Schema | None) -> list[tuple[bytes, Mapping[str, str]]]:
    if schema is None:
        return [(event.body, {**event.headers, **form_of(event.headers)}) for event in events_from_batch(read)]
    rows = fit_batch(read.batch, schema)
    typed = {_CONTENT_TYPE: ARROW_STREAM}
    return [(arrow_stream(rows.slice(i, 1)), typed) for i in range(rows.num_rows)]


def form_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header that a dead letter needs of an event which looks like rows of a typed channel; else none."""
    return {FORM: _EVENT} if headers.get(_CONTENT_TYPE) == ARROW_STREAM else {}


def _holds_rows(letter: Event) -> bool:
    return letter.headers.get(_CONTENT_TYPE) == ARROW_STREAM and letter.headers.get(FORM) != _EVENT


def arrow_stream(rows: pa.RecordBatch) -> bytes:
    """Return rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def event_of(letter: Event) -> Event:
    """Return the event that a dead letter was, without what was added to it.

    Raises:
        SchemaError: it holds rows of a typed channel.
    """
    if _holds_rows(letter):
        raise SchemaError(
            f"the dead letter {letter.write_order_id} holds rows of a typed channel, and an event channel can't "
            "take them; replay it to a typed channel"
        )
    return Event(letter.body, without_reason(letter.headers))


def table_of(letters: Sequence[Event], schema: pa.Schema) -> pa.Table:
    """Return the rows that dead letters hold, as a channel has them.

    Args:
        letters: the dead letters; they may come from several channels.
        schema: the columns of the channel that they are for.

    Raises:
        SchemaError: one of them does not hold rows of a typed channel, or these can't be read, or do not fit.
    """
    return pa.Table.from_batches([rows for letter in letters for rows in _rows_of(letter, schema)], schema)


def _rows_of(letter: Event, schema: pa.Schema) -> list[pa.RecordBatch]:
    name = f"the dead letter {letter.write_order_id}"
    if not _holds_rows(letter):
        raise SchemaError(f"{name} is an event, and a typed channel can't take it; replay it to an event channel")
    try:
        batches = pa.ipc.open_stream(letter.body).read_all().to_batches()
    except NOT_ARROW as e:
        raise SchemaError(f"the rows of {name} can't be read: {e}") from e
    try:
        return [accept_batch(batch, schema, ID_COLUMN) for batch in batches]
    except SchemaError as e:
        raise SchemaError(f"{name}: {e}") from e


def not_for_letters(typed_channel: object) -> SchemaError:
    """Return the error of a typed channel that was named as one of dead letters.

    Args:
        typed_channel: what users call it.
    """
    return SchemaError(f"a dead-letter channel must be an event channel; {typed_channel} is a typed one")
