from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

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
        "a1.r1: the optional channel c2 did not get 5 events: it is full",
    ]


class Timers:
    """Timers that fire when a test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.cancelled = 0

    def start(self, seconds: float, call: Callable[[], None]) -> threading.Timer:
        assert seconds == 60
        self.calls.append(call)
        return cast("threading.Timer", self)

    def cancel(self) -> None:
        self.cancelled += 1


def test_what_an_optional_channel_missed_is_said_after_a_minute_though_it_misses_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers, now = Timers(), [0]
    left_out = LeftOut("a1.r1", lambda: now[0], timers.start)
    for events, error in [(1, ChannelFullError("full")), (2, ChannelFullError("full")), (3, StorageError("no disk"))]:
        left_out.add("c2", events, error)
    assert len(timers.calls) == 1 and len(caplog.records) == 1
    now[0] = 60_000
    timers.calls[0]()
    assert caplog.records[-1].getMessage() == "a1.r1: the optional channel c2 did not get 5 events: no disk"
    left_out.add("c2", 1, StorageError("no disk"))
    assert len(timers.calls) == 2, "it was said just now"
    left_out.close()
    assert timers.cancelled == 1 and len(caplog.records) == 3
    timers.calls[1]()
    assert len(caplog.records) == 3


def test_what_a_put_missed_that_ended_after_its_source_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    left_out = LeftOut("a1.r1", lambda: 0)
    left_out.add("c2", 1, StorageError("no disk"))
    left_out.close()
    left_out.add("c2", 2, StorageError("no disk"))
    assert len(caplog.records) == 2 and left_out.events == 3


def test_an_optional_channel_that_could_never_hold_a_part_says_so(caplog: pytest.LogCaptureFixture) -> None:
    LeftOut("a1.r1", lambda: 0).add("c2", 5, PutTooLargeError("it holds at most 9 bytes"))
    assert [r.getMessage() for r in caplog.records] == [
        "a1.r1: the optional channel c2 did not get 5 events: it holds at most 9 bytes"
    ]
