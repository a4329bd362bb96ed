"""The laboratory itself: every mutant is caught, by the recipes that are named here."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.crash import (
    test_copies,
    test_directories,
    test_heads,
    test_namespaces,
    test_paths,
    test_strays,
    test_users,
)
from tests.crash.test_concurrency import at_once
from tests.crash.test_io_errors import calls, wrongs_with
from tests.crash.test_keeping import CONFIGURATIONS as KEEPING_CONFIGURATIONS
from tests.crash.test_keeping import wrong_steps
from tests.crash.test_kill_points import count_moments, kill_points
from tests.crash.test_power_cut import power_cut_cycles
from tests.crash.test_recycling import wrongs_of_overtaken_readers
from tests.crash.test_system_calls import system_calls
from tests.engine.store import test_delay_merging_meanwhile
from tests.lab import object_harness
from tests.lab.damage_image import make_image
from tests.lab.damage_kinds import bit_flips, frames_exchanged
from tests.lab.damage_lab import wrongs
from tests.lab.faults import WRITES, Fault
from tests.lab.flow_lab import Kill, script, wrong_after_kills, wrong_after_power_cuts
from tests.lab.hosts import why_no_namespaces
from tests.lab.machine import missing
from tests.lab.mutants import MUTANTS, broken
from tests.lab.states import CrashStates
from tests.lab.subject import DELAYING, KEEPING, SPREAD
from tests.lab.users import common_directory, why_no_users
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import stores_in_memory

Recipe = Callable[[Path, str], list[str]]


class Soonest(NamedTuple):
    """With what the states of a program show a mutant soonest: what `CrashStates` is told."""

    seed: int = 1
    samples: int = 0
    first: int = 1


# A mutant that its operation no longer shows is looked for from the first one on.
SHOWN_SOONEST = {
    "acknowledge before the sync": Soonest(seed=2, first=55),
    "unlink early": Soonest(first=215),
    "keep the old seed": Soonest(first=170),
    "write over a file that may come back": Soonest(first=170),
    "reuse an id": Soonest(first=160),
    "forget takes in flight": Soonest(seed=2, first=150),
    "forget a take": Soonest(seed=3, first=65),
    "leave a torn tail": Soonest(samples=1, first=58),
    "register before the sync": Soonest(first=70),
    "name before the sync": Soonest(seed=3, first=95),
    "deliver in two steps": Soonest(first=75),
    "remove a side file early": Soonest(first=75),
    "pass over in silence": Soonest(seed=2, first=120),
    "skip the sync of a seek": Soonest(first=78),
    "remove what expires early": Soonest(seed=2, first=412),
}


def crash_states(directory: Path, mutant: str) -> list[str]:
    return wrong_in_states(directory, mutant, "disk")


def keeping_states(directory: Path, mutant: str) -> list[str]:
    return wrong_in_states(directory, mutant, f"{KEEPING}disk")


def delaying_states(directory: Path, mutant: str) -> list[str]:
    return wrong_in_states(directory, mutant, f"{DELAYING}disk")


def spread_states(directory: Path, mutant: str) -> list[str]:
    return wrong_in_states(directory, mutant, f"{SPREAD}disk")


def wrong_in_states(directory: Path, mutant: str, configuration: str) -> list[str]:
    """Return what is wrong in the first state that is; nothing if none is in any of some runs."""
    soonest = SHOWN_SOONEST.get(mutant, Soonest())
    for seed, samples, first in dict.fromkeys([soonest, Soonest(1, 0), Soonest(2, 0), Soonest(1, 10)]):
        lab = CrashStates(directory, configuration, seed, samples, first=first, most=1)
        with broken(mutant):
            lab.run()
        if lab.failures:
            break
    return [w for failure in lab.failures for w in failure.wrong]


def keeping_steps(directory: Path, mutant: str) -> list[str]:
    for seed in (1, 2, 6):
        for configuration in KEEPING_CONFIGURATIONS:
            if wrong := wrong_steps(directory, configuration, seed, mutant):
                return wrong
    return []


def failed_syncs(directory: Path, mutant: str) -> list[str]:
    lab = CrashStates(directory, samples=0, most=1)
    for n in (9, *range(20, 44, 3)):  # the first shows it soonest
        with broken(mutant):
            lab.run(failing_sync=n)
        if lab.failures:
            break
    return [w for failure in lab.failures for w in failure.wrong]


def io_errors(directory: Path, mutant: str) -> list[str]:
    count = calls(directory, "disk", WRITES)
    for number in range(1 + count // 2, count + 1, 2):
        with broken(mutant):
            wrong = wrongs_with(directory, "disk", Fault(number, "ENOSPC", among=WRITES))
        if wrong:
            return wrong
    return []


def kills(directory: Path, mutant: str) -> list[str]:
    moments = count_moments(directory, "disk")
    for point in range(moments // 3, moments, 3):
        if wrong := kill_points(directory, "disk", [point], mutant):
            return wrong
    return []


def flow_kills(directory: Path, mutant: str) -> list[str]:
    before_commit = Kill(1, "before TakeTransaction.commit")
    kills = [
        [],
        [before_commit, before_commit],
        [Kill(3, "after position_file.replace_file")],
        [Kill(2, "half OutputFile.append")],
        [Kill(3, "half slot_file.write_over")],
    ]
    for i, each in enumerate(kills):
        if wrong := wrong_after_kills(directory / str(i), script(seed=3, rotations=1), each, mutant):
            return wrong
    return []


def flow_power_cuts(directory: Path, mutant: str) -> list[str]:
    if why := missing("ext4"):
        pytest.skip(why)
    ends = [
        [Kill(3, "unsynced slot_file.write_over"), Kill(1, "after TakeTransaction.commit", cuts=True)],
        [Kill(4, "after TakeTransaction.commit", cuts=True)],
    ]
    for i, each in enumerate(ends):
        if wrong := wrong_after_power_cuts(directory / f"cut-{i}", "ext4", script(seed=3, rotations=1), each, mutant):
            return wrong
    return []


def damage(directory: Path, mutant: str) -> list[str]:
    image = make_image(directory / "image", rounds=1, without=("checkpoint", "roll", "prepare_a_take", "use_again"))
    log = image.newest
    with broken(mutant):
        wrong = wrongs(image, bit_flips(image, log, 1000, 3000, step=970), spread=True, most=1)
        return wrong or wrongs(image, islice(frames_exchanged(image, log), 24), spread=True, most=1)


def overtaken_readers(directory: Path, mutant: str) -> list[str]:
    with broken(mutant):
        return wrongs_of_overtaken_readers(directory)


def concurrency(directory: Path, mutant: str) -> list[str]:
    return at_once(directory, "disk", 3, mutant)


def power_cuts(directory: Path, mutant: str) -> list[str]:
    return power_cut_cycles(directory, "ext4", 3, 1, ["disk"], mutant)


def _needs(recipe: Recipe, why: str) -> Recipe:
    """Return a recipe that is skipped where this machine lacks something."""

    @functools.wraps(recipe)
    def run(directory: Path, mutant: str) -> list[str]:
        if why:
            pytest.skip(why)
        return recipe(directory, mutant)

    return run


def _raised_by(mutant: str, test: Callable[..., object], *arguments: Any, **more: Any) -> list[str]:
    """Return what a test raised in a broken package; nothing if it passed."""
    try:
        with broken(mutant), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test(*arguments, **more)
    except (Exception, pytest.fail.Exception) as e:
        return [repr(e)]
    return []


def object_kills(directory: Path, mutant: str) -> list[str]:
    """Look often, until the first fault: a pause seldom comes right where the mutant has broken something."""
    return object_harness.kills(object_harness.ObjectHarness(directory, mutant=mutant), random.Random(1), looks=40)


def copies_beside_deliveries(directory: Path, mutant: str) -> list[str]:
    test = test_delay_merging_meanwhile.test_events_that_are_delivered_while_they_are_copied_come_once
    with stores_in_memory(FaultyStore) as stores, pytest.MonkeyPatch.context() as patching:
        return _raised_by(mutant, test, stores, patching, 1_002)


def heads_of_earlier_moments(directory: Path, mutant: str) -> list[str]:
    moments = count_moments(directory, "disk")
    return kill_points(directory, "disk", range(moments // 2, moments // 2 + 10), mutant, fate="an earlier head")


def remounts(directory: Path, mutant: str) -> list[str]:
    return power_cut_cycles(directory, "ext4", 6, 1, ["disk"], mutant, reboot=False)


def heads_that_go_back(directory: Path, mutant: str) -> list[str]:
    wrong: list[str] = []
    with broken(mutant):
        for use in ("put", "roll"):
            (directory / use).mkdir()
            wrong += test_heads.backwards(directory / use, "disk", "roll and put", use, marked=True)
    return wrong


def foreign_directories(directory: Path, mutant: str) -> list[str]:
    test = test_directories.test_a_directory_of_another_channel_is_refused_and_left_alone
    return _raised_by(mutant, test, directory, "two data_dirs", rebooted=False)


def copies_of_originals(directory: Path, mutant: str) -> list[str]:
    test = test_copies.test_a_copy_whose_directories_are_the_originals_is_refused_and_harms_nothing
    return _raised_by(mutant, test, directory, "data_dirs", in_use=False)


def live_copies(directory: Path, mutant: str) -> list[str]:
    return test_copies.copies_of_a_live_channel(directory, "disk", 4, mutant)


def switched_paths(directory: Path, mutant: str) -> list[str]:
    with broken(mutant):
        return test_paths.switched(directory, "disk", "renamed", "checkpoint")


def lost_locks(directory: Path, mutant: str) -> list[str]:
    test = test_strays.test_a_lock_that_goes_away_in_the_middle_of_an_append_lets_nobody_write_over_it
    return _raised_by(mutant, test, directory, "disk", "removed", ("before", "fdatasync"))


def damaged_heads(directory: Path, mutant: str) -> list[str]:
    return _raised_by(mutant, test_heads.test_a_head_that_is_damaged_while_it_counts_takes_nothing_back, directory)


def killed_rolls(directory: Path, mutant: str) -> list[str]:
    return _raised_by(mutant, test_heads.test_a_roll_that_was_killed_leaves_no_file_in_the_way, directory)


def lost_identities(directory: Path, mutant: str) -> list[str]:
    test = test_directories.test_a_channel_without_its_identity_is_refused_and_keeps_its_files
    return _raised_by(mutant, test, directory, create=True)


def containers(directory: Path, mutant: str) -> list[str]:
    test = test_namespaces.test_what_is_in_the_memory_of_another_container_is_never_declared_lost
    with common_directory() as common:  # not in shared memory, of which each has its own
        return _raised_by(mutant, test, common, "one", rebooted=False)


def planted_memory(directory: Path, mutant: str) -> list[str]:
    with common_directory() as common:
        test = test_users.test_what_is_planted_in_the_place_of_a_memory_tier_that_is_gone_is_not_used
        return _raised_by(mutant, test, common, test_users.make_victim(common), "its files")


def channels_of_users(directory: Path, mutant: str) -> list[str]:
    with common_directory() as common:
        test = test_users.test_a_channel_that_root_has_used_is_still_its_users
        return _raised_by(mutant, test, common, die=False, elsewhere=False)


_REMOUNTS = _needs(remounts, missing("ext4"))
_CONTAINERS = _needs(containers, why_no_namespaces())
_PLANTED = _needs(planted_memory, why_no_users())
_USERS = _needs(channels_of_users, why_no_users())
_IDENTITY = [heads_that_go_back, foreign_directories, copies_of_originals, switched_paths, lost_locks, lost_identities]

CAUGHT: dict[str, list[Recipe]] = {
    "skip the sync": [crash_states, system_calls],
    "skip the directory sync": [crash_states, system_calls],
    "sync one data directory": [spread_states],
    "rename before the sync": [crash_states, system_calls],
    "skip the checksum": [damage],
    "believe misplaced frames": [damage],
    "believe half a head": [damaged_heads],
    "publish before the write": [kills],
    "acknowledge before the sync": [crash_states, system_calls],
    "unlink early": [crash_states, system_calls],
    "keep the old seed": [crash_states],
    "write over a file that may come back": [crash_states],
    "read on under another name": [overtaken_readers],
    "reuse an id": [crash_states],
    "forget takes in flight": [crash_states],
    "commit twice": [crash_states, kills, live_copies],
    "forget a take": [crash_states, kills, live_copies],
    "leave a torn tail": [crash_states],
    "retry a failed sync": [failed_syncs],
    "heal nothing": [killed_rolls],
    "swallow a failed write": [io_errors],
    "skip the lock": [concurrency],
    "trust the head": [crash_states, heads_of_earlier_moments, _REMOUNTS],
    "follow a head that went back": [heads_that_go_back],
    "believe any owner": [foreign_directories],
    "miss the original": [copies_of_originals],
    "go where the path leads": [switched_paths],
    "make a lost lock again": [lost_locks],
    "create over what is there": [lost_identities],
    "declare lost what is elsewhere": [_CONTAINERS],
    "trust a planted memory": [_PLANTED],
    "keep what root makes": [_USERS],
    "register before the sync": [delaying_states],
    "name before the sync": [delaying_states],
    "deliver in two steps": [delaying_states],
    "remove a side file early": [delaying_states],
    "pass over in silence": [delaying_states],
    "leave the hint at a seek": [keeping_steps],
    "skip the sync of a seek": [keeping_states],
    "lower the floor at a seek": [keeping_steps],
    "drop what is kept": [keeping_steps],
    "keep nothing of memory": [keeping_steps],
    "forget takes from memory": [keeping_steps],
    "forget where the kept begin": [keeping_steps],
    "expire in silence": [keeping_steps],
    "forget what expired": [keeping_steps],
    "let go what is not taken": [keeping_steps],
    "remove what expires early": [keeping_states],
    "store the position before the put": [flow_kills],
    "commit a take before it is written": [flow_kills],
    "forget the file in use": [flow_kills],
    "note the last batch alone": [flow_kills],
    "take half a copy for a new file": [flow_kills],
    "believe a torn slot": [flow_kills],
    "write over one slot": [flow_kills],
    "believe the page cache": [flow_power_cuts],
    "note what is not synced": [flow_power_cuts],
    "believe what was created": [object_kills],
    "delete every checkpoint": [object_kills],
    "collect what is needed": [object_kills],
    "name an object before it is whole": [object_kills],
    "deliver again": [object_kills],
    "register before it is there": [object_kills],
    "copy what was delivered": [copies_beside_deliveries],
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
@pytest.mark.parametrize(
    "recipe",
    [
        *(
            io_errors,
            keeping_steps,
            flow_kills,
            flow_power_cuts,
            damage,
            overtaken_readers,
            concurrency,
            heads_of_earlier_moments,
            _REMOUNTS,
        ),
        *(*_IDENTITY, _CONTAINERS, _PLANTED, _USERS),
    ],
    ids=lambda r: r.__name__,
)
def test_the_recipes_find_nothing_where_nothing_is_broken(shared_memory: Path, recipe: Recipe) -> None:
    assert recipe(shared_memory, "") == []
