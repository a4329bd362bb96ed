"""Threads and processes at once, with a switch between threads every microsecond; locks of the dead; open takes."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import GroupOwnedError, LockTimeoutError
from tests.lab import mutants
from tests.lab.calls import stop_at, watching
from tests.lab.children import Child, mutate
from tests.lab.contents import CONSUMERS, contents
from tests.lab.harness import left_behind
from tests.lab.ledger import LedgerFile, Outcome, check
from tests.lab.size import sized
from tests.lab.worker import work
from tests.lab.workload import CONFIGURATIONS, OPTIONS, put, take
from tests.support.damage import reboot
from tests.support.events import numbered
from tests.support.events import put as bodies_put
from tests.support.events import take as bodies_taken

_LEAST_TRANSACTIONS = 60  # of each kind, some 300 events

TIERS = pytest.mark.parametrize("configuration", ["disk", "small memory"])


# ── everybody at once ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("configuration", ["disk", pytest.param("small memory", marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_threads_and_processes_at_once_lose_nothing_and_double_nothing(tmp_path: Path, configuration: str) -> None:
    assert at_once(tmp_path, configuration, sized(ci=1.5, full=30)) == []
    outcome = Outcome.read(tmp_path.glob("*.ledger"))
    assert len(outcome.acknowledged) > 100 and len(outcome.taken) > 100, "they hardly worked"


def at_once(directory: Path, configuration: str, seconds: float, mutant: str = "") -> list[str]:
    """Return what is wrong after eight threads of one process and three other processes used a channel.

    Args:
        directory: where everything goes.
        configuration: one of the workload's.
        seconds: how long.
        mutant: how the package is broken in all of them.
    """
    path, options = directory / "channel", {**OPTIONS, **CONFIGURATIONS[configuration]}
    Channel(path, **options).close()

    def start(do: Callable[[], None]) -> Child:
        def run() -> None:
            mutate(mutant)
            do()

        return Child(run, directory / "stderr", seconds + 200)

    def process(seed: int) -> None:
        name = f"process-{seed}"
        work("put", path, directory / f"{name}.ledger", name, seed, 0, "", **options)

    threads = start(lambda: _Threads(path, directory, seconds).run(**options))
    rng, others = random.Random(5), [start(partial(process, seed)) for seed in (1, 2)]
    seed = 3
    while threads.alive():
        time.sleep(rng.uniform(0.05, 0.3))
        others.pop(rng.randrange(2)).kill()
        others.append(start(partial(process, seed)))
        seed += 1
    for other in others:
        other.kill()
    errors = (directory / "stderr").read_text()
    if threads.wait() != 0 or "Error" in errors:
        return [f"the threads ended with {threads.wait()}:\n{errors}"]
    reboot(path)
    with mutants.broken(mutant), Channel(path, **options) as channel:
        found, uuid = contents(channel), channel.uuid
    return check(Outcome.read(directory.glob("*.ledger")), found) + left_behind(path, uuid)


class _Threads:
    """Eight threads of one process on one channel.

    Args:
        path: the channel.
        directory: where their ledgers go.
        seconds: how long they work.
    """

    def __init__(self, path: Path, directory: Path, seconds: float) -> None:
        self._path = path
        self._directory = directory
        self._deadline = time.monotonic() + seconds
        self._failed: list[BaseException] = []
        self._done: Counter[Callable[..., None]] = Counter()

    def _is_little(self) -> bool:
        """Whether they hardly worked, as on a busy machine: then they go on after their time."""
        return self._done[self._put] < _LEAST_TRANSACTIONS or self._done[self._take] < _LEAST_TRANSACTIONS

    def run(self, **options: Any) -> None:
        """Work, and raise what a thread raised."""
        sys.setswitchinterval(1e-6)
        with Channel(self._path, **options) as channel:
            jobs = [self._put, self._put, self._put, self._take, self._take, self._keep, self._look, self._open]
            threads = [
                threading.Thread(target=self._repeat, args=(job, channel, f"thread-{i}", options))
                for i, job in enumerate(jobs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failed:
            raise self._failed[0]

    def _repeat(self, job: Callable[..., None], channel: Channel, name: str, options: dict[str, Any]) -> None:
        rng, ledger = random.Random(name), LedgerFile(self._directory / f"{name}.ledger")
        number = 0
        try:
            while (time.monotonic() < self._deadline or self._is_little()) and not self._failed:
                number += 1
                job(channel, ledger, name, number, rng, options)
                self._done[job] += 1
        except BaseException as e:
            self._failed.append(e)
        finally:
            ledger.close()

    def _put(self, channel: Channel, ledger: LedgerFile, name: str, number: int, rng: random.Random, _: Any) -> None:
        put(channel, ledger, name, number, rng.randint(1, 10), rng.choice([0, 100, 2000]))

    def _take(self, channel: Channel, ledger: LedgerFile, _: str, number: int, rng: random.Random, more: Any) -> None:
        if number % 5 == 0:
            with channel.take_transaction(CONSUMERS) as tx:
                tx.take_many(3)
                tx.rollback()
        elif not take(channel, ledger, rng.randint(1, 40)):
            time.sleep(0.001)

    def _keep(self, channel: Channel, _: Any, name: str, number: int, rng: random.Random, more: Any) -> None:
        channel.checkpoint()
        channel.flush()
        time.sleep(rng.uniform(0, 0.02))

    def _look(self, channel: Channel, _: Any, name: str, number: int, rng: random.Random, more: Any) -> None:
        stats = channel.stats()
        assert stats.last_id >= 0
        assert channel.consumer(CONSUMERS).available() in (True, False)

    def _open(self, channel: Channel, _: Any, name: str, number: int, rng: random.Random, options: Any) -> None:
        with Channel(self._path, **options) as another:
            another.stats()


# ── the lock of a process that stops, or dies, in the middle of an append ──────────────────────────

MOMENTS = {
    "before the write": ("before", "pwritev", 1),
    "half way through the write": ("half", "pwritev", 1),
    "before it is published": ("before", "publish", 1),
    "before it gives the lock back": ("before", "flock", 2),
}
ON_DISK = {**MOMENTS, "before the sync": ("before", "fdatasync", 1)}
APPENDS = pytest.mark.parametrize(
    ("configuration", "moment"), [*(("disk", m) for m in ON_DISK), *(("small memory", m) for m in MOMENTS)]
)


@APPENDS
def test_the_lock_of_a_process_that_dies_in_the_middle_of_an_append_is_free_at_once(
    tmp_path: Path, configuration: str, moment: str
) -> None:
    path, options = tmp_path / "channel", {**OPTIONS, **CONFIGURATIONS[configuration], "lock_timeout": 0.1}
    published = numbered(3, 2) if moment == "before it gives the lock back" else []
    with Channel(path, **options) as channel:
        bodies_put(channel, *numbered(0, 3))
        with Child(partial(_stop_in_an_append, path, moment, options), tmp_path / "stderr") as holder:
            assert holder.wait_stopped(), (tmp_path / "stderr").read_text()
            with pytest.raises(LockTimeoutError, match=f"pid {holder.pid}"):
                bodies_put(channel, b"too early")
            assert channel.stats().last_id == 3 + len(published)  # who only looks waits for nobody
        bodies_put(channel, b"next")  # or it would be refused, as before
        expected = [*numbered(0, 3), *published, b"next"]
        assert list(contents(channel).bodies.values()) == expected
    reboot(path)
    with Channel(path, **options) as channel:
        assert bodies_taken(channel, 10, CONSUMERS) == expected
        assert channel.stats().torn_bytes == 0, "the next holder cut what was left"


@APPENDS
def test_a_process_that_only_stood_still_in_an_append_finishes_it(
    tmp_path: Path, configuration: str, moment: str
) -> None:
    path, options = tmp_path / "channel", {**OPTIONS, **CONFIGURATIONS[configuration]}
    with Channel(path, **options) as channel:
        bodies_put(channel, *numbered(0, 3))
        with Child(partial(_stop_in_an_append, path, moment, options), tmp_path / "stderr") as holder:
            assert holder.wait_stopped(), (tmp_path / "stderr").read_text()
            waiting = threading.Thread(target=bodies_put, args=(channel, b"next"))
            waiting.start()
            time.sleep(0.05)
            os.kill(holder.pid, signal.SIGCONT)
            assert holder.wait() == 0, (tmp_path / "stderr").read_text()
            waiting.join()
        assert list(contents(channel).bodies.values()) == [*numbered(0, 5), b"next"]


def _stop_in_an_append(path: Path, moment: str, options: dict[str, Any]) -> None:
    with Channel(path, **options) as channel, watching(stop_at(*ON_DISK[moment])):
        bodies_put(channel, *numbered(3, 2))


def test_the_lock_of_a_process_that_dies_while_it_creates_a_checkpoint_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    options = {**OPTIONS, "checkpoint_interval": 1 << 50, "lock_timeout": 0.1}
    with Channel(path, **options) as channel:
        bodies_put(channel, *numbered(0, 3))

        def checkpoint() -> None:
            with Channel(path, **options) as mine, watching(stop_at("before", "replace")):
                mine.checkpoint()

        with Child(checkpoint, tmp_path / "stderr") as holder:
            assert holder.wait_stopped(), (tmp_path / "stderr").read_text()
            bodies_put(channel, b"meanwhile")  # commits do not wait for it
            with pytest.raises(LockTimeoutError):
                channel.checkpoint()
        channel.checkpoint()
        assert [p.suffix for p in (path / "checkpoint").glob("checkpoint-*")] == [""], "what it left is removed"
        assert list(contents(channel).bodies.values()) == [*numbered(0, 3), b"meanwhile"]


# ── a group's owner that dies while it holds takes ──────────────────────────────────────────────


@TIERS
@pytest.mark.parametrize("prepared", [False, True])
def test_what_a_killed_owner_had_taken_and_not_committed_comes_to_the_next_one_once(
    tmp_path: Path, configuration: str, prepared: bool
) -> None:
    path, options = tmp_path / "channel", {**OPTIONS, **CONFIGURATIONS[configuration]}
    with Channel(path, **options) as channel:
        bodies_put(channel, *numbered(0, 10))
        with Child(partial(_own, path, prepared, options), tmp_path / "stderr") as owner:
            assert owner.wait_stopped(), (tmp_path / "stderr").read_text()
            with pytest.raises(GroupOwnedError, match=f"pid {owner.pid}"):
                channel.consumer(CONSUMERS, 0.05)
        assert bodies_taken(channel, 3, CONSUMERS) == numbered(2, 3)
        assert bodies_taken(channel, 10, CONSUMERS) == numbered(5, 5)
    reboot(path)
    with Channel(path, **options) as channel:
        assert bodies_taken(channel, 10, CONSUMERS) == []


@TIERS
def test_the_next_owner_may_finish_what_a_killed_one_had_prepared(tmp_path: Path, configuration: str) -> None:
    path, options = tmp_path / "channel", {**OPTIONS, **CONFIGURATIONS[configuration]}
    with Channel(path, **options) as channel:
        bodies_put(channel, *numbered(0, 10))
        with Child(partial(_own, path, True, options), tmp_path / "stderr") as owner:
            assert owner.wait_stopped(), (tmp_path / "stderr").read_text()
        consumer = channel.consumer(CONSUMERS, resume=True)
        ((transaction, ranges),) = consumer.prepared().items()
        assert ranges == [(3, 7)]
        consumer.commit(ranges, transaction)
        assert bodies_taken(channel, 10, CONSUMERS) == numbered(7, 3)


def _own(path: Path, prepared: bool, options: dict[str, Any]) -> None:
    """Take two events, hold the next five, and stop."""
    with Channel(path, **options) as channel:
        assert bodies_taken(channel, 2, CONSUMERS) == numbered(0, 2)
        if prepared:
            consumer = channel.consumer(CONSUMERS)
            consumer.prepare(consumer.claim(5))
        else:
            tx = channel.take_transaction(CONSUMERS)
            tx.begin()
            assert [e.body for e in tx.take_many(5)] == numbered(2, 5)
        os.kill(os.getpid(), signal.SIGSTOP)
