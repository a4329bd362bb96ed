"""Events as lines."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from pyarrow import json as pa_json

from spillable_stream import Event
from spillable_stream.cli.event_text import event_line, json_row, lines_of


def test_values_that_json_lacks_are_text() -> None:
    row = {
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "on": date(2026, 1, 2),
        "d": Decimal("1.10"),
        "t": timedelta(seconds=2),
    }
    assert json.loads(json_row({**row, "b": b"x", "raw": b"\xff", "é": "é"})) == {
        "at": "2026-01-02T00:00:00+00:00", "on": "2026-01-02", "d": "1.10", "t": 2.0, "b": "x",
        "raw": {"base64": "/w=="}, "é": "é",
    }  # fmt: skip


def test_numbers_that_json_lacks_can_be_read_by_what_puts_them() -> None:
    row = {"a": float("nan"), "b": float("inf"), "c": float("-inf")}
    line = json_row(row)
    assert line == b'{"a": NaN, "b": Infinity, "c": -Infinity}'
    read = pa_json.read_json(pa.BufferReader(line + b"\n")).to_pylist()[0]
    assert math.isnan(read["a"]) and (read["b"], read["c"]) == (row["b"], row["c"])


def test_an_event_is_its_body_or_all_of_it() -> None:
    event = Event(b"a\xff", {"k": "v"}, 7, 3, 1.5)
    assert event_line(event, as_json=False) == b"a\xff"
    said = json.loads(event_line(event, as_json=True))
    assert said == {
        "id": 7, "time": "1970-01-01T00:00:01.500000+00:00", "headers": {"k": "v"}, "body": {"base64": "Yf8="},
    }  # fmt: skip
    assert event_line({"n": 1}, as_json=False) == b'{"n": 1}'


def test_rows_that_were_read_have_their_ids_where_they_are_asked_for() -> None:
    batch = pa.record_batch({"n": [1, None], "write_order_id": [8, 9]})
    assert list(lines_of(batch, typed=True, as_json=False)) == [b'{"n": 1}', b'{"n": null}']
    assert list(lines_of(batch, typed=True, as_json=True)) == [
        b'{"write_order_id": 8, "n": 1}', b'{"write_order_id": 9, "n": null}',
    ]  # fmt: skip


def test_the_id_of_a_row_and_a_column_that_is_called_id_are_both_there() -> None:
    batch = pa.record_batch({"id": [7], "write_order_id": [8]})
    (line,) = lines_of(batch, typed=True, as_json=True)
    assert json.loads(line) == {"write_order_id": 8, "id": 7}
