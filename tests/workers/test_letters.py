from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.channel.event import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.errors import SchemaError
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.workers.letters import LetterOrigin, arrow_stream, dead_letters, event_of, table_of

ORIGIN = LetterOrigin("/data/orders", "uuid", "billing", 3, ValueError("no such customer"))


def letters_of(read: ReadBatch, schema: pa.Schema | None = None) -> list[Event]:
    return events_from_batch(ReadBatch(1, 1, 0, 0, dead_letters([read], ORIGIN, schema)))


def test_a_dead_letter_says_what_happened_and_where_it_comes_from() -> None:
    events = [Event(b"a", {"k": "v", "dead_letter_group": "older"}), Event(b"b")]
    first, second = letters_of(ReadBatch(17, 5, 1_000_000, 0, batch_from_events(events)))
    assert first.body == b"a" and second.body == b"b"
    assert first.headers == {
        "k": "v",
        "dead_letter_channel": "/data/orders",
        "dead_letter_channel_uuid": "uuid",
        "dead_letter_group": "billing",
        "dead_letter_write_order_id": "17",
        "dead_letter_put_time": "1970-01-01T00:00:01+00:00",
        "dead_letter_attempts": "3",
        "dead_letter_error_code": "ValueError",
        "dead_letter_error_message": "no such customer",
    }
    assert second.headers["dead_letter_write_order_id"] == "18"
    assert event_of(first) == Event(b"a", {"k": "v"})


def test_an_error_that_is_not_unicode_or_too_long_is_told_as_far_as_it_can_be() -> None:
    origin = ORIGIN._replace(error=ValueError("\udc80" + "x" * 10_000))
    message = origin.headers(1, 0)["dead_letter_error_message"]
    assert message.startswith("\\udc80xxx") and len(message) == 4000


def test_a_row_of_a_typed_channel_becomes_an_event_and_a_row_again() -> None:
    rows = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
    wider = pa.schema([("n", pa.int64()), ("s", pa.string())])
    letters = letters_of(ReadBatch(1, 1, 0, 0, rows), wider)
    assert len(letters) == 2
    assert table_of(letters, wider).to_pylist() == [{"n": 1, "s": None}, {"n": 2, "s": None}]
    with pytest.raises(SchemaError, match="holds rows of a typed channel"):
        event_of(letters[0])


def test_a_whole_batch_of_a_producer_becomes_its_rows_again() -> None:
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
    letter = Event(arrow_stream(rows), {"content_type": "application/vnd.apache.arrow.stream"})
    assert table_of([letter], rows.schema).num_rows == 3


def test_what_holds_no_rows_cannot_become_rows() -> None:
    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(SchemaError, match="is an event, and a typed channel can't take it"):
        table_of([Event(b"a")], schema)
    with pytest.raises(SchemaError, match="can't be read"):
        table_of([Event(b"a", {"content_type": "application/vnd.apache.arrow.stream"})], schema)
