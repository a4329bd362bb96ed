"""Starts workers on one channel, kills them, and checks the channel against their ledgers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from spillable_stream import Channel, SpillableError
from tests.crash.contents import CONSUMERS, contents
from tests.crash.ledger import Outcome, check
from tests.crash.workload import CONFIGURATIONS, OPTIONS

DISK = ("disk",)
MEMORY = ("tiny memory", "small memory", "disk", "memory")


class Harness:
    """One channel, its workers and their ledgers.

    Args:
        directory: where everything goes.
        broken: how the workers are broken, to see that it is noticed.
        configurations: which of the worker's `CONFIGURATIONS` take turns.
    """

    def __init__(self, directory: Path, broken: str = "", configurations: Sequence[str] = DISK) -> None:
        self.path = directory / "channel"
        self.directory = directory
        self.broken = broken
        self.kills = 0
        self.spilled = 0
        self._names: list[str] = []
        self._configurations = configurations
        self._turn = 0
        # A group that takes nothing keeps every event. It would keep the memory tier full, so that there
        # the ledgers alone say what was taken.
        self._groups = ("history", CONSUMERS) if configurations == DISK else (CONSUMERS,)
        with Channel(self.path, **OPTIONS, **CONFIGURATIONS[configurations[0]]) as channel:
            for group in self._groups:
                channel.consumer(group)

    def start(self, what: str, transactions: int = 0) -> subprocess.Popen[str]:
        """Start a worker."""
        seed = str(len(self._names) + 1)
        self._names.append(name := f"{what}-{seed}")
        arguments = [what, str(self.path), str(self.directory / f"{name}.ledger"), name, seed]
        configuration = self._configurations[self._turn % len(self._configurations)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker", *arguments, str(transactions), configuration, self.broken],
            stdout=subprocess.PIPE,
            stderr=(self.directory / "stderr").open("a"),
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def cycle(self, rng: random.Random) -> None:
        """Let two producers and a consumer work for a moment and kill them, one after the other."""
        workers = [self.start("put"), self.start("put"), self.start("take")]
        if rng.random() < 0.8:
            self._wait_for_lines(workers, rng.randint(1, 60))
            time.sleep(rng.uniform(0, 0.02))
        else:  # while they start and open the channel
            time.sleep(rng.uniform(0.1, 0.6))
        rng.shuffle(workers)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            self.kills += worker.wait() == -signal.SIGKILL
            time.sleep(rng.choice([0, 0, 0.02]))  # the others find the channel as it was left
            assert worker.stdout is not None
            worker.stdout.close()
        if rng.random() < 0.3:
            (self.path / "head").unlink(missing_ok=True)  # as after a reboot
        self._turn += 1

    def _wait_for_lines(self, workers: list[subprocess.Popen[str]], count: int) -> None:
        """Wait until the workers have written so many lines into their ledgers, or one has failed."""
        ledgers = [self.directory / f"{name}.ledger" for name in self._names[-3:]]
        deadline = time.monotonic() + 30
        while sum(p.read_bytes().count(b"\n") for p in ledgers if p.exists()) < count:
            if any(worker.poll() is not None for worker in workers):  # `errors` says why
                return
            assert time.monotonic() < deadline, f"the workers do not get on:\n{self.errors()}"
            time.sleep(0.005)

    def verdict(self) -> list[str]:
        """Return what is wrong with the channel now; nothing if every promise was kept."""
        outcome = Outcome.read(self.directory.glob("*.ledger"))
        try:
            with Channel(self.path, **OPTIONS) as channel:
                found, uuid = contents(channel, self._groups[0]), channel.uuid
                self.spilled = channel.stats().spilled_transactions
        except SpillableError as e:
            return [f"the channel can't be read: {e}"]
        return check(outcome, found) + self._left_behind(uuid)

    def _left_behind(self, uuid: str) -> list[str]:
        """Return what the last clean close should have removed of the memory tier."""
        link = self.path / "memory"
        found = [*Path("/dev/shm").glob(f"spillable-{uuid}-*"), *([link] if os.path.lexists(link) else [])]
        return [f"{path} was left behind" for path in found]

    def errors(self) -> str:
        """Return what the workers wrote to stderr, but for warnings."""
        lines = (self.directory / "stderr").read_text().splitlines()
        return "\n".join(line for line in lines if "Error" in line)
