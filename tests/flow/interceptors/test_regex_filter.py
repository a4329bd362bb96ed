"""regex_filter keeps or drops what it finds."""

from __future__ import annotations

import pytest

from spillable_stream.flow.event_batch import events_of
from spillable_stream.flow.interceptors.regex_filter import RegexFilter
from tests.support.flow_batches import batch_of


@pytest.mark.parametrize(
    ("interceptor", "left"),
    [
        (RegexFilter(), [b"an error", b"fine", b"\xff error", b""]),
        (RegexFilter("error"), [b"an error", b"\xff error"]),
        (RegexFilter("error", exclude_events=True), [b"fine", b""]),
        (RegexFilter("^error$"), []),
        (RegexFilter("(?=e)error"), [b"an error", b"\xff error"]),
    ],
)
def test_events_stay_whose_body_has_a_match(interceptor: RegexFilter, left: list[bytes]) -> None:
    batch = batch_of(b"an error", b"fine", b"\xff error", b"", kept="1")
    found = events_of(interceptor.intercept(batch))
    assert [e.body for e in found] == left and all(e.headers == {"kept": "1"} for e in found)
