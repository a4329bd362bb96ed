"""Every state that a power cut can leave, in a model of a disk that loses all it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.size import sized
from tests.lab.states import CrashStates
from tests.lab.subject import DELAYING, KEEPING, SINKING, SPREAD

SEEDS = range(1, 1 + sized(ci=1, full=40))
CONFIGURATIONS = pytest.mark.parametrize(
    "configuration",
    [
        "disk",
        "tiny memory",
        f"{KEEPING}disk",
        f"{KEEPING}tiny memory",
        f"{DELAYING}disk",
        f"{DELAYING}tiny memory",
        f"{SPREAD}{DELAYING}disk",
        f"{SPREAD}{SINKING}disk",
    ],
)


def is_long(configuration: str) -> bool:
    """Tell whether the program of a configuration keeps what was taken, or delays."""
    return any(kind in configuration for kind in (KEEPING, DELAYING, SINKING))


def many(configuration: str) -> int:
    """Return how many states to try: those of a channel that keeps, or delays, take longer: more is checked of each."""
    return sized(ci=100 if is_long(configuration) else 300, full=10_000)


def samples(configuration: str) -> int:
    """Return how many subsets to try after each operation: a program that keeps, or delays, does so many."""
    return sized(ci=0 if is_long(configuration) else 1, full=10)


EVERY = sized(ci=29, full=1)  # of the operations; a prime, so that in the end each kind of operation has its turn
LOOKED_EVERY = sized(ci=5, full=1)  # of the others
USED_EVERY = sized(ci=3, full=1)  # of the states


def shown(lab: CrashStates) -> str:
    return "\n\n".join(map(str, lab.failures))


@pytest.mark.crash
@pytest.mark.parametrize("seed", SEEDS)
@CONFIGURATIONS
def test_no_power_cut_loses_doubles_or_alters_anything(shared_memory: Path, configuration: str, seed: int) -> None:
    lab = CrashStates(shared_memory, configuration, seed, samples(configuration), EVERY, LOOKED_EVERY, USED_EVERY)
    lab.run()
    assert not lab.failures, shown(lab)
    while lab.states < many(configuration):  # crashes on top of crashes: of a recovery, and of what follows it
        lab.run_after_a_crash()
        assert not lab.failures, shown(lab)


@pytest.mark.crash
@CONFIGURATIONS
def test_a_failed_sync_is_never_acknowledged_over(shared_memory: Path, configuration: str) -> None:
    every = sized(ci=150 if is_long(configuration) else 50, full=1)
    lab = CrashStates(shared_memory, configuration, samples=0, looked_every=LOOKED_EVERY, used_every=USED_EVERY)
    syncs = lab.count_syncs()
    assert syncs > 30
    for n in range(1, syncs + 1, every):
        lab.run(failing_sync=n)
        assert not lab.failures, f"sync {n} failed\n{shown(lab)}"


def test_a_laboratory_that_kept_no_crash_to_continue_from_says_so(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no crash is left .* of 0 states"):
        CrashStates(tmp_path).run_after_a_crash()


def test_a_few_power_cuts_lose_nothing(shared_memory: Path) -> None:
    lab = CrashStates(shared_memory, samples=0, looked_every=3, used_every=3)
    lab.run()
    assert not lab.failures, shown(lab)
    assert lab.states > 100
