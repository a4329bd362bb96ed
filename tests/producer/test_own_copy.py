from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Event, OptionError, SchemaError
from spillable_stream.producer import own_copy
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.own_copy import own_batch, own_event, own_events, own_row
from tests.support.fake_targets import FakeTarget

ROW = pa.schema([("sku", pa.string())])


@pytest.fixture
def destination() -> Destination:
    return Destination(FakeTarget(ROW), "p", 0, 0, 0)


def test_headers_are_copied_and_count() -> None:
    headers = {"k": "v"}
    body, own, size_bytes = own_event(b"body", headers)
    headers["k"] = "changed"
    assert (body, own) == (b"body", {"k": "v"})
    assert size_bytes > own_event(Event(b"body"), None)[2] > len(body)


def test_headers_of_an_event_and_others_are_refused() -> None:
    with pytest.raises(SchemaError, match="has its own headers"):
        own_event(Event(b"body", {"k": "v"}), {"k": "v"})


def test_a_row_is_copied_and_has_no_headers(destination: Destination) -> None:
    given = {"sku": "a"}
    row, size_bytes = own_row(given, None, destination)
    given["sku"] = "changed"
    assert row == {"sku": "a"} and size_bytes > 0
    assert own_events([{"sku": "a"}] * 2, destination) == ([row] * 2, {}, 2 * size_bytes)
    with pytest.raises(SchemaError, match="is a typed channel: its events have no headers"):
        own_row(given, {"k": "v"}, destination)


def test_a_table_that_arrow_leaves_in_several_batches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of more than 2 GiB, which a test has no room for: here `combine_chunks` combines nothing."""
    batches = [pa.record_batch({"body": pa.array([body])}) for body in (b"1", b"2")]

    class Uncombined:
        @staticmethod
        def from_batches(of: list[pa.RecordBatch]) -> Any:
            return SimpleNamespace(combine_chunks=lambda: SimpleNamespace(to_batches=lambda: of))

    monkeypatch.setattr(own_copy, "pa", SimpleNamespace(**{**vars(pa), "Table": Uncombined}))
    with pytest.raises(SchemaError, match="a column is too large; send each of them"):
        own_copy._joined(batches)


def test_a_table_is_one_batch_of_its_own_and_an_empty_one_is_refused(destination: Destination) -> None:
    table = pa.table({"sku": pa.chunked_array([["a"], [], ["b"]], pa.string())})
    batch, size_bytes = own_batch(table, destination)
    assert batch.to_pylist() == table.to_pylist() and size_bytes > 0
    with pytest.raises(OptionError, match="at least one event"):
        own_batch(table.slice(0, 0), destination)


def test_the_headers_of_several_events_are_by_their_index() -> None:
    bodies, headers, size_bytes = own_events([b"a", Event(b"bc", {"k": "v"})], Destination(FakeTarget(), "p", 0))
    assert (bodies, headers) == ([b"a", b"bc"], {1: {"k": "v"}})
    assert size_bytes == sum(own_event(event, None)[2] for event in (b"a", Event(b"bc", {"k": "v"})))
