"""An agent is killed at named moments, again and again, while its log is rotated: each line is once in each output."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.lab.flow_lab import Kill, count_moments, moment_names, script, wrong_after_kills
from tests.lab.size import sized


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", moment_names())
def test_an_agent_that_is_killed_at_a_named_moment_writes_each_line_once(shared_memory: Path, name: str) -> None:
    """The first kill leaves something to recover, the second comes at the moment, and the third soon after that."""
    acts = script(seed=3, rotations=sized(ci=1, full=2))
    for number in range(1, sized(ci=2, full=13)):
        kills = [Kill(20 * number), Kill(number, name), Kill(10 * number)]
        assert wrong_after_kills(shared_memory / f"{number}", acts, kills) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_an_agent_that_is_killed_at_any_moments_writes_each_line_once(shared_memory: Path) -> None:
    chance = random.Random(4711)
    for i in range(sized(ci=2, full=100)):
        acts = script(seed=i, rotations=3)
        moments = count_moments(shared_memory / f"whole {i}", acts)
        kills = [Kill(chance.randint(1, moments)), *(Kill(chance.randint(1, 100)) for _ in range(3))]
        assert wrong_after_kills(shared_memory / f"{i}", acts, kills) == [], kills
