"""search_replace changes bodies as Java's replaceAll does, and leaves alone what is no text."""

from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.event_batch import events_of
from spillable_stream.flow.interceptors.search_replace import SearchReplace
from tests.support.flow_batches import batch_of


@pytest.mark.parametrize(
    ("interceptor", "body", "expected"),
    [
        (SearchReplace("[0-9]+", replace_string="#"), b"a1b22", b"a#b#"),
        (SearchReplace("a"), b"banana", b"bnn"),
        (SearchReplace(r"(\w+)@(\w+)", replace_string=r"$2 \$ $1"), b"me@here", b"here $ me"),
        (SearchReplace("a", replace_string="c"), b"\xffa\xfe", b"\xffc\xfe"),
        (SearchReplace("é", replace_string="e"), "café".encode(), b"cafe"),
        (SearchReplace("é", replace_string="e", charset="ISO-8859-1"), "café".encode("latin-1"), b"cafe"),
        (SearchReplace("é", replace_string="日", charset="ISO-8859-1"), b"caf\xe9", b"caf\xe9"),
        (SearchReplace("x*", replace_string="-"), b"ab", b"-a-b-"),
    ],
)
def test_what_becomes_of_a_body(interceptor: SearchReplace, body: bytes, expected: bytes) -> None:
    (event,) = events_of(interceptor.intercept(batch_of(body, kept="1")))
    assert (event.body, event.headers) == (expected, {"kept": "1"})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"search_pattern": ""}, "needs a searchPattern"),
        ({"search_pattern": "("}, "without its \\)"),
        ({"search_pattern": "a", "replace_string": "$1"}, "names group 1"),
        ({"search_pattern": "a", "charset": "klingon"}, "there is no character set 'klingon'"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SearchReplace(**arguments)
