"""Starts workers on one channel, kills them, and checks the channel against their ledgers."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from spillable_stream import Channel, SpillableError
from tests.crash.ledger import Outcome, check
from tests.crash.worker import OPTIONS


class Harness:
    """One channel, its workers and their ledgers.

    Args:
        directory: where everything goes.
        broken: how the workers are broken, to see that it is noticed.
    """

    def __init__(self, directory: Path, broken: str = "") -> None:
        self.path = directory / "channel"
        self.directory = directory
        self.broken = broken
        self.kills = 0
        self._names: list[str] = []
        with Channel(self.path, **OPTIONS) as channel:
            channel.consumer("history")  # takes nothing, so that nothing leaves
            channel.consumer("consumers")

    def start(self, what: str, transactions: int = 0) -> subprocess.Popen[str]:
        """Start a worker."""
        seed = str(len(self._names) + 1)
        self._names.append(name := f"{what}-{seed}")
        arguments = [what, str(self.path), str(self.directory / f"{name}.ledger"), name, seed]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker", *arguments, str(transactions), self.broken],
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
            (self.path / "head").unlink()  # as after a reboot

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
                history = dict(self._peek(channel, "history"))
                remaining = [i for i, _ in self._peek(channel, "consumers")]
        except SpillableError as e:
            return [f"the channel can't be read: {e}"]
        return check(outcome, history, remaining)

    def _peek(self, channel: Channel, group: str) -> list[tuple[int, bytes]]:
        consumer = channel.consumer(group)
        ranges = consumer.claim(1 << 60)
        found = [
            (read.first_id + i, body)
            for read in consumer.read(ranges)
            for i, body in enumerate(read.batch.column("body").to_pylist())
        ]
        consumer.release(ranges)
        return found

    def errors(self) -> str:
        """Return what the workers wrote to stderr, but for warnings."""
        lines = (self.directory / "stderr").read_text().splitlines()
        return "\n".join(line for line in lines if "Error" in line)
