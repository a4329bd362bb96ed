"""regex_extractor makes headers of the groups of the first match."""

from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.interceptors.regex_extractor import Millis, PassThrough, RegexExtractor
from tests.support.flow_batches import batch_of, headers_of


@pytest.mark.parametrize(
    ("interceptor", "headers"),
    [
        (RegexExtractor(r"(\d):(\d)", ["a", "b"]), {"a": "1", "b": "2", "old": "x"}),
        (RegexExtractor(r"(\d):(\d)", ["a"]), {"a": "1", "old": "x"}),
        (RegexExtractor(r"(\d)", ["a", "b"]), {"a": "1", "old": "x"}),
        (RegexExtractor(r"(\d):(\d)", ["a", "a"]), {"a": "2", "old": "x"}),
        (RegexExtractor(r"(\d)", ["old"]), {"old": "1"}),
        (RegexExtractor(r"(z)?(\d)", ["a", "b"]), {"a": "", "b": "1", "old": "x"}),
        (RegexExtractor(r"nothing (\d)", ["a"]), {"old": "x"}),
        (RegexExtractor(r"(?=1)(\d)", [PassThrough("a")]), {"a": "1", "old": "x"}),
    ],
)
def test_what_becomes_a_header(interceptor: RegexExtractor, headers: dict[str, str]) -> None:
    assert headers_of(interceptor.intercept(batch_of(b"1:2 3:4", old="x"))) == [headers]


def test_a_time_becomes_milliseconds_and_what_is_none_is_marked() -> None:
    interceptor = RegexExtractor(r"^(\S+ \S+)", [Millis("timestamp", "yyyy-MM-dd HH:mm:ss", time_zone="Europe/Berlin")])
    batch = batch_of(b"2024-07-01 12:00:00 summer", b"2024-13-01 12:00:00 no month", b"none")
    assert headers_of(interceptor.intercept(batch)) == [
        {"timestamp": "1719828000000"},
        {"timestamp.error": "2024-13-01 12:00:00"},
        {},
    ]


def test_it_needs_a_serializer() -> None:
    with pytest.raises(OptionError, match="needs a serializer"):
        RegexExtractor("(a)", [])
