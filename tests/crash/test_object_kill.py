"""SIGKILL of processes that put into a channel of objects, take from it and collect in it, at any moment, in loops."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.lab.object_harness import ObjectHarness, kills, run
from tests.lab.size import sized

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3000)]


def test_kills_at_any_moment_lose_nothing_and_double_nothing_in_a_store(shared_memory: Path) -> None:
    """All together: some thirty kills in CI, a thousand on demand."""
    rng = random.Random(20261124)
    for i in range(sized(ci=1, full=23)):
        (shared_memory / f"{i}").mkdir()
        assert run(ObjectHarness(shared_memory / f"{i}"), rng) == []


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
