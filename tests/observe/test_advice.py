"""What is worth a look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spillable_stream import Channel, GroupStats, SpoolStats
from spillable_stream.observe.advice import Urgency, advice_on
from spillable_stream.observe.observation import Observation

Open = Callable[..., Channel]


def seen(open_channel: Open, **changes: Any) -> Observation:
    return Observation("/data/c", 1.0, replace(open_channel().stats(), **changes))


def test_a_well_channel_needs_nothing(open_channel: Open) -> None:
    assert advice_on(seen(open_channel)) == []


def test_a_channel_that_cannot_be_looked_at_says_why_and_what_to_do() -> None:
    (advice,) = advice_on(Observation("/data/c", 1.0, problem="NotAChannelError: it is missing"))
    assert advice.urgency is Urgency.ERROR and advice.text == "NotAChannelError: it is missing"
    assert advice.action.endswith("spillable verify /data/c")


@pytest.mark.parametrize(
    ("changes", "urgency", "said", "done"),
    [
        ({"lost": ((3, 4), (9, 9))}, "error", "3 events lost", "Put them again"),
        ({"doubtful": ((10, 12),)}, "warning", "IDs 10 to 12", "Compare"),
        (
            {"groups": {"g": GroupStats(9, 1, 0, expired=((5, 9),))}},
            "error",
            "5 events expired before g",
            "retentionMs",
        ),
        ({"unhealthy": True}, "error", "A failure closed", "Open the channel again"),
        ({"channel_fill_percentage": 90.0}, "warning", "90% full", "overflowCapacity"),
        ({"without_owner": ("a", "b", "c", "d")}, "warning", "a, b, c and 1 more", "drop the groups"),
        ({"spool": SpoolStats(7, 2048, 400.0)}, "warning", "7 events (2.0 KiB) wait in the spool", "credentials"),
        ({"spool": SpoolStats(7, 2048, 1.0, "no answer")}, "warning", "on this host only. no answer", "credentials"),
        ({"torn_bytes": 100}, "note", "cut 100 bytes", "no event is lost"),
        ({"overflow_active": True}, "note", "Memory has no room", "memoryCapacity"),
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
