"""The power of an agent's disk is cut at named moments, also soon after a kill: each line is once in each output."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.lab.flow_lab import Kill, moment_names, script, wrong_after_power_cuts
from tests.lab.machine import FILE_SYSTEMS, missing
from tests.lab.size import sized

NAMES = moment_names()
SOON = ("after TakeTransaction.commit", "after PutTransaction.commit")
"""What is durable when it has happened, whatever it relies on."""


def kinds_for(index: int) -> list[str]:
    """Return the kinds of file systems that a test has: all in the full size, else one, and each its turn."""
    chosen = sized(ci=FILE_SYSTEMS[index % len(FILE_SYSTEMS) :][:1], full=FILE_SYSTEMS)
    found = [kind for kind in chosen if not missing(kind)]
    if not found:
        pytest.skip(missing(chosen[0]))
    return found


@pytest.mark.crash
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_a_power_cut_at_a_named_moment_leaves_each_line_once(tmp_path: Path, name: str) -> None:
    acts = script(seed=3, rotations=sized(ci=1, full=2))
    for kind in kinds_for(NAMES.index(name)):
        for number in range(1, sized(ci=2, full=6)):
            directory = tmp_path / f"{FILE_SYSTEMS.index(kind)}-{number}"
            cuts = [Kill(20 * number, cuts=True), Kill(number, name, cuts=True), Kill(10 * number, cuts=True)]
            assert wrong_after_power_cuts(directory, kind, acts, cuts) == [], kind


@pytest.mark.crash
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_a_power_cut_soon_after_a_kill_leaves_each_line_once(tmp_path: Path, name: str) -> None:
    """What the killed agent had written is in memory alone; the next one reads it, and acts on it."""
    acts = script(seed=5, rotations=sized(ci=1, full=2))
    for kind in kinds_for(NAMES.index(name) + 1):
        for number in range(1, sized(ci=2, full=6)):
            for i, soon in enumerate(SOON[: sized(ci=1, full=2)]):
                directory = tmp_path / f"{FILE_SYSTEMS.index(kind)}-{number}-{i}"
                ends = [Kill(number, name), Kill(1, soon, cuts=True), Kill(number + 1, name), Kill(2, soon, cuts=True)]
                assert wrong_after_power_cuts(directory, kind, acts, ends) == [], kind


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_power_cuts_and_kills_at_any_moments_leave_each_line_once(tmp_path: Path) -> None:
    chance = random.Random(4711)
    for i in range(sized(ci=4, full=100)):
        kind = kinds_for(i)[0]
        ends = [Kill(chance.randint(1, 150), cuts=chance.random() < 0.6) for _ in range(5)]
        assert wrong_after_power_cuts(tmp_path / f"{i}", kind, script(seed=i, rotations=3), ends) == [], (kind, ends)
