from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event, SchemaError
from spillable_stream.channel.event import (
    EventColumns,
    batch_from_columns,
    batch_from_events,
    events_from_batch,
    id_column,
    read_event,
    rows_from_batch,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.row_values import RowReader
from spillable_stream.log.event_reader import ReadBatch

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
EVENTS = st.builds(Event, st.binary(max_size=20), st.dictionaries(TEXT, st.one_of(st.none(), TEXT), max_size=3))


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


@pytest.mark.parametrize("sizes", [[100] * 3_000, [200_000, 0, 1, 70_000, 3], [1] * 65_537, [65_536]])
def test_bodies_of_any_size_are_joined_in_order(sizes: list[int]) -> None:
    bodies = [bytes((i % 251,)) * size for i, size in enumerate(sizes)]
    batch = batch_from_columns(bodies, {})
    batch.validate(full=True)
    assert batch.column("body").to_pylist() == bodies


def test_many_bodies_are_joined_in_memory_that_arrow_has_already() -> None:
    """In new memory the kernel would have to find a page for every 4 KiB of every batch."""
    before = pa.total_allocated_bytes()
    batch = batch_from_columns([bytes(100)] * 3_000, {})
    assert pa.total_allocated_bytes() - before >= 300_000
    assert batch.num_rows == 3_000


def test_null_maps_and_null_values_from_spark_read_as_events() -> None:
    headers = pa.array([None, [("k", None)], [], [("a", "b"), ("c", "d")]], EVENT_SCHEMA.field(0).type)
    batch = pa.RecordBatch.from_arrays([headers, pa.array([b"1", b"2", b"3", b"4"])], schema=EVENT_SCHEMA)
    expected = [{}, {"k": ""}, {}, {"a": "b", "c": "d"}]
    for start in range(4):
        assert [e.headers for e in events_from_batch(read(batch.slice(start)))] == expected[start:]


def test_the_place_of_an_event_does_not_make_it_another() -> None:
    assert Event(b"x", {"k": "v"}, 1, 2, 3.0) == Event(b"x", {"k": "v"})
    assert hash(Event(b"x", {"k": "v"})) == hash(Event(b"x"))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"body", "takes spillable_stream.Event, not bytes"),
        (Event("text"), "body must be bytes, not str"),  # type: ignore[arg-type]
        (Event(None), "body must be bytes, not NoneType"),  # type: ignore[arg-type]
        (Event(b"", {"k": 1}), "headers must be strings, not 'k': 1"),  # type: ignore[dict-item]
        (Event(b"", {1: "v"}), "headers must be strings, not 1: 'v'"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_event_is_refused(event: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        batch_from_events([Event(b"fine"), event])


@pytest.mark.parametrize("headers", [{"k": "\ud800"}, {"\udfff": "v"}, {"\ud800": None}])
def test_a_header_that_is_no_unicode_is_refused(headers: dict[str, str | None]) -> None:
    with pytest.raises(SchemaError, match="must be valid Unicode"):
        read_event(Event(b"", headers))


SCHEMA = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("s", pa.string())])


def test_rows_read_back() -> None:
    rows, reader = [{"n": 1, "s": "a"}, {"n": 2, "s": None}], RowReader(SCHEMA)
    assert rows_from_batch(read(reader.batch([reader.read(rows[0]), reader.read({"n": 2})]))) == rows


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([1], "takes mappings of column to value, not list"),
        ({"n": 1, "x": 2}, "no column 'x'; it has n, s"),
        ({"n": "one"}, "does not fit the channel's schema"),
        ({"n": 2**40}, "does not fit the channel's schema"),
        ({"s": "a"}, "'n' is not nullable"),
        ({"n": None}, "'n' is not nullable"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        RowReader(SCHEMA).read(row)


class Body(bytes):
    """A body that lies about its length."""

    def __len__(self) -> int:
        return 2**30


def test_more_than_two_gibibytes_in_one_batch_are_refused() -> None:
    with pytest.raises(SchemaError, match="larger than 2 GiB; put fewer events at once"):
        batch_from_columns([Body(), Body()], {})


def test_a_body_of_a_class_of_ones_own_is_plain_bytes_then() -> None:
    body, _ = read_event(Event(Body(b"abc")))
    assert type(body) is bytes and body == b"abc"


class Name(str):
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        raise ZeroDivisionError


class Broken(dict[str, str]):
    def items(self) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "headers", [None, 5, "ab", [("k", "v")], {None: "v"}, Broken(k="v"), {Name("k"): "1", "k": "2"}]
)
def test_headers_that_are_none_are_a_schema_error_whatever_they_raise(headers: Any) -> None:
    with pytest.raises(SchemaError, match="headers"):
        batch_from_events([Event(b"fine"), Event(b"", headers)])
    with pytest.raises(SchemaError, match="headers"):
        read_event(Event(b"", headers))


def test_names_of_a_class_of_ones_own_are_plain_strings_then() -> None:
    _, headers = read_event(Event(b"", {Name("k"): Name("é")}))
    assert headers == {"k": "é"} and type(*headers) is str


@given(st.lists(EVENTS, max_size=20), st.integers(0, 50))
def test_pieces_have_the_same_events(events: list[Event], most_bytes: int) -> None:
    columns = EventColumns.of(events)
    pieces = columns.pieces(most_bytes)
    assert all(len(piece) == 1 or piece.size_bytes <= most_bytes for piece in pieces) or not events
    joined = EventColumns()
    for piece in pieces:
        joined.extend(piece)
    assert joined.batch().equals(columns.batch()) and joined.size_bytes == columns.size_bytes


def test_a_large_event_is_shown_in_part() -> None:
    small = Event(b"x", {"a": "b"}, 7)
    assert repr(small) == "Event(body=b'x', headers={'a': 'b'}, write_order_id=7, transaction_id=0, timestamp=0.0)"
    assert eval(repr(small)) == small
    large = repr(Event(bytes(5000), {f"h{i}": "v" for i in range(10_000)}))
    assert "… (5,000 bytes)" in large and "… (10,000 headers)" in large and len(large) < 10_000
