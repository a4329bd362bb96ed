"""The first and the last events of a channel, looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, DataLossError, Event, OptionError, SchemaError
from spillable_stream.channel.event_table import body_text, value_text
from tests.support.events import numbered, put, take
from tests.support.far_times import FAR, put_far_times

Open = Callable[..., Channel]


def test_head_and_tail_are_the_first_and_the_last_events_and_take_nothing(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0)
    for i in range(5):
        put(channel, *numbered(10 * i, 10))
    take(channel, 3)
    assert (channel.head(2).ids, channel.tail(2).ids, len(channel.head())) == ([4, 5], [49, 50], 10)
    assert channel.head(100).ids == channel.tail(100).ids == list(range(4, 51))
    assert channel.head(2, start=20).rows() == [
        {"headers": {}, "body": b"19", "write_order_id": 20},
        {"headers": {}, "body": b"20", "write_order_id": 21},
    ]
    assert channel.head(1, start=timedelta(hours=1)).ids == [4]
    assert len(channel.head(1, start="latest")) == 0
    assert channel.stats().groups["default"].lag == 47


def test_a_shell_shows_the_first_events_a_line_each(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"an order", {"country": "NL"}))
        tx.put_many(Event(b"two\nlines") for _ in range(20))
    assert repr(channel.head(2)).splitlines() == [
        f"2 events of {channel.path}",
        "write_order_id | headers | body",
        "1 | country: NL | an order",
        "2 |  | two\\nlines",
    ]
    assert repr(channel.head(21)).splitlines()[-1] == "… and 1 more event"
    assert repr(channel.head(1, start="latest")) == f"0 events of {channel.path}"


def test_a_time_that_python_does_not_have_is_shown_as_none_and_is_in_the_table(open_channel: Open) -> None:
    channel = open_channel(schema=FAR.schema)
    put_far_times(channel)
    found = channel.head()
    with pytest.raises(SchemaError, match=r"no object for a value among the events 1 to 2 .*export"):
        found.rows()
    assert repr(found).splitlines()[-2:] == ["1 | 1 | 1970-01-01 00:00:00", "2 | 2 | (Python has no object for it)"]
    assert "(Python has no object for it)" in found._repr_html_()
    assert found.table.column("at").cast(pa.int64()).to_pylist() == [0, 1 << 40]


def test_a_channel_without_events_has_none_to_show(open_channel: Open) -> None:
    channel = open_channel()
    assert len(channel.head()) == len(channel.tail()) == 0
    assert "0 events" in channel.head()._repr_html_()


def test_it_works_on_a_handle_that_only_looks(open_channel: Open, path: Path) -> None:
    put(open_channel(), *numbered(0, 3))
    with Channel(path, create=False, readonly=True) as looking:
        assert looking.tail(2).ids == [2, 3]


def test_a_number_below_one_or_an_event_that_has_left_is_refused(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 3)
    for n in (0, -1, True):
        with pytest.raises(OptionError, match="n must be an integer"):
            channel.head(n)
        with pytest.raises(OptionError, match="n must be an integer"):
            channel.tail(n)
    with pytest.raises(DataLossError):
        channel.head(1, start=2)
    with pytest.raises(OptionError):
        channel.head(1, start=99)


def test_rows_of_a_typed_channel_are_of_its_newest_schema(open_channel: Open) -> None:
    channel = open_channel(schema=pa.schema([("id", pa.int64())]))
    with channel.put_transaction() as tx:
        tx.put({"id": 1})
    channel.evolve(pa.schema([("id", pa.int64()), ("city", pa.string())]))
    with channel.put_transaction() as tx:
        tx.put({"id": 2, "city": "Graz"})
    events = channel.head()
    assert events.rows() == [
        {"id": 1, "city": None, "write_order_id": 1},
        {"id": 2, "city": "Graz", "write_order_id": 2},
    ]
    assert events.columns() == ["write_order_id", "id", "city"]


def test_html_shows_ids_headers_and_bodies_and_escapes_them(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"<script>", {"source": "<b>"}), Event(bytes(range(250, 256)))])
    html = channel.head()._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "source: &lt;b&gt;" in html
    assert "fa fb fc fd fe ff" in html and ">2</td>" in html


def test_html_of_many_events_says_how_many_more_there_are(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 150))
    html = channel.head(150)._repr_html_()
    assert html.count("<tr>") == 101 and "and 50 more events" in html


def test_a_body_is_text_or_hexadecimal_and_a_long_one_is_cut() -> None:
    assert body_text("naïve\n".encode()) == "naïve\n"
    assert body_text(b"\x00\x01") == "00 01"
    assert body_text(b"a" * 300) == "a" * 200 + " … (300 bytes)"
    assert body_text("é".encode() * 2000).startswith("éé")
    assert value_text(None) == "" and value_text({"a": "b"}) == "a: b" and value_text("x" * 500).endswith("x…")


def test_nulls_for_headers_and_bodies_are_shown_as_none_of_them(open_channel: Open) -> None:
    """Spark and an Arrow batch may put them."""
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_batch(
            pa.RecordBatch.from_pydict({"headers": [None, [("a", None)]], "body": [None, None]}, channel.schema)
        )
    assert [(row["headers"], row["body"]) for row in channel.head().rows()] == [({}, b""), ({"a": None}, b"")]
    assert "2 events" in channel.head()._repr_html_()
