"""SIGKILL of producers, consumers and of whoever recovers what they left, at any moment, in loops."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab.harness import DISK, KEPT, MEMORY, Harness
from tests.lab.ledger import Outcome
from tests.lab.size import sized

_CYCLES_OF_ONE_CHANNEL = sized(ci=30, full=50)

TIERS = pytest.mark.parametrize("configurations", [DISK, MEMORY], ids=["disk", "memory"])


@pytest.mark.parametrize("configurations", [DISK, MEMORY, KEPT], ids=["disk", "memory", "kept"])
@pytest.mark.crash
@pytest.mark.timeout(3000)
def test_kills_at_any_moment_lose_nothing_and_double_nothing(tmp_path: Path, configurations: Sequence[str]) -> None:
    """All together: ninety cycles in CI, more than a thousand on demand."""
    rng = random.Random(20261121)
    for i in range(sized(ci=1, full=11)):
        (tmp_path / f"{i}").mkdir()
        harness = Harness(tmp_path / f"{i}", configurations)
        assert kill_cycles(harness, _CYCLES_OF_ONE_CHANNEL, rng) == []
        outcome = Outcome.read(harness.directory.glob("*.ledger"))
        assert harness.kills > 1.5 * _CYCLES_OF_ONE_CHANNEL, "most ended before they were killed"
        assert harness.kills_while_opening > _CYCLES_OF_ONE_CHANNEL / 3
        assert min(len(outcome.acknowledged), len(outcome.taken)) > 4 * _CYCLES_OF_ONE_CHANNEL, "they hardly worked"
        assert (harness.spilled > 10) == (configurations != DISK)
        assert configurations != KEPT or harness.first_kept > 1, "nothing has left"


@TIERS
@pytest.mark.crash
@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ("acknowledges too early", "was acknowledged and is lost|was given to"),
        ("commits in two halves", "is not whole"),
        ("forgets its takes", "times|came back"),
    ],
)
def test_the_harness_notices_broken_programs(
    tmp_path: Path, broken: str, noticed: str, configurations: Sequence[str]
) -> None:
    wrong = kill_cycles(Harness(tmp_path, configurations, broken), 20, random.Random(1))
    assert any(re.search(noticed, w) for w in wrong), wrong


def kill_cycles(harness: Harness, cycles: int, rng: random.Random) -> list[str]:
    """Return what is wrong after some cycles, or after fewer if something is before."""
    wrong: list[str] = []
    for i in range(cycles):
        harness.cycle(rng)
        if i % 5 == 4 or i == cycles - 1:
            wrong = harness.verdict() + harness.errors().splitlines()
        if wrong:
            break
    return wrong
