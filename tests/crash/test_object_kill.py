"""SIGKILL of processes that put into a channel of objects, take from it and collect in it, at any moment, in loops."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.lab.object_harness import ObjectHarness
from tests.lab.size import sized

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3000)]

_KILLS = 10  # between two looks at the channel
_LOOKS = 3  # at one channel


def test_kills_at_any_moment_lose_nothing_and_double_nothing_in_a_store(shared_memory: Path) -> None:
    """All together: some thirty kills in CI, a thousand on demand."""
    rng = random.Random(20261124)
    for i in range(sized(ci=1, full=23)):
        (shared_memory / f"{i}").mkdir()
        harness = ObjectHarness(shared_memory / f"{i}")
        assert kills(harness, rng) == []
        assert harness.first_slot() > harness.kills, "hardly anything was collected while they worked"
        assert harness.leavings() == []
        outcome = harness.outcome()
        assert harness.kills >= _LOOKS * _KILLS, "some ended before they were killed"
        assert min(len(outcome.acknowledged), len(outcome.taken)) > harness.kills, "they hardly worked"
        assert len(outcome.waiting) > harness.kills // 2, "hardly anything was delayed"
        assert harness.stops, "none was paused"


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ("acknowledges too early", "was acknowledged and is lost|was given to|it was acknowledged at"),
        ("commits in two halves", "is not whole"),
        ("forgets its takes", "times|came back"),
    ],
)
def test_the_harness_notices_broken_programs(shared_memory: Path, broken: str, noticed: str) -> None:
    wrong = kills(ObjectHarness(shared_memory, broken), random.Random(1))
    assert any(re.search(noticed, w) for w in wrong), wrong


def kills(harness: ObjectHarness, rng: random.Random, looks: int = _LOOKS) -> list[str]:
    """Return what is wrong after some kills, or after fewer if something is before."""
    for _ in range(looks):
        if wrong := harness.kill(_KILLS, rng):
            return wrong
    return []
