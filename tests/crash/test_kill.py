"""SIGKILL of producers and consumers at any moment, in loops."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.harness import DISK, MEMORY, Harness
from tests.crash.ledger import Outcome


def run(directory: Path, cycles: int, seed: int, configurations: Sequence[str]) -> None:
    harness, rng = Harness(directory, configurations=configurations), random.Random(seed)
    for i in range(cycles):
        harness.cycle(rng)
        if i % 5 == 4:
            assert harness.verdict() == []
    assert harness.verdict() == []
    assert harness.errors() == ""
    outcome = Outcome.read(directory.glob("*.ledger"))
    assert harness.kills >= 3 * cycles - 3  # nearly all were alive when they were killed
    assert len(outcome.acknowledged) > 5 * cycles and len(outcome.taken) > 5 * cycles, "they hardly worked"

    assert (harness.spilled > cycles) == (configurations != DISK)


TIERS = pytest.mark.parametrize("configurations", [DISK, MEMORY], ids=["disk", "memory"])


@TIERS
@pytest.mark.timeout(400)
def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path: Path, configurations: Sequence[str]) -> None:
    run(tmp_path, 18, 20261121, configurations)


@TIERS
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_kills_lose_nothing_and_double_nothing(tmp_path: Path, configurations: Sequence[str]) -> None:
    run(tmp_path, 340, 7, configurations)


@TIERS
@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ("acknowledges too early", "was acknowledged and is lost"),
        ("commits in two halves", "is not whole"),
        ("forgets its takes", "times|came back"),
        ("publishes before it writes", "is damaged"),
    ],
)
def test_the_harness_notices_broken_code(
    tmp_path: Path, broken: str, noticed: str, configurations: Sequence[str]
) -> None:
    harness, rng = Harness(tmp_path, broken, configurations), random.Random(1)
    for _ in range(20):
        harness.cycle(rng)
        wrong = harness.verdict() + harness.errors().splitlines()
        if wrong:
            break
    assert any(re.search(noticed, w) for w in wrong), wrong
