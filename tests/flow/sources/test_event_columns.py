from __future__ import annotations

import pyarrow as pa

from spillable_stream.flow.sources.event_columns import event_batch, events_of


def test_headers_are_the_same_for_all_events_or_one_for_each() -> None:
    batch = event_batch(pa.array([b"x", b"y"], pa.binary()), {"a": "1"}, {"n": pa.array([7, 8])})
    batch.validate(full=True)
    assert [dict(h) for h in batch.column(0).to_pylist()] == [{"a": "1", "n": "7"}, {"a": "1", "n": "8"}]
    assert batch.column(1).to_pylist() == [b"x", b"y"]


def test_there_may_be_no_headers_and_no_events() -> None:
    assert event_batch(pa.array([b"x"], pa.binary())).column(0).to_pylist() == [[]]
    assert event_batch(pa.array([], pa.binary()), {"a": "1"}).num_rows == 0


def test_events_may_have_headers_of_their_own() -> None:
    batch = events_of([b"x", b"y"], [{}, {"a": "1"}])
    assert [dict(h) for h in batch.column(0).to_pylist()] == [{}, {"a": "1"}]
