from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Event, SchemaError
from spillable_stream.channel.event import read_event
from spillable_stream.channel.event_columns import batch_from_events


def test_the_place_of_an_event_does_not_make_it_another() -> None:
    assert Event(b"x", {"k": "v"}, 1, 2, 3.0) == Event(b"x", {"k": "v"})
    assert hash(Event(b"x", {"k": "v"})) == hash(Event(b"x"))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"body", r"takes spillable_stream.Event, not bytes: give Event\(body\)"),
        ("body", r"takes spillable_stream.Event, not str: give Event\(text.encode\(\)\)"),
        ({"n": 1}, r"not dict: a channel that has a schema takes rows, as Channel\(path, schema=…\)"),
        (pa.table({"n": [1]}), "not Table; put_batch takes it"),
        (Event({"n": 1}), r"must be bytes, not dict: a channel that has a schema .*json.dumps\(row\)"),  # type: ignore[arg-type]
        (Event("text"), "body must be bytes, not str: encode it"),  # type: ignore[arg-type]
        (Event(bytearray(b"x")), r"must be bytes, not bytearray: give bytes\(body\)"),  # type: ignore[arg-type]
        (Event(None), "body must be bytes, not NoneType"),  # type: ignore[arg-type]
        (Event(b"", {"k": 1}), "headers must be strings, not 'k': 1"),  # type: ignore[dict-item]
        (Event(b"", {1: "v"}), "headers must be strings, not 1: 'v'"),  # type: ignore[dict-item]
    ],
)
def test_what_is_not_an_event_is_refused(event: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        batch_from_events([Event(b"fine"), event])


@pytest.mark.parametrize("headers", [{"k": "\ud800"}, {"\udfff": "v"}, {"\ud800": None}])
def test_a_header_that_is_not_unicode_is_refused(headers: dict[str, str | None]) -> None:
    with pytest.raises(SchemaError, match="must be valid Unicode"):
        read_event(Event(b"", headers))


class Body(bytes):
    """A body of a class of somebody's own."""


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


def test_a_large_event_is_shown_in_part() -> None:
    small = Event(b"x", {"a": "b"}, 7)
    assert repr(small) == "Event(body=b'x', headers={'a': 'b'}, write_order_id=7, transaction_id=0, timestamp=0.0)"
    assert eval(repr(small)) == small
    large = repr(Event(bytes(5000), {f"h{i}": "v" for i in range(10_000)}))
    assert "… (5,000 bytes)" in large and "… (10,000 headers)" in large and len(large) < 10_000


@pytest.mark.parametrize(
    "event",
    [
        Event(b"", {"h": "v" * 1_000_000}),
        Event(b"", {"h" * 1_000_000: "v"}),
        Event(bytearray(1_000_000)),  # type: ignore[arg-type]
        Event("x" * 1_000_000),  # type: ignore[arg-type]
        Event(b"", ["x"] * 1_000_000),  # type: ignore[arg-type]
        Event(b"", {i: i for i in range(1_000_000)}),  # type: ignore[misc]
    ],
    ids=["a value", "a name", "a body of another type", "text", "no mapping", "headers of another type"],
)
def test_no_event_is_shown_at_length(event: Event) -> None:
    assert len(repr(event)) < 10_000


def test_a_long_header_says_how_long_it_is() -> None:
    assert "'h': 'vvv" in (shown := repr(Event(b"", {"h": "v" * 5000}))) and "… (5,000 characters)}" in shown
