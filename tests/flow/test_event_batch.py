"""Operations on all headers of a batch do what a loop over its events would do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event
from spillable_stream.errors import SchemaError
from spillable_stream.flow.event_batch import (
    Header,
    add_headers,
    as_event_batch,
    concat,
    events_of,
    header,
    header_names,
    remove_headers,
    select_each,
    select_rows,
    with_bodies,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.flow_batches import EVENTS, batch_of, headers_of

NAMES = st.text("abé", max_size=2)


@st.composite
def added(draw: st.DrawFn, rows: int) -> Header:
    if draw(st.booleans()):
        value: str | pa.Array = draw(st.text("xyé", max_size=3))
    else:
        values = st.one_of(st.none(), st.text("xyé", max_size=3))
        value = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), pa.string())
    return Header(draw(NAMES), value, draw(st.booleans()))


@given(EVENTS, st.data())
def test_headers_are_added_as_one_after_the_other_would_be(events: list[Event], data: st.DataObject) -> None:
    headers = data.draw(st.lists(added(len(events)), max_size=4))
    expected = []
    for i, event in enumerate(events):
        own = dict(event.headers)
        for name, value, preserve in headers:
            text = value if isinstance(value, str) else value[i].as_py()
            if text is not None and not (preserve and name in own):
                own[name] = text
        expected.append(own)
    batch = as_event_batch(events)
    begin = data.draw(st.integers(0, len(events)))
    cut = [Header(h.name, h.value if isinstance(h.value, str) else h.value.slice(begin), h.preserve) for h in headers]
    assert headers_of(add_headers(batch, headers)) == expected
    assert headers_of(add_headers(batch.slice(begin), cut)) == expected[begin:]


@given(st.lists(NAMES, max_size=3, unique=True), st.integers(1, 6), st.integers(0, 5), st.data())
def test_headers_are_added_where_all_events_have_the_same_names(
    names: list[str], rows: int, begin: int, data: st.DataObject
) -> None:
    events = [Event(b"", {name: data.draw(st.text("xé", max_size=2)) for name in names}) for _ in range(rows)]
    events += data.draw(EVENTS)  # the others, which are cut off, do not count
    batch = as_event_batch(events).slice(begin, max(0, rows - begin))
    new = {"new": "1", "": "", "é": "ü"}
    found = add_headers(batch, [Header(name, value) for name, value in new.items()])
    assert headers_of(found) == [{**event.headers, **new} for event in events[begin:rows]]
    found.validate(full=True)


def test_names_of_one_length_that_events_do_not_share_are_kept() -> None:
    batch = as_event_batch([Event(b"", {"a": "1"}), Event(b"", {"b": "2"})])
    assert headers_of(add_headers(batch, [Header("c", "3")])) == [{"a": "1", "c": "3"}, {"b": "2", "c": "3"}]


@given(EVENTS, st.lists(NAMES, max_size=3), st.integers(0, 8))
def test_headers_are_removed_and_looked_up_in_a_slice_too(events: list[Event], names: list[str], begin: int) -> None:
    batch = as_event_batch(events).slice(begin)
    left = [{k: v for k, v in e.headers.items() if k not in names} for e in events[begin:]]
    assert headers_of(remove_headers(batch, names)) == left
    for name in names:
        assert header(batch, name).to_pylist() == [e.headers.get(name) for e in events[begin:]]
    assert set(header_names(batch)) == {name for e in events[begin:] for name in e.headers}


@given(EVENTS, EVENTS)
def test_batches_are_joined_in_order_and_events_selected_by_number(one: list[Event], other: list[Event]) -> None:
    together = concat([as_event_batch(one), as_event_batch(other)])
    assert events_of(together) == [*one, *other]
    rows = pa.array(range(0, len(one) + len(other), 2), pa.int64())
    assert events_of(select_rows(together, rows)) == [*one, *other][::2]
    assert select_rows(together, None) is together
    assert concat([]).num_rows == 0


@given(st.lists(NAMES, min_size=1, max_size=3, unique=True), st.integers(0, 6), st.integers(0, 6), st.data())
def test_events_that_share_their_names_are_looked_up_and_split_as_others_are(
    names: list[str], rows: int, begin: int, data: st.DataObject
) -> None:
    events = [Event(bytes([i]), {name: f"{name}{i}" for name in names}) for i in range(rows)]
    batch, left = as_event_batch(events).slice(begin), events[begin:]
    for name in [*names, "other"]:
        assert header(batch, name).to_pylist() == [e.headers.get(name) for e in left]
    chosen = data.draw(st.lists(st.lists(st.integers(0, max(len(left) - 1, 0)), unique=True).map(sorted), max_size=3))
    routes = {str(i): pa.array(found if left else [], pa.int64()) for i, found in enumerate(chosen)}
    parts = select_each(batch, {**routes, "all": None})
    assert parts.pop("all") is batch
    for name, part in parts.items():
        part.validate(full=True)
        assert events_of(part) == [left[i] for i in routes[name].to_pylist()]


def test_columns_of_a_channel_are_taken_in_any_order_and_with_their_ids() -> None:
    batch = batch_of(b"x", a="1")
    taken = batch.append_column("write_order_id", pa.array([7], pa.int64()))
    turned = pa.RecordBatch.from_arrays([batch.column(1), batch.column(0)], names=["body", "headers"])
    for given_batch in (taken, turned, pa.Table.from_batches([batch])):
        assert as_event_batch(given_batch).equals(batch)
    assert as_event_batch(pa.Table.from_batches([], EVENT_SCHEMA)).num_rows == 0


def test_nulls_become_events_without_headers_or_body() -> None:
    batch = pa.RecordBatch.from_pydict({"headers": [None, [("a", None)]], "body": [b"x", None]}, schema=EVENT_SCHEMA)
    assert events_of(as_event_batch(batch)) == [Event(b"x"), Event(b"", {"a": ""})]


def test_other_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match="no column 'id'"):
        as_event_batch(pa.RecordBatch.from_pydict({"id": [1]}))


def test_bodies_are_replaced_and_headers_kept() -> None:
    assert events_of(with_bodies(batch_of(b"x", a="1"), pa.array([b"y"], pa.binary()))) == [Event(b"y", {"a": "1"})]


def test_constant_headers_are_added_in_one_pass_without_objects_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.flow.event_batch.events_of", None)
    calls: list[object] = []
    inner = pa.MapArray.from_arrays
    monkeypatch.setattr(
        "spillable_stream.flow.event_batch._batch",
        lambda ends, names, values, bodies: calls.append(None) or pa.RecordBatch.from_arrays(
        [inner(pa.array(ends), names, values), bodies], schema=EVENT_SCHEMA),
    )  # fmt: skip
    add_headers(batch_of(b"x", b"y"), [Header("a", "1"), Header("b", "2"), Header("c", pa.array(["3", "4"]))])
    assert len(calls) == 1
