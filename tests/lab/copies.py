"""Programs that work on while their channel is copied, and what a copy must then hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from spillable_stream import Channel
from tests.lab.children import Child, mutate, wait_until
from tests.lab.contents import CONSUMERS, contents
from tests.lab.ledger import Found, Outcome, check, in_doubt_since, whole_lines
from tests.lab.worker import work
from tests.lab.workload import CONFIGURATIONS, OPTIONS
from tests.support.events import put

__all__ = ["HISTORY", "Writers", "wrong_copy"]

HISTORY = "history"  # a group that takes nothing, so that every event stays
_NAMES = (("put", "put-1"), ("put", "put-2"), ("take", "take-3"))

Lines = dict[str, list[str]]


class Writers:
    """Two producers and a consumer on one channel, until they are killed.

    Args:
        path: the channel, made here.
        directory: where their ledgers go.
        configuration: one of the workload's.
        mutant: how the package is broken in them.
        options: more options of the channel.
    """

    def __init__(
        self, path: Path, directory: Path, configuration: str = "disk", mutant: str = "", **options: Any
    ) -> None:
        self.path = path
        self._directory = directory
        self._options = {**OPTIONS, **CONFIGURATIONS[configuration], **options}
        with Channel(path, **self._options) as channel:
            for group in (HISTORY, CONSUMERS):
                channel.consumer(group)
        self._workers = [self._start(what, name, seed, mutant) for seed, (what, name) in enumerate(_NAMES, 1)]

    def _start(self, what: str, name: str, seed: int, mutant: str) -> Child:
        # Options that differ from the stored ones are changed: directories are given once.
        options = {k: v for k, v in self._options.items() if not k.endswith(("_dirs", "checkpoint_dir"))}
        do = partial(work, what, self.path, self._ledger(name), name, seed, 0, "", **options)

        def run() -> None:
            mutate(mutant)
            do()

        return Child(run, self._directory / "stderr", 600)

    def _ledger(self, name: str) -> Path:
        return self._directory / f"{name}.ledger"

    def lines(self) -> Lines:
        """Return what the ledgers say by now."""
        ledgers = {name: self._ledger(name) for _, name in _NAMES}
        return {name: whole_lines(path) if path.exists() else [] for name, path in ledgers.items()}

    def get_on(self, lines: int) -> None:
        """Wait until they have written so many more lines into their ledgers."""
        before = sum(map(len, self.lines().values()))
        enough = wait_until(lambda: not self.alive() or sum(map(len, self.lines().values())) >= before + lines)
        assert enough and self.alive(), (
            f"the writers do not get on:\n{(self._directory / 'stderr').read_text()[-3000:]}"
        )

    def alive(self) -> bool:
        """Tell whether all of them still work."""
        return all(worker.alive() for worker in self._workers)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop them in the middle of what they do, for a while."""
        for worker in self._workers:
            worker.stop()
        try:
            yield
        finally:
            for worker in self._workers:
                worker.go_on()

    def kill(self) -> None:
        """Kill them; again is fine."""
        for worker in self._workers:
            worker.kill()

    def wrong(self) -> list[str]:
        """Return what is wrong with their own channel, once they are killed."""
        with _quiet(), Channel(self.path, minimum_required_space=0) as channel:
            return check(Outcome.of(self.lines().values()), contents(channel, HISTORY))

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def wrong_copy(path: Path, before: Lines, after: Lines) -> list[str]:
    """Return what is wrong with a copy of a channel: it opens, holds what it must, and can be used.

    Args:
        path: the copy.
        before: what the ledgers said before the copy began.
        after: what they said when it was done.
    """
    with _quiet(), Channel(path, create=False) as channel:
        found, last_id = contents(channel, HISTORY), channel.stats().last_id
        wrong = check(Outcome.of(in_doubt_since(before[name], after[name], last_id) for name in before), found)
        wrong += missing_events(Outcome.of(before.values()), found)
        put(channel, b"in the copy")
    with _quiet(), Channel(path, create=False) as channel:
        again = contents(channel, HISTORY)
    if list(again.bodies.values()) != [*found.bodies.values(), b"in the copy"]:
        wrong.append("the copy did not keep what was put there")
    return wrong


def missing_events(outcome: Outcome, found: Found) -> list[str]:
    """Return which acknowledged events are neither there nor reported lost; that others took them excuses none."""
    reported: Iterable[tuple[int, int]] = [*found.lost, *found.doubtful]
    ids = {i for key, first in outcome.acknowledged.items() for i in range(first, first + outcome.started[key])}
    missing = sorted(i for i in ids - found.bodies.keys() if not any(a <= i <= b for a, b in reported))
    return (
        [f"the events {missing[0]} to {missing[-1]}, {len(missing)} in all, were acknowledged before"]
        if missing
        else []
    )


def _quiet() -> Any:
    return warnings.catch_warnings(action="ignore", category=UserWarning)
