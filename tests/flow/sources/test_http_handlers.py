from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.flow.sources.http_handlers import BlobHandler, JsonHandler, Request, handler


def test_an_empty_array_is_no_event() -> None:
    assert JsonHandler().events(Request(b"[]", {}, "")).num_rows == 0


def test_bytes_that_are_not_of_their_character_set_are_malformed() -> None:
    with pytest.raises(SchemaError):
        JsonHandler().events(Request(b"[]", {}, "utf-16"))


def test_handlers_have_flumes_names_and_short_ones() -> None:
    assert isinstance(handler("org.apache.flume.source.http.JSONHandler", {}), JsonHandler)
    assert isinstance(handler("blob", {"mandatoryParameters": ""}), BlobHandler)
    with pytest.raises(OptionError):
        handler("xml", {})
