"""Keeping, going back and letting go: after every step, and every kill, the channel is what the ledger says."""

from __future__ import annotations

import random
import warnings
from itertools import product
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from tests.lab.harness import FATES
from tests.lab.keeping import Keeping, upkeep_by_hand
from tests.lab.keeping_check import History, kept
from tests.lab.ledger import LedgerLines
from tests.lab.mutants import broken
from tests.lab.size import sized
from tests.lab.subject import KEEPING, SINKING, subject
from tests.lab.workload import OPTIONS, put

CONFIGURATIONS = [f"{KEEPING}disk", f"{KEEPING}tiny memory"]


def _lose_memory_and_hints(path: Path) -> None:
    """Lose what a power cut may take of the groups' positions: their files are never synced."""
    FATES["memory is lost in a reboot"](path)
    for hint in path.glob("groups/*.position"):
        hint.unlink()


_FATES = [*map(FATES.__getitem__, ["", "", "reboot", "memory is lost"]), _lose_memory_and_hints]


@pytest.mark.parametrize(
    ("configuration", "seed"),
    [
        *product(CONFIGURATIONS, range(1, 1 + sized(ci=4, full=200))),
        *product([f"{SINKING}disk", f"{SINKING}tiny memory"], range(1, 1 + sized(ci=2, full=200))),
    ],
)
def test_after_every_step_the_channel_is_what_the_ledger_says(
    shared_memory: Path, configuration: str, seed: int
) -> None:
    assert wrong_steps(shared_memory, configuration, seed) == []


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["expire 2", "ack"], "[1, 2] expired, and are there"),
        (["take a 1:p:1:0:3 2:p:1:1:3", "ack", "keep 0", "ack"], "it keeps what is taken: True"),
        (["take a 1:p:1:0:3", "ack"], "a: [1] were taken, or passed over, and came back"),
        (["put p 2 1", "ack p 2 4"], "transaction ('p', 2) was acknowledged and is lost"),
        (["seek b 1", "ack"], "'seek b 1' was done, which can't be"),
        (["drop a", "ack"], "its groups are ['a'], not []"),
    ],
)
def test_the_checker_finds_what_is_wrong(path: Path, lines: list[str], wrong: str) -> None:
    """The channel has three events, which the group has yet to take."""
    before = ["keep 1", "ack", "group a 0 0", "ack", "put p 1 3", "ack p 1 1"]
    with Channel(path, retention_ms=3_600_000, minimum_required_space=0) as channel:
        channel.consumer("a")
        ledger = LedgerLines()
        put(channel, ledger, "p", 1, 3, 5)
        found = kept(channel)
    assert History([before], durable=True).wrong(found) == []
    assert wrong in "\n".join(History([[*before, *lines]], durable=True).wrong(found))


@pytest.mark.parametrize("line", ["take a 1:p:1:0:3 2:p:1:1:3", "expire 2", "seek a 2", "drop a", "look 1 2", "keep 0"])
def test_the_checker_accepts_what_is_in_doubt_as_not_done(path: Path, line: str) -> None:
    before = ["keep 1", "ack", "group a 0 0", "ack", "put p 1 3", "ack p 1 1"]
    with Channel(path, retention_ms=3_600_000, minimum_required_space=0) as channel:
        channel.consumer("a")
        put(channel, LedgerLines(), "p", 1, 3, 5)
        found = kept(channel)
    assert History([[*before, line]], durable=True).wrong(found) == []


def wrong_steps(directory: Path, configuration: str, seed: int, mutant: str = "") -> list[str]:
    """Return what is wrong after some step of a program whose process is killed now and then.

    Args:
        directory: where the channel goes.
        configuration: one that has a `subject`.
        seed: chooses the steps, the kills, and what else happens then.
        mutant: how the package is broken.
    """
    path, ledger, rng = directory / f"{configuration}-{seed}" / "channel", LedgerLines(), random.Random(seed)
    path.parent.mkdir()
    tested = subject(configuration)
    program = tested.program(path, ledger, rounds=1, seed=seed)
    assert isinstance(program, Keeping)
    with broken(mutant), upkeep_by_hand(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for step in program.steps():
                if program.channel is None and step != program.open:
                    program.open()
                step()
                moved = step == program.move  # then the memory tier may go
                killed = program.channel is not None and (moved or rng.random() < 0.5)
                if killed:
                    program.give_up()
                    rng.choice(_FATES[-1:] if moved else _FATES)(path)
                    program.channel = Channel(path, **OPTIONS, **tested.options)
                if program.channel is not None:
                    wrong = tested.verdict([ledger.lines]).wrong(tested.contents(program.channel))
                    if wrong:
                        return [f"after {step.__name__}{', and a kill' if killed else ''}: {w}" for w in wrong]
                    program.note_losses()
        except SpillableError as e:
            return [f"after {ledger.lines[-1][:200]}: {e!r}"]
        finally:
            program.give_up()
    return []
