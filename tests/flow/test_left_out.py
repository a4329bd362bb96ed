from __future__ import annotations

import pytest

from spillable_stream.errors import ChannelFullError, PutTooLargeError, StorageError
from spillable_stream.flow.left_out import LeftOut


def test_what_an_optional_channel_misses_is_said_once_a_minute_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    left_out = LeftOut("a1.r1", lambda: now[0])
    for now[0], channel, error in [
        (0, "c2", ChannelFullError("long text")),
        (1, "c2", ChannelFullError("long text")),
        (59_999, "c2", ChannelFullError("long text")),
        (60_000, "c3", StorageError("no space")),
        (60_001, "c2", ChannelFullError("long text")),
        (60_002, "c2", ChannelFullError("long text")),
    ]:
        left_out.add(channel, 5, error)
    left_out.close()
    assert [r.getMessage() for r in caplog.records] == [
        "a1.r1: the optional channel c2 did not get 5 events: it is full",
        "a1.r1: the optional channel c3 did not get 5 events: no space",
        "a1.r1: the optional channel c2 did not get 15 events: it is full",
        "a1.r1: the optional channel c2 did not get 5 events: for the reason above",
    ]


def test_an_optional_channel_that_could_never_hold_a_part_says_so(caplog: pytest.LogCaptureFixture) -> None:
    LeftOut("a1.r1", lambda: 0).add("c2", 5, PutTooLargeError("it holds at most 9 bytes"))
    assert [r.getMessage() for r in caplog.records] == [
        "a1.r1: the optional channel c2 did not get 5 events: it holds at most 9 bytes"
    ]
