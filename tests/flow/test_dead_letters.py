"""Dead letters say in headers why they are dead; without a channel for them they are named once a minute."""

from __future__ import annotations

import pytest

from spillable_stream.flow.dead_letters import Stuck, as_dead_letters
from tests.support.flow_batches import batch_of, headers_of


def test_the_reason_is_in_the_headers() -> None:
    dead = as_dead_letters(batch_of(b"x", b"y", h="1"), "a1.k1", ["one", "two"], ["7", "8"], 5)
    common = {"h": "1", "deadletter.component": "a1.k1", "deadletter.time": "5"}
    assert headers_of(dead) == [
        {**common, "deadletter.error": "one", "deadletter.id": "7"},
        {**common, "deadletter.error": "two", "deadletter.id": "8"},
    ]


def test_a_letter_that_comes_back_gets_the_new_reason() -> None:
    once = as_dead_letters(batch_of(b"x"), "a1.k1", ["one"], ["7"], 5)
    (found,) = headers_of(as_dead_letters(once, "a1.k2", ["two"], ["9"], 6))
    assert (found["deadletter.component"], found["deadletter.error"]) == ("a1.k2", "two")


def test_an_event_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    stuck = Stuck("a1.r1", lambda: now[0])
    for now[0] in (0, 30_000, 59_999, 60_000, 61_000):
        stuck.at(f"e{now[0]}", "why")
    assert [r.getMessage().partition(" can't")[0] for r in caplog.records] == [
        "a1.r1: the event e0",
        "a1.r1: the event e60000",
    ]
    assert stuck.why == "the event e61000 can't pass: why"
    stuck.passed()
    assert stuck.why == ""


def test_a_clock_that_is_set_back_does_not_silence_it(caplog: pytest.LogCaptureFixture) -> None:
    now = [10**9]
    stuck = Stuck("a1.r1", lambda: now[0])
    stuck.at("e", "why")
    now[0] = 0
    stuck.at("e", "why")
    assert len(caplog.records) == 2
