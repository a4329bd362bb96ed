from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.channel.taken_events import events_from_batch, id_column, rows_from_batch, table_from_batches
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.row_values import RowReader
from spillable_stream.log.event_reader import ReadBatch
from tests.support.any_events import EVENTS

SCHEMA = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("s", pa.string())])


def read(batch: pa.RecordBatch) -> ReadBatch:
    return ReadBatch(101, 7, 2_500_000, 0, batch)


@given(st.lists(EVENTS, max_size=20), st.data())
def test_events_read_back_with_null_headers_as_empty_strings(events: list[Event], data: st.DataObject) -> None:
    batch = batch_from_events(events)
    assert batch.schema.equals(EVENT_SCHEMA)
    start = data.draw(st.integers(0, len(events)))
    found = events_from_batch(read(batch.slice(start)))
    assert found == [Event(e.body, {k: "" if v is None else v for k, v in e.headers.items()}) for e in events[start:]]


def test_a_taken_event_knows_its_place() -> None:
    found = events_from_batch(read(batch_from_events([Event(b"a"), Event(b"b")])))
    assert [(e.write_order_id, e.transaction_id, e.timestamp) for e in found] == [(101, 7, 2.5), (102, 7, 2.5)]
    assert id_column(read(batch_from_events([Event(b"a"), Event(b"b")]))).to_pylist() == [101, 102]


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 12_000)), max_size=10))
def test_ids_are_those_of_what_was_read_wherever_that_is(reads: list[tuple[int, int]]) -> None:
    for first_id, rows in reads:
        batch = pa.RecordBatch.from_arrays([pa.nulls(rows)], ["x"])
        assert id_column(ReadBatch(first_id, 1, 0, 0, batch)).to_pylist() == list(range(first_id, first_id + rows))


def test_the_ids_of_reads_that_follow_each_other_are_one_array() -> None:
    schema = pa.schema([pa.field("x", pa.null())])
    batch = pa.RecordBatch.from_arrays([pa.nulls(2)], ["x"])
    found = [ReadBatch(first_id, 1, 0, 0, batch) for first_id in (3, 5, 7, 20, 22)]
    ids = table_from_batches(found, schema).column("write_order_id")
    assert [chunk.to_pylist() for chunk in ids.chunks] == [[3, 4, 5, 6, 7, 8], [20, 21, 22, 23]]


def test_null_maps_and_null_values_from_spark_read_as_events() -> None:
    headers = pa.array([None, [("k", None)], [], [("a", "b"), ("c", "d")]], EVENT_SCHEMA.field(0).type)
    batch = pa.RecordBatch.from_arrays([headers, pa.array([b"1", b"2", b"3", b"4"])], schema=EVENT_SCHEMA)
    expected = [{}, {"k": ""}, {}, {"a": "b", "c": "d"}]
    for start in range(4):
        assert [e.headers for e in events_from_batch(read(batch.slice(start)))] == expected[start:]


def test_a_null_body_reads_as_an_event_with_an_empty_one() -> None:
    batch = pa.RecordBatch.from_pydict({"headers": [None, None], "body": [None, b"1"]}, schema=EVENT_SCHEMA)
    assert events_from_batch(read(batch)) == [Event(b""), Event(b"1")]
    assert events_from_batch(read(batch.slice(1))) == [Event(b"1")]


def test_rows_read_back() -> None:
    rows, reader = [{"n": 1, "s": "a"}, {"n": 2, "s": None}], RowReader(SCHEMA)
    assert rows_from_batch(read(reader.batch([reader.read(rows[0]), reader.read({"n": 2})]))) == rows
