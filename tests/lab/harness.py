"""Starts workers on one channel, kills them, and checks the channel against their ledgers."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import MemoryLossWarning, TornTailWarning
from tests.lab import mutants
from tests.lab.calls import kill_at, watching
from tests.lab.children import Child, mutate, wait_until
from tests.lab.contents import CONSUMERS, contents
from tests.lab.keeping import set_retention
from tests.lab.keeping_check import kept, wrong_kept
from tests.lab.ledger import Outcome, check
from tests.lab.worker import open_again, work
from tests.lab.workload import CONFIGURATIONS, OPTIONS
from tests.support.damage import age_head, keep_head, lose_memory, reboot, rewind_head

__all__ = ["DISK", "FATES", "KEPT", "KEPT_HEADS", "MEMORY", "Harness", "left_behind"]

DISK = ("disk",)
MEMORY = ("tiny memory", "small memory", "disk", "memory")
KEPT = ("small memory", "disk")  # what is taken is kept, but not much of it
_KEPT_BYTES = 200_000  # less than the options allow
KEPT_HEADS = "heads"  # beside the channel: what its head was now and then
_INTERVALS = (1, 5, 20, 100, 500)  # of checkpoints, in milliseconds


def _age_head(path: Path) -> None:
    if (path / "head").exists():
        age_head(path)


def _rewind_head(path: Path) -> None:
    rewind_head(path, path.with_name(KEPT_HEADS))


def _lose_memory(path: Path) -> None:
    if (path / "memory").exists():
        lose_memory(path)


def _lose_memory_in_a_reboot(path: Path) -> None:
    _lose_memory(path)
    _age_head(path)


# What may befall a channel between a kill and the next open, when nobody has it open.
FATES: dict[str, Callable[[Path], None]] = {
    "": lambda path: None,
    "reboot": reboot,
    "another boot": _age_head,
    "an earlier head": _rewind_head,
    "memory is lost": _lose_memory,
    "memory is lost in a reboot": _lose_memory_in_a_reboot,
}


def left_behind(path: Path, uuid: str) -> list[str]:
    """Return what the last clean close of a channel should have removed of its memory tier."""
    link = path / "memory"
    found = [*Path("/dev/shm").glob(f"spillable-{uuid}-*"), *([link] if os.path.lexists(link) else [])]
    return [f"{path} was left behind" for path in found]


class Harness:
    """One channel, its workers and their ledgers.

    Args:
        directory: where everything goes.
        configurations: which of the workload's `CONFIGURATIONS` take turns.
        broken: what the workers do wrong, to see that it is noticed.
        mutant: how the package is broken in the workers.
    """

    def __init__(
        self, directory: Path, configurations: Sequence[str] = DISK, broken: str = "", mutant: str = ""
    ) -> None:
        self.path = directory / "channel"
        self.directory = directory
        self.kills = 0
        self.kills_while_opening = 0
        self.spilled = 0
        self.first_kept = 0
        self._broken = broken
        self._mutant = mutant
        self._names: list[str] = []
        self._configurations = configurations
        self._turn = 0
        # A group that takes nothing keeps every event. It would keep the memory tier full, so that there
        # the ledgers alone say what was taken.
        self._groups = ("history", CONSUMERS) if configurations == DISK else (CONSUMERS,)
        with Channel(self.path, **self._options()) as channel:
            for group in self._groups:
                channel.consumer(group)
            if configurations == KEPT:
                set_retention(channel, _KEPT_BYTES)

    def _options(self) -> dict[str, Any]:
        configuration = CONFIGURATIONS[self._configurations[self._turn % len(self._configurations)]]
        return {**OPTIONS, **configuration, "checkpoint_interval": _INTERVALS[self._turn % len(_INTERVALS)]}

    def start(self, what: str, transactions: int = 0) -> Child:
        """Start a worker."""
        seed = len(self._names) + 1
        self._names.append(name := f"{what}-{seed}")
        ledger, options = self.directory / f"{name}.ledger", self._options()
        return self._child(
            partial(work, what, self.path, ledger, name, seed, transactions, self._broken, **options),
        )

    def _child(self, do: Callable[[], None]) -> Child:
        def run() -> None:
            mutate(self._mutant)
            do()

        return Child(run, self.directory / "stderr")

    def cycle(self, rng: random.Random) -> None:
        """Kill two producers and a consumer while they work, or whoever recovers what they left."""
        if self._turn % 3 == 2:
            self._kill_openers(rng)
        else:
            self._kill_workers(rng)
        self._turn += 1

    def _keep_head(self) -> None:
        keep_head(self.path, self.directory / KEPT_HEADS)

    def _kill_workers(self, rng: random.Random) -> None:
        self._keep_head()
        workers = [self.start("put"), self.start("put"), self.start("take")]
        if rng.random() < 0.8:
            self._wait_for_lines(workers, rng.randint(1, 60))
            time.sleep(rng.uniform(0, 0.02))
        else:  # while they open the channel
            time.sleep(rng.uniform(0, 0.03))
        rng.shuffle(workers)
        self._keep_head()
        for worker in workers:
            self.kills += worker.kill()
            time.sleep(rng.choice([0, 0, 0.02]))  # the others find the channel as it was left

    def _kill_openers(self, rng: random.Random) -> None:
        """Let something befall the channel, and kill whoever opens it then, again and again."""
        fates = [f for f in FATES if f != "memory is lost in a reboot" or self._turn < 10]  # takes a million IDs
        FATES[rng.choice(fates)](self.path)
        for _ in range(rng.randint(1, 4)):
            options, at = self._options(), rng.randint(1, 50)

            def open_and_die(options: dict[str, Any] = options, at: int = at) -> None:
                with watching(kill_at(at)):
                    open_again(self.path, **options)

            opener, rival = self._child(open_and_die), self._child(partial(open_again, self.path, **options))
            time.sleep(rng.uniform(0, 0.03))
            self.kills_while_opening += rival.kill() + opener.kill()

    def _wait_for_lines(self, workers: list[Child], count: int) -> None:
        """Wait until the workers have written so many lines into their ledgers, or one has failed."""
        ledgers = [self.directory / f"{name}.ledger" for name in self._names[-3:]]

        def get_on() -> bool:
            written = sum(p.read_bytes().count(b"\n") for p in ledgers if p.exists())
            return written >= count or not all(w.alive() for w in workers)  # `errors` says why

        assert wait_until(get_on), f"the workers do not get on:\n{self.errors()}"

    def verdict(self) -> list[str]:
        """Return what is wrong with the channel now; nothing if every promise was kept."""
        outcome = Outcome.read(self.directory.glob("*.ledger"))
        with warnings.catch_warnings(), mutants.broken(self._mutant):
            warnings.simplefilter("ignore", TornTailWarning)
            warnings.simplefilter("ignore", MemoryLossWarning)
            try:
                with Channel(self.path, **OPTIONS) as channel:
                    found, uuid = contents(channel, self._groups[0]), channel.uuid
                    self.spilled = channel.stats().spilled_transactions
                    wrong, self.first_kept = wrong_kept(held := kept(channel)), held.first
            except SpillableError as e:
                return [f"the channel can't be read: {e}"]
        return check(outcome, found) + wrong + left_behind(self.path, uuid)

    def errors(self) -> str:
        """Return what the workers wrote to stderr, but for warnings."""
        lines = (self.directory / "stderr").read_text().splitlines()
        return "\n".join(line for line in lines if "Error" in line)
