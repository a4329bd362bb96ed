"""What came just before an event has an answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Channel, Event, Producer
from spillable_stream.channel.event_columns import batch_from_columns, batch_from_events
from spillable_stream.format.batch import EVENT_SCHEMA, decode_batch, encode_batch
from spillable_stream.producer.context import PRODUCER_ID, PRODUCER_SEQUENCE, with_context

HEADERS = st.dictionaries(st.text("kß", max_size=3), st.text(max_size=5), max_size=3)
EVENTS = st.lists(st.tuples(st.binary(max_size=20), HEADERS), min_size=1, max_size=30)


def written(batch: pa.RecordBatch) -> list[tuple[bytes, list[tuple[str, str]]]]:
    """Return what a reader of the log gets."""
    (frame,) = encode_batch(batch)
    read = decode_batch(pa.py_buffer(bytes(frame.payload)), EVENT_SCHEMA)
    read.validate(full=True)
    headers, bodies = (column.to_pylist() for column in read.columns)
    return list(zip(bodies, headers, strict=True))


@given(EVENTS)
def test_columns_are_the_events_they_were(events: list[tuple[bytes, dict[str, str]]]) -> None:
    columns = batch_from_columns([b for b, _ in events], {i: h for i, (_, h) in enumerate(events) if h})
    assert columns.equals(batch_from_events([Event(body, headers) for body, headers in events]))


@given(EVENTS, st.integers(1, 10**12), st.integers(0, 29))
def test_every_event_gets_the_producer_and_the_batch_behind_its_own_headers(
    events: list[tuple[bytes, dict[str, str]]], sequence: int, start: int
) -> None:
    batch = batch_from_events([Event(body, headers) for body, headers in events]).slice(min(start, len(events) - 1))
    said = [(PRODUCER_ID, "me"), (PRODUCER_SEQUENCE, str(sequence))]
    expected = [(body, [*headers.items(), *said]) for body, headers in events][-batch.num_rows :]
    assert written(with_context(batch, "me", sequence)) == expected


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 10_000])
def test_batches_of_any_size_without_headers_get_it(count: int) -> None:
    bodies = [b"%d" % i for i in range(count)]
    found = written(with_context(batch_from_columns(bodies, {}), "me", 7))
    assert [body for body, _ in found] == bodies
    assert {tuple(headers) for _, headers in found} == {((PRODUCER_ID, "me"), (PRODUCER_SEQUENCE, "7"))}


def test_it_takes_no_more_of_the_log_than_its_bytes() -> None:
    plain = batch_from_columns([b"x"], {})
    sizes = [sum(len(f.payload) for f in encode_batch(b)) for b in (plain, with_context(plain, "me", 7))]
    assert sizes[1] - sizes[0] < 200


def test_an_event_that_was_sent_before_keeps_its_context() -> None:
    events = [Event(b"relayed", {PRODUCER_ID: "first", PRODUCER_SEQUENCE: "3"}), Event(b"new", {"k": "v"})]
    (_, relayed), (_, new) = written(with_context(batch_from_events(events), "second", 9))
    assert dict(relayed) == {PRODUCER_ID: "first", PRODUCER_SEQUENCE: "3"}
    assert dict(new) == {"k": "v", PRODUCER_ID: "second", PRODUCER_SEQUENCE: "9"}


def test_null_headers_are_none() -> None:
    headers = pa.array([None, [("k", "v")]], EVENT_SCHEMA.field("headers").type)
    batch = pa.RecordBatch.from_arrays([headers, pa.array([b"a", b"b"], pa.binary())], schema=EVENT_SCHEMA)
    (_, first), (_, second) = written(with_context(batch, "me", 1))
    assert (len(first), len(second)) == (2, 3)


def test_the_events_of_one_producer_can_be_put_in_their_order_again(path: Path) -> None:
    """Whatever the order in which several threads commit its batches."""
    with Channel(path) as channel:
        with (
            Producer(channel, batch_count_threshold=10, io_thread_count=4) as one,
            Producer(channel, batch_count_threshold=7, io_thread_count=4) as other,
        ):
            for i in range(1000):
                one.send(b"%d" % i)
                other.send(b"%d" % i)
        with channel.take_transaction() as tx:
            events = tx.take_many(10_000)
    for producer in (one, other):
        found = [e for e in events if e.headers[PRODUCER_ID] == producer.producer_id]
        found.sort(key=lambda e: (int(e.headers[PRODUCER_SEQUENCE]), e.write_order_id))
        assert [int(e.body) for e in found] == list(range(1000))


def test_without_context_headers_events_are_what_they_were(path: Path) -> None:
    with Channel(path) as channel:
        with Producer(channel, context_headers=False) as producer:
            producer.send(b"x", {"k": "v"})
        with channel.take_transaction() as tx:
            event = tx.take()
    assert event == Event(b"x", {"k": "v"})
