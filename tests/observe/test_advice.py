"""What is worth a look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spillable_stream import Channel, GroupStats, SpoolStats
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.observe.advice import Advice, Urgency, advice_on
from spillable_stream.observe.observation import Observation

Open = Callable[..., Channel]


def seen(open_channel: Open, **changes: Any) -> Observation:
    return Observation("/data/c", 1.0, replace(open_channel().stats(), **changes))


def worker(state: str) -> WorkerStats:
    return WorkerStats("g", state, False, 0, 0, 0, 0, 0, 0, 0, trouble="its process is gone")


def test_a_worker_that_ended_needs_nothing_and_one_whose_calls_hang_does(open_channel: Open) -> None:
    ended, hanging = replace(worker("ended"), trouble=""), replace(worker("running"), trouble="", left_calls=2)
    assert advice_on(seen(open_channel, workers=(ended,))) == []
    assert "is in trouble: 2 calls did not return in time." in advice_on(seen(open_channel, workers=(hanging,)))[0].text


def test_a_well_channel_needs_nothing(open_channel: Open) -> None:
    assert advice_on(seen(open_channel)) == []


@pytest.mark.parametrize(
    ("path", "damaged", "action"),
    [
        ("/data/c", False, "Check the path, and that its disk is mounted and works."),
        (
            "s3://data/c",
            False,
            "Check the address, and that the store can be reached and accepts this host's credentials.",
        ),
        ("/data/c", True, "Run: spillable verify /data/c"),
        ("s3://data/c", True, "Run: spillable verify s3://data/c"),
    ],
)
def test_a_channel_that_cannot_be_looked_at_says_why_and_what_to_do(path: str, damaged: bool, action: str) -> None:
    (advice,) = advice_on(Observation(path, 1.0, problem="what it is", damaged=damaged))
    assert advice == Advice(Urgency.ERROR, "what it is", action)


def test_a_problem_that_says_what_to_do_gets_no_other_advice() -> None:
    (advice,) = advice_on(Observation("/data/c", 1.0, problem="mount it", advised=True))
    assert advice.action == "It is looked at again by itself."


@pytest.mark.parametrize(
    ("changes", "urgency", "said", "done"),
    [
        ({"lost": ((3, 4), (9, 9))}, "error", "3 events lost", "Put them again"),
        ({"doubtful": ((10, 12),)}, "warning", "IDs 10 to 12", "Compare"),
        (
            {"groups": {"g": GroupStats(9, 1, 0, removed=((5, 9),))}},
            "error",
            "5 events were removed before g",
            "retention_ms",
        ),
        ({"unhealthy": True}, "error", "A failure closed", "Open the channel again"),
        ({"channel_fill_percentage": 90.0}, "warning", "90% full", "overflow_capacity"),
        ({"without_owner": ("a", "b", "c", "d")}, "warning", "a, b, c and 1 more", "drop the groups"),
        ({"spool": SpoolStats(7, 2048, 400.0)}, "warning", "7 events (2.0 KiB) wait in the spool", "credentials"),
        ({"spool": SpoolStats(7, 2048, 1.0, "no answer")}, "warning", "on this host only. no answer", "credentials"),
        ({"workers": (worker("died"),)}, "warning", "The worker of g died: its process is gone.", "Start it again"),
        ({"workers": (worker("failed"),)}, "warning", "The worker of g failed: its process is gone.", "Fix"),
        ({"workers": (worker("silent"),)}, "warning", "The worker of g is silent", "hangs"),
        ({"workers": (worker("running"),)}, "warning", "The worker of g is in trouble", "by itself"),
        ({"torn_bytes": 100}, "note", "cut 100 bytes", "no event is lost"),
        ({"overflow_active": True}, "note", "Memory has no room", "memory_capacity"),
    ],
)
def test_each_trouble_says_what_it_is_and_what_to_do(
    open_channel: Open, changes: dict[str, Any], urgency: str, said: str, done: str
) -> None:
    (advice,) = advice_on(seen(open_channel, **changes))
    assert advice.urgency == urgency and said in advice.text and done in advice.action


def test_what_is_almost_a_trouble_is_none(open_channel: Open) -> None:
    changes = {"channel_fill_percentage": 89.0, "spool": SpoolStats(7, 2048, 299.0)}
    assert advice_on(seen(open_channel, **changes)) == []


def test_the_most_urgent_comes_first(open_channel: Open) -> None:
    found = advice_on(seen(open_channel, overflow_active=True, channel_fill_percentage=99.0, lost=((1, 1),)))
    assert [advice.urgency for advice in found] == ["error", "warning", "note"]
