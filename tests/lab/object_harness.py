"""Starts processes on one channel of objects, kills them, and checks the channel against their ledgers.

No request is sent by the harness's own process: the children are forks, whose requests would be refused then. So it
looks at the channel in a child, too, and a process that has sent any, as a test's may have, starts another one:

python -m tests.lab.object_harness URL DIRECTORY SEED LOOKS

prints, as JSON, what is wrong after so many looks, between which it kills.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from spillable_stream import Channel, SpillableError
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.slots import LOG
from tests.lab.children import Child, mutate, wait_until
from tests.lab.contents import CONSUMERS
from tests.lab.delaying import all_delivered
from tests.lab.ledger import Outcome, check
from tests.lab.object_worker import at_once, open_channel, work_on_objects

__all__ = ["LOOKS", "ObjectHarness", "kills", "run"]

_T = TypeVar("_T")
LOOKS = 3  # at one channel
_KILLS = 10  # between two looks
_TEAM = ["put", "put", "take", "take", "collect"]
_MOST_OBJECTS = 12  # of a channel without events: its identity, some slots, two checkpoints, the hint
_WAKE_SECONDS = 0.1


class ObjectHarness:
    """One channel, its processes and their ledgers.

    Args:
        directory: where everything goes.
        broken: what the processes do wrong, to see that it is noticed.
        mutant: how the package is broken in the processes.
        url: where the channel is to be; by default in the directory.
    """

    def __init__(self, directory: Path, broken: str = "", mutant: str = "", url: str = "") -> None:
        self.kills = 0
        self.stops = 0
        self._directory = directory
        self._url = url or DirectoryStore(directory / "channel").root
        self._broken = broken
        self._mutant = mutant
        self._names: list[str] = []
        self._in_child(self._create)

    def _create(self) -> None:
        with Channel(self._url) as channel:
            channel.consumer(CONSUMERS)

    def _in_child(self, look: Callable[[], _T]) -> _T:
        """Return what a look at the channel finds, which must be JSON."""
        found = self._directory / "found"
        with Child(lambda: found.write_text(json.dumps(look())), self._directory / "stderr") as child:
            assert child.wait() == 0, (self._directory / "stderr").read_text()[-3000:]
        return json.loads(found.read_text())  # type: ignore[no-any-return]

    def _keys(self, prefix: str) -> list[str]:
        """Return the keys of the objects that are there, in order."""
        return self._in_child(lambda: sorted(info.key for info in open_store(Location.parse(self._url)).list(prefix)))

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
        return int(self._keys(LOG)[0].removeprefix(LOG))

    def leavings(self) -> list[str]:
        """Take all events, collect, and return what is wrong with what stays in the store."""
        wrong = self._of_channel(self._empty, staging_ttl=0)  # whoever staged something is gone
        objects = self._keys("")
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

        def look_at_it() -> list[str]:
            mutate(self._mutant)
            try:
                with at_once(), open_channel(self._url, **options) as channel:
                    return look(channel)
            except SpillableError as e:
                return [f"the channel can't be read: {e}"]

        return self._in_child(look_at_it)

    def errors(self) -> list[str]:
        """Return what the processes complained of."""
        lines = (self._directory / "stderr").read_text().splitlines()
        return [line for line in lines if re.match(r"[\w.]+Error", line)]


def kills(harness: ObjectHarness, rng: random.Random, looks: int = LOOKS) -> list[str]:
    """Return what is wrong after some kills, or after fewer if something is before."""
    for _ in range(looks):
        if wrong := harness.kill(_KILLS, rng):
            return wrong
    return []


def run(harness: ObjectHarness, rng: random.Random, looks: int = LOOKS) -> list[str]:
    """Kill, empty the channel, and return what is wrong with it, or else what has hardly happened meanwhile."""
    wrong = kills(harness, rng, looks)
    if wrong:
        return wrong
    first_slot = harness.first_slot()
    wrong, outcome = harness.leavings(), harness.outcome()
    has_happened = {
        "slots were collected while they worked": first_slot > harness.kills,
        "they were killed": harness.kills >= looks * _KILLS,
        "they worked": min(len(outcome.acknowledged), len(outcome.taken)) > harness.kills,
        "events were delayed": len(outcome.waiting) > harness.kills // 2,
        "they were paused": harness.stops > 0,
    }
    return wrong + [f"hardly: {what}" for what, is_so in has_happened.items() if not is_so]


if __name__ == "__main__":
    url, directory, seed, looks = sys.argv[1:]
    print(json.dumps(run(ObjectHarness(Path(directory), url=url), random.Random(int(seed)), int(looks))))
