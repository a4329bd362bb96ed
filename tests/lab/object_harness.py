"""Starts processes on one channel of objects, kills them, and checks the channel against their ledgers."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from spillable_stream import Channel, SpillableError
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.slots import LOG
from tests.lab import mutants
from tests.lab.children import Child, mutate, wait_until
from tests.lab.contents import CONSUMERS
from tests.lab.delaying import all_delivered
from tests.lab.ledger import Outcome, check
from tests.lab.object_worker import at_once, open_channel, work_on_objects

__all__ = ["ObjectHarness"]

_TEAM = ["put", "put", "take", "take", "collect"]
_MOST_OBJECTS = 12  # of a channel without events: its identity, some slots, two checkpoints, the hint
_WAKE_SECONDS = 0.1


class ObjectHarness:
    """One channel, its processes and their ledgers.

    Args:
        directory: where everything goes.
        broken: what the processes do wrong, to see that it is noticed.
        mutant: how the package is broken in the processes.
    """

    def __init__(self, directory: Path, broken: str = "", mutant: str = "") -> None:
        self.kills = 0
        self.stops = 0
        self._directory = directory
        self._store = DirectoryStore(directory / "channel")
        self._url = self._store.root
        self._broken = broken
        self._mutant = mutant
        self._names: list[str] = []
        with Channel(self._url) as channel:
            channel.consumer(CONSUMERS)

    def kill(self, count: int, rng: random.Random) -> list[str]:
        """Let the team work, kill so many of it at random moments, and return what is wrong then."""
        with ExitStack() as stack:
            team = [stack.enter_context(self._start(role)) for role in _TEAM]
            for _ in range(count):
                self._wait_for_lines(team, rng.randint(1, 30))
                time.sleep(rng.uniform(0, 0.02))
                i = rng.randrange(len(_TEAM))
                self.kills += team[i].kill()
                team[i] = stack.enter_context(self._start(_TEAM[i]))
            rng.shuffle(team)
            for child in team:
                self.kills += child.kill()
        return [*self.verdict(), *self.errors()]

    def _start(self, role: str) -> Child:
        """Start a process."""
        seed = len(self._names) + 1
        self._names.append(name := f"{role}-{seed}")
        do = partial(work_on_objects, role, self._url, self._ledger(name), name, seed, self._broken)

        def run() -> None:
            mutate(self._mutant)
            do()

        return Child(run, self._directory / "stderr")

    def _ledger(self, name: str) -> Path:
        return self._directory / f"{name}.ledger"

    def _wait_for_lines(self, team: list[Child], more: int) -> None:
        """Wait until so many more lines are in the ledgers, or a process has failed; wake those that are stopped."""
        wanted, woken_at = self._lines() + more, time.monotonic()

        def get_on() -> bool:
            nonlocal woken_at
            if time.monotonic() - woken_at > _WAKE_SECONDS:
                self._wake(team)
                woken_at = time.monotonic()
            return self._lines() >= wanted or not all(child.alive() for child in team)  # `errors` says why

        assert wait_until(get_on, 300), f"the processes do not get on: {self.errors()}"

    def _wake(self, team: list[Child]) -> None:
        """Let those run on that have stopped themselves."""
        for child in filter(Child.alive, team):
            self.stops += Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].startswith("T")
            os.kill(child.pid, signal.SIGCONT)

    def _lines(self) -> int:
        return sum(self._ledger(name).read_bytes().count(b"\n") for name in self._names if self._ledger(name).exists())

    def outcome(self) -> Outcome:
        """Return what the processes know."""
        return Outcome.read(self._directory.glob("*.ledger"))

    def verdict(self) -> list[str]:
        """Return what is wrong with the channel now; nothing if every promise was kept."""
        return self._of_channel(lambda channel: check(self.outcome(), all_delivered(channel)))

    def first_slot(self) -> int:
        """Return the number of the first slot that has not been collected."""
        return min(int(info.key.removeprefix(LOG)) for info in self._store.list(LOG))

    def leavings(self) -> list[str]:
        """Take all events, collect, and return what is wrong with what stays in the store."""
        wrong = self._of_channel(self._empty, staging_ttl=0)  # whoever staged something is gone
        objects = sorted(info.key for info in self._store.list(""))
        return wrong + ([f"{len(objects)} objects stay: {objects}"] if len(objects) > _MOST_OBJECTS else [])

    def _empty(self, channel: Channel) -> list[str]:
        with channel.take_transaction(CONSUMERS) as tx:
            while tx.take_many(1_000):
                pass
        for _ in range(3):
            channel.checkpoint()
        return [] if channel.stats().channel_size == 0 else ["events stay"]

    def _of_channel(self, look: Callable[[Channel], list[str]], **options: Any) -> list[str]:
        """Return what is wrong with the channel, which nobody else has open, or why it can't be read."""
        with mutants.broken(self._mutant):
            try:
                with at_once(), open_channel(self._url, **options) as channel:
                    return look(channel)
            except SpillableError as e:
                return [f"the channel can't be read: {e}"]

    def errors(self) -> list[str]:
        """Return what the processes complained of."""
        lines = (self._directory / "stderr").read_text().splitlines()
        return [line for line in lines if re.match(r"[\w.]+Error", line)]
