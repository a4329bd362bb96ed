"""Delayed events of a transaction: in the order of their due times, in frames of one stretch of time each."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Event, SchemaError
from spillable_stream.channel import delayed_events
from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.format.batch import EVENT_SCHEMA, decode_batch
from spillable_stream.format.dues import parse_dues

NOW_MS = 1_800_000_000_000


def contents(chunks: list[DelayedChunk]) -> list[tuple[int, bytes]]:
    """Return when each event is due, and its body."""
    found: list[tuple[int, bytes]] = []
    for chunk in chunks:
        dues, put = chunk.frames
        due = parse_dues(bytes(dues.payload), dues.count)
        assert list(due) == sorted(due)
        assert chunk.begin_ms <= chunk.first_ms == due[0] <= due[-1] < chunk.begin_ms + chunk.width_ms
        bodies = decode_batch(pa.py_buffer(put.payload), EVENT_SCHEMA).column("body").to_pylist()
        found += zip(due, bodies, strict=True)
    return found


def test_every_event_keeps_its_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_events, "_BUFFERED_EVENTS", 64)
    events, rng = DelayedEvents(EVENT_SCHEMA, 0, typed=False), random.Random(3)
    expected = [(NOW_MS + rng.randint(1, 10**9), b"%d" % i) for i in range(500)]
    for due_ms, body in expected:
        events.add([Event(body, {"n": "1"})], due_ms)
    assert sorted(contents(events.chunks(NOW_MS, "none"))) == sorted(expected)


def test_events_that_are_due_at_once_keep_the_order_of_their_puts() -> None:
    events = DelayedEvents(EVENT_SCHEMA, 0, typed=False)
    events.add([Event(b"%d" % i) for i in range(20_000)], NOW_MS + 7)
    found = contents(events.chunks(NOW_MS, "lz4"))
    assert found == [(NOW_MS + 7, b"%d" % i) for i in range(20_000)]


def test_large_events_have_frames_of_their_own() -> None:
    events = DelayedEvents(EVENT_SCHEMA, 0, typed=False)
    events.add([Event(bytes(200_000)) for _ in range(4)], NOW_MS + 7)
    assert [chunk.frames[1].count for chunk in events.chunks(NOW_MS, "none")] == [1, 1, 1, 1]


@pytest.mark.parametrize("before", [1, 8192, 20_000])
@pytest.mark.parametrize("typed", [False, True])
def test_an_event_that_does_not_fit_adds_nothing(typed: bool, before: int) -> None:
    schema = pa.schema([("n", pa.int64())]) if typed else EVENT_SCHEMA
    good: Any = {"n": 1} if typed else Event(b"a")
    bad: Any = {"n": "text"} if typed else Event("text")  # type: ignore[arg-type]
    events = DelayedEvents(schema, 0, typed=typed)
    with pytest.raises(SchemaError):
        events.add([*[good] * before, bad], NOW_MS + 7)
    assert events.chunks(NOW_MS, "none") == []


def test_rows_and_batches_wait_like_events() -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    events = DelayedEvents(schema, 2, typed=True)
    events.add([{"n": 2}], NOW_MS + 2)
    events.add_batch(pa.record_batch({"n": [1, 3]}, schema=schema), [NOW_MS + 3, NOW_MS + 1])
    chunks = events.chunks(NOW_MS, "none")
    found = [decode_batch(pa.py_buffer(c.frames[1].payload), schema).column("n").to_pylist() for c in chunks]
    assert found == [[2], [3, 1]]
    assert {c.frames[1].schema_id for c in chunks} == {2}


def test_a_small_slice_of_a_large_batch_of_views_is_held_as_what_it_is() -> None:
    schema = pa.schema([("numbers", pa.list_view(pa.int64()))])
    whole = pa.record_batch([pa.array([[i] * 10 for i in range(100_000)], schema.field(0).type)], schema)
    events = DelayedEvents(schema, 0, typed=True)
    for i in range(100):
        events.add_batch(whole.slice(i * 1000, 10), [NOW_MS + 7] * 10)
    assert events.size_bytes < 2 * 1000 * 88
    assert sum(len(chunk.frames[1].payload) for chunk in events.chunks(NOW_MS, "none")) < 3 * 1000 * 88


def test_small_rows_of_list_views_share_frames_as_others_do() -> None:
    schema = pa.schema([("numbers", pa.list_view(pa.int64()))])
    events = DelayedEvents(schema, 0, typed=True)
    rows = pa.array([[i] * 10 for i in range(10_000)], schema.field(0).type)
    events.add_batch(pa.record_batch([rows], schema), [NOW_MS + 10_000 - i for i in range(10_000)])
    chunks = events.chunks(NOW_MS, "none")
    assert len(chunks) <= 20
    found = [decode_batch(pa.py_buffer(c.frames[1].payload), schema).column(0).to_pylist() for c in chunks]
    assert [row for part in found for row in part] == rows.to_pylist()[::-1]
