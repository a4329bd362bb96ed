from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream import Event, SchemaError
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.own_copy import own_event, own_row, own_rows
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
    assert own_rows([{"sku": "a"}] * 2, destination) == ([row] * 2, 2 * size_bytes)
    with pytest.raises(SchemaError, match="is a typed channel: its events have no headers"):
        own_row(given, {"k": "v"}, destination)
