from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.flow.sources.http_handlers import BlobHandler, HttpRequest, JsonHandler, handler


def test_an_empty_array_is_not_an_event() -> None:
    assert JsonHandler().events(HttpRequest(b"[]", {}, "")).num_rows == 0


def test_bytes_that_are_not_of_their_character_set_are_malformed() -> None:
    with pytest.raises(SchemaError):
        JsonHandler().events(HttpRequest(b"[]", {}, "utf-16"))


def test_numbers_and_truth_values_are_the_texts_that_they_are_written_with() -> None:
    """Flume's JSON library reads them so, and clients send times as numbers."""
    sent = b'[{"headers": {"timestamp": 1795593600000, "n": 1.50, "b": true, "t": "x"}, "body": 12}, {"body": null}]'
    events = JsonHandler().events(HttpRequest(sent, {}, "")).to_pylist()
    assert dict(events[0]["headers"]) == {"timestamp": "1795593600000", "n": "1.50", "b": "true", "t": "x"}
    assert [e["body"] for e in events] == [b"12", b""]


_DEEP = b'{"headers": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


@pytest.mark.parametrize(
    "event",
    [b'{"headers": {"a": null}}', b'{"headers": {"a": [1]}}', b'{"body": {}}', b"1", pytest.param(_DEEP, id="deep")],
)
def test_what_is_not_text_is_malformed(event: bytes) -> None:
    with pytest.raises(SchemaError, match="the request is not a JSON array"):
        JsonHandler().events(HttpRequest(b"[" + event + b"]", {}, ""))


def test_handlers_have_flumes_names_and_short_ones() -> None:
    assert isinstance(handler("org.apache.flume.source.http.JSONHandler", {}), JsonHandler)
    assert isinstance(handler("blob", {"mandatoryParameters": ""}), BlobHandler)
    with pytest.raises(OptionError):
        handler("xml", {})
