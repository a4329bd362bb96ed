"""The laboratory itself: every mutant is caught, by the recipes that are named here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.damage_image import make_image
from tests.crash.damage_kinds import bit_flips, frames_exchanged
from tests.crash.damage_lab import Head, wrongs
from tests.crash.faults import Fault
from tests.crash.machine import missing
from tests.crash.mutants import MUTANTS, broken
from tests.crash.states import CrashStates
from tests.crash.test_concurrency import at_once
from tests.crash.test_io_errors import wrongs_with
from tests.crash.test_kill_points import count_moments, kill_points
from tests.crash.test_power_cut import power_cut_cycles
from tests.crash.test_system_calls import system_calls

Recipe = Callable[[Path, str], list[str]]


def crash_states(directory: Path, mutant: str) -> list[str]:
    for seed, samples in (1, 0), (2, 0), (1, 10):  # the quick ones first
        lab = CrashStates(directory, seed=seed, samples=samples)
        with broken(mutant):
            lab.run()
        if lab.failures:
            break
    return [w for failure in lab.failures for w in failure.wrong]


def failed_syncs(directory: Path, mutant: str) -> list[str]:
    lab = CrashStates(directory, samples=0)
    for n in range(20, 44, 3):
        with broken(mutant):
            lab.run(failing_sync=n)
        if lab.failures:
            break
    return [w for failure in lab.failures for w in failure.wrong]


def io_errors(directory: Path, mutant: str) -> list[str]:
    for number in range(60, 400, 3):
        with broken(mutant):
            wrong = wrongs_with(directory, "disk", Fault(number, "ENOSPC"))
        if wrong:
            return wrong
    return []


def kills(directory: Path, mutant: str) -> list[str]:
    moments = count_moments(directory, "disk")
    for point in range(moments // 3, moments, 3):
        if wrong := kill_points(directory, "disk", [point], mutant):
            return wrong
    return []


def damage(directory: Path, mutant: str) -> list[str]:
    image = make_image(directory / "image", rounds=1, without=("checkpoint", "roll", "prepare_a_take"))
    log, head = image.newest, "channel/head"
    with broken(mutant):
        wrong = wrongs(image, bit_flips(image, log, 1000, 3000, step=97), most=3)
        wrong += wrongs(image, frames_exchanged(image, log), spread=True, most=3)
        return wrong + wrongs(image, bit_flips(image, head, 0, 216, harmless=True, step=13), [Head.SAME_BOOT], most=3)


def concurrency(directory: Path, mutant: str) -> list[str]:
    return at_once(directory, "disk", 3, mutant)


def power_cuts(directory: Path, mutant: str) -> list[str]:
    return power_cut_cycles(directory, "ext4", 3, 1, ["disk"], mutant)


CAUGHT: dict[str, list[Recipe]] = {
    "skip the sync": [crash_states, system_calls],
    "skip the directory sync": [crash_states, system_calls],
    "rename before the sync": [crash_states, system_calls],
    "skip the checksum": [damage],
    "believe misplaced frames": [damage],
    "believe half a head": [damage],
    "publish before the write": [kills],
    "acknowledge before the sync": [crash_states, system_calls],
    "unlink early": [crash_states, system_calls],
    "reuse an id": [crash_states],
    "forget takes in flight": [crash_states],
    "commit twice": [crash_states, kills],
    "forget a take": [crash_states, kills],
    "leave a torn tail": [crash_states],
    "retry a failed sync": [failed_syncs],
    "heal nothing": [kills],
    "swallow a failed write": [io_errors],
    "skip the lock": [concurrency],
}


def test_every_mutant_is_caught_by_a_recipe() -> None:
    assert CAUGHT.keys() == MUTANTS.keys()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("mutant", "recipe"),
    [(m, r) for m, recipes in CAUGHT.items() for r in recipes],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_mutant_is_caught(shared_memory: Path, mutant: str, recipe: Recipe) -> None:
    assert recipe(shared_memory, mutant)


@pytest.mark.crash
def test_a_real_power_cut_catches_a_package_that_does_not_sync(tmp_path: Path) -> None:
    if why := missing("ext4"):
        pytest.skip(why)
    assert power_cuts(tmp_path, "skip the sync")


@pytest.mark.crash
@pytest.mark.parametrize("recipe", [io_errors, damage, concurrency], ids=lambda r: r.__name__)
def test_the_recipes_find_nothing_where_nothing_is_broken(shared_memory: Path, recipe: Recipe) -> None:
    assert recipe(shared_memory, "") == []
